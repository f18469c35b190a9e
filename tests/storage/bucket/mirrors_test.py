"""A run in a bucket: what is uploaded in which order, what comes back, and what becomes of it when things fail."""

import contextlib
import hashlib
import itertools
import json
import pathlib
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import fake_gcs
import numpy as np
import pytest
from fake_gcs import FakeGcs

from seedzero.config import sections
from seedzero.core import errors
from seedzero.storage.bucket import bucket, lease, mirrors, remote
from seedzero.storage.checkpoints import (
    checkpoint,
    checkpoint_dir,
    checkpointers,
    durable,
    manifest,
    player_files,
    saved_files,
    trees,
)

URL = bucket.Url("gs", "runs", "team/one")
ONE, TWO = (f"main-{digit * 12}" for digit in "12")


class _Impatient(sections.BucketConfig):
    retry_seconds = 1.0


SETTINGS = _Impatient(lease_seconds=30)
_MANIFEST = "checkpoints/steps/000000000010/manifest.json"


class Machine:
    """One machine with a local copy, which may be lost; a session of it is a learner's process."""

    def __init__(self, root: pathlib.Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.said, self._monkeypatch = root, said, monkeypatch
        self.opened: list[mirrors.Mirror] = []
        self.lost = threading.Event()

    @property
    def path(self) -> pathlib.Path:
        self._monkeypatch.setenv(bucket.SCRATCH_VARIABLE, str(self.root))
        return bucket.scratch(URL)

    @property
    def steps(self) -> list[int]:
        return saved_files.finished(self.path / "checkpoints/steps")

    def open(self, step: int | None = None, **kept: int) -> mirrors.Mirror:
        """Begins a session: everything that the learner does before it trains."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = mirrors.Mirror(URL, SETTINGS, sections.CheckpointConfig(**kept), report=self.said.append, step=step)
        self.opened.append(found)
        found.fill()
        saved_files.prepare(self.path / "checkpoints")
        found.begin(self._lose)
        return found

    def run(self, steps: Sequence[int], *segments: str, **options: Any) -> None:
        """A whole session with a checkpoint at each of these updates; the rest: as of `write`."""
        opened = self.open()
        for step in steps:
            self.upload(step, *segments, **options)
        opened.finish()

    def upload(self, step: int, *segments: str, **options: Any) -> None:
        """Writes a checkpoint and has it uploaded in the session that goes on; the rest: as of `write`."""
        self.write(step, *segments, **options)
        self.opened[-1].uploads.upload(step)

    def _lose(self, reason: str) -> None:
        self.said.append(reason)
        self.lost.set()

    def write(
        self,
        step: int,
        *segments: str,
        best: bool = False,
        content: str = "",
        for_good: bool = False,
        name: str = "data",
        frozen: Collection[str] = (),
    ) -> None:
        """Writes a checkpoint as the learner does, with arrays that are only text, in a file of that name.

        frozen: frozen players, those that are not there yet with the content.
        """
        root = self.path / "checkpoints"
        found: dict[str, Mapping[str, durable.Checksum]] = {}
        for segment in segments:
            if not (root / "segments" / segment).exists():
                with durable.new_directory(root / "segments" / segment) as directory:
                    (directory / "rows").write_text(f"rows of {segment}")
            found[segment] = durable.checksums(root / "segments" / segment)
        for player in frozen:
            if not (root / "frozen" / player).exists():
                with durable.new_directory(root / "frozen" / player) as directory:
                    (directory / "params").write_text(f"params of {player}{content}")
        players = {player: durable.checksums(root / "frozen" / player) for player in frozen}
        with durable.new_directory(root / ("best" if best else "steps") / f"{step:012d}") as directory:
            (directory / "params").mkdir()
            (directory / "params" / name).write_text(f"params of {step}{content}")
            files = durable.checksums(directory)
            written = manifest.Manifest(
                step, 0.0, step, for_good, {}, {"content": content}, files, found, bool(found), players
            )
            manifest.write(directory, written)

    def prune(self, keep: int, newest: int) -> None:
        kept = sections.CheckpointConfig(keep=keep)
        directory = checkpoint_dir.CheckpointDir(self.path / "checkpoints", kept, clock=lambda: 0.0)
        directory.newest = checkpoint.Newest(newest)
        directory.prune()


Make = Callable[[str], Machine]


@pytest.fixture
def printed() -> list[str]:
    return []


@pytest.fixture
def machine(
    gcs: FakeGcs, tmp_path: pathlib.Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    made: list[Machine] = []

    def make(name: str) -> Machine:
        made.append(Machine(tmp_path / name, printed, monkeypatch))
        return made[-1]

    yield make
    gcs.fault = lambda request: None
    for found in made:
        for opened in found.opened:
            opened.finish()


@pytest.fixture
def here(machine: Make) -> Machine:
    return machine("a")


@pytest.fixture
def there(machine: Make) -> Machine:
    return machine("b")


def names(gcs: FakeGcs) -> set[str]:
    """Returns the keys of the run in the bucket."""
    return {name.removeprefix("team/one/") for name in gcs.names("runs", "team/one/")}


def player_file(name: str) -> str:
    return f"checkpoints/frozen/{name}/params"


def steps(gcs: FakeGcs) -> list[int]:
    """Returns the checkpoints in the bucket: those with a manifest."""
    words = [name.split("/") for name in names(gcs)]
    return sorted(int(found[2]) for found in words if found[1:2] == ["steps"] and found[-1] == manifest.NAME)


def kill(gcs: FakeGcs, opened: mirrors.Mirror) -> None:
    """Ends a session as kill -9 does, for the bucket: what comes later does not arrive."""
    fault, gcs.fault = gcs.fault, lambda request: 403
    opened.finish()
    gcs.fault = fault


def forget_lease(gcs: FakeGcs) -> None:
    """As if the dead learner's lease had been silent for long enough."""
    name = f"{URL.path}/{lease.NAME}"
    gcs.put("runs", name, json.dumps({**json.loads(gcs.content("runs", name)), "released": True}).encode())


def test_a_checkpoint_is_there_as_a_whole_and_its_manifest_comes_last(machine: Make, gcs: FakeGcs) -> None:
    here = machine("a")
    opened = here.open()
    order = gcs.recorded("write")
    here.write(10, "s1", "s2", frozen=[ONE])
    (here.path / "metrics.jsonl").write_text("{}\n")
    (here.path / "league.jsonl").write_text("{}\n")
    (here.path / "logs").mkdir()
    (here.path / "logs" / "worker-0.log").write_text("hello")
    (here.path / "learner.json").write_text("not mirrored")
    opened.uploads.upload(10)
    assert names(gcs) == {
        lease.NAME,
        "metrics.jsonl",
        "league.jsonl",
        "logs/worker-0.log",
        _MANIFEST,
        "checkpoints/steps/000000000010/params/data",
        "checkpoints/segments/s1/rows",
        "checkpoints/segments/s2/rows",
        player_file(ONE),
    }
    sent = [name.removeprefix("team/one/") for name in order]
    assert sent[-1] == _MANIFEST and len(sent) == 8
    assert sent.index("checkpoints/segments/s1/rows") < sent.index(player_file(ONE))
    here.write(20, "s2", "s3", frozen=[ONE, TWO])
    del order[:]
    opened.uploads.upload(20)
    assert sorted(name.removeprefix("team/one/checkpoints/") for name in order) == [
        f"frozen/{TWO}/params",
        "segments/s3/rows",
        "steps/000000000020/manifest.json",
        "steps/000000000020/params/data",
    ]


def test_what_is_not_kept_or_needed_is_deleted_there_too(here: Machine, gcs: FakeGcs) -> None:
    opened = here.open(keep=2)
    for step, segment, players in ((10, "s1", [TWO]), (20, "s2", [ONE]), (30, "s2", []), (40, "s4", [])):
        here.upload(step, segment, for_good=step == 20, frozen=players)
        here.prune(2, step)
        opened.uploads.prune(step)
    assert here.steps == steps(gcs) == [20, 30, 40]
    assert {name.split("/")[2] for name in names(gcs) if "segments" in name} == {"s2", "s4"}
    assert player_files.names(here.path / "checkpoints") == [ONE]
    assert [name for name in names(gcs) if "frozen" in name] == [player_file(ONE)]


def test_a_lost_machine_s_run_goes_on_elsewhere(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    opened = here.open()
    here.write(10, "s1", frozen=[ONE])
    here.write(20, "s1", "s2", frozen=[TWO])
    (here.path / "config.json").write_text("{}")
    opened.uploads.upload(10)
    opened.uploads.upload(20)
    kill(gcs, opened)
    forget_lease(gcs)
    again = there.open()
    assert there.steps == [20]  # the older one is fetched only where this one is damaged
    assert (there.path / "checkpoints/segments/s1/rows").read_text() == "rows of s1"
    assert (there.path / "config.json").read_text() == "{}"
    _, found, _ = saved_files.find(there.path / "checkpoints", "last")
    assert player_files.usable(there.path / "checkpoints", found.frozen) == (found.frozen, [])
    assert player_files.names(there.path / "checkpoints") == [TWO]  # only the players of the newest checkpoint
    assert steps(gcs) == [10, 20]
    sent = gcs.recorded("write")
    there.upload(30, "s2", frozen=[TWO])
    assert not [name for name in sent if "frozen" in name]
    again.uploads.prune(30)
    assert steps(gcs) == [10, 20, 30]


def test_of_several_hosts_their_common_checkpoint_is_fetched(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    here.run([10, 20], "a")
    there.open(step=10)
    assert there.steps == [10] and (there.path / "checkpoints/segments/a/rows").exists()
    assert steps(gcs) == [10, 20]  # the later one goes once another of its update is there


@pytest.mark.parametrize("step", [-1, 20])
def test_a_host_without_the_common_checkpoint_begins_with_none(here: Machine, there: Machine, step: int) -> None:
    here.run([10], "a")
    there.open(step=step)
    assert there.steps == []


def test_whole_files_of_the_local_copy_are_not_fetched_again(machine: Make, gcs: FakeGcs) -> None:
    here = machine("a")
    here.run([10], "s1", "s2", frozen=[ONE, TWO])
    machine("b").open().finish()  # so that the copy is not the newest one
    whole = {"checkpoints/segments/s2/rows": "rows of s2", player_file(ONE): f"params of {ONE}"}
    for name in whole:
        (here.path / name).write_text("damaged")
    fetched = gcs.recorded("read")
    here.open()
    again = {name.removeprefix(f"{URL.path}/") for name in fetched if "rows" in name or "params" in name}
    assert again == whole.keys()
    assert {name: (here.path / name).read_text() for name in whole} == whole


def test_the_bucket_is_the_truth_for_a_copy_that_is_behind(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    opened = here.open()
    here.upload(10)
    here.write(20, content="never uploaded")
    (here.path / "tensorboard").mkdir()
    (here.path / "tensorboard" / "events").write_text("")
    kill(gcs, opened)
    forget_lease(gcs)
    again = there.open()
    there.write(20, content="of another machine")
    there.write(30)
    again.uploads.upload(20)
    again.uploads.upload(30)
    again.finish()
    here.open()
    assert here.steps == [10, 30]
    assert not (here.path / "tensorboard" / "events").exists()
    assert any("20" in text and "deleted" in text for text in here.said)


def test_a_copy_whose_fetch_broke_off_is_still_behind(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    opened = here.open()
    here.upload(10)
    here.write(40, content="never uploaded")
    (here.path / "metrics.jsonl").write_text("older")
    kill(gcs, opened)
    forget_lease(gcs)
    again = there.open()
    (there.path / "metrics.jsonl").write_text("newer, of another machine")
    there.upload(20)
    again.finish()
    with gcs.failing(403, kind="list"), pytest.raises(errors.BucketError):
        here.open()
    here.opened[-1].finish()
    here.open()
    assert here.steps == steps(gcs) == [10, 20]
    assert (here.path / "metrics.jsonl").read_text() == "newer, of another machine"


def test_a_copy_from_a_backup_is_behind_though_it_was_the_last_one(
    here: Machine, gcs: FakeGcs, tmp_path: pathlib.Path
) -> None:
    for step in (10, 20):
        opened = here.open()
        here.write(step - 1, best=True)
        (here.path / "metrics.jsonl").write_text(f"rows until {step}")
        here.upload(step)
        opened.finish()
        if step == 10:
            shutil.copytree(here.path, tmp_path / "backup")
    shutil.rmtree(here.path)
    shutil.copytree(tmp_path / "backup", here.path)
    here.open()
    assert 20 in here.steps and (here.path / "metrics.jsonl").read_text() == "rows until 20"
    assert saved_files.finished(here.path / "checkpoints/best")[-1] == 19
    assert gcs.content("runs", f"{URL.path}/metrics.jsonl") == b"rows until 20"


def test_a_local_checkpoint_stays_though_the_bucket_has_a_later_damaged_one(here: Machine, gcs: FakeGcs) -> None:
    here.run([10, 30])
    opened = here.open()
    here.write(20)  # from the first one, because the second is damaged
    durable.remove(here.path / "checkpoints/steps/000000000030")
    kill(gcs, opened)
    gcs.put("runs", f"{URL.path}/checkpoints/steps/000000000030/params/data", b"damaged")
    here.open()
    assert 20 in here.steps and 20 in steps(gcs) and 30 not in here.steps


def test_an_emptied_bucket_leaves_nothing_of_the_run_in_its_copy(here: Machine, gcs: FakeGcs) -> None:
    here.run([10], "000000000010-0123abcd-0000", frozen=["main-0123456789ab"])
    for name in gcs.names("runs"):
        gcs.remove("runs", name)
    opened = mirrors.Mirror(URL, SETTINGS, sections.CheckpointConfig(), report=here.said.append)
    here.opened.append(opened)
    opened.fill()  # for a new run, which takes no directory with files of another one
    assert not list((here.path / "checkpoints").glob("*/*"))


def test_what_only_the_last_writer_s_copy_has_is_uploaded_at_the_next_start(here: Machine, gcs: FakeGcs) -> None:
    opened = here.open()
    here.upload(10)
    writing = r"writing gs://runs/team/one/checkpoints/steps/000000000020"
    with gcs.failing(503, kind="write"), pytest.raises(errors.BucketError, match=writing):
        here.upload(20)
    kill(gcs, opened)
    assert steps(gcs) == [10]
    here.open()
    assert here.steps == [10, 20] and steps(gcs) == [10, 20]


def test_an_upload_that_broke_off_is_no_checkpoint_and_is_cleaned_up(
    here: Machine, there: Machine, gcs: FakeGcs
) -> None:
    opened = here.open()
    here.upload(10, "s1", frozen=[ONE])
    with gcs.failing(403, part="20/manifest.json"), pytest.raises(errors.BucketError, match="objectUser"):
        here.upload(20, "s1", "s2", frozen=[ONE, TWO])
    assert {"checkpoints/segments/s2/rows", player_file(TWO)} <= names(gcs)
    kill(gcs, opened)
    forget_lease(gcs)
    there.open()
    assert there.steps == [10]
    assert not [name for name in names(gcs) if "s2" in name or "000000000020" in name or TWO in name]
    assert player_file(ONE) in names(gcs)


def test_after_a_failed_upload_the_next_one_sends_only_what_is_missing(here: Machine, gcs: FakeGcs) -> None:
    here.open()
    with gcs.failing(403, part="steps"), pytest.raises(errors.BucketError):
        here.upload(10, "s1", "s2")
    sent = gcs.recorded("write")
    here.upload(20, "s1", "s2")
    assert sent and not [name for name in sent if "segments" in name]
    assert steps(gcs) == [20]


@pytest.mark.parametrize(
    ("failing", "there", "segments", "name"),
    [
        (_MANIFEST, [], "", "data"),  # it is never half the old one
        ("segments/2", [10], "12", "data"),  # a state in haste stays until its replay is there
        ("params/other", [10], "1", "other"),  # and until the large files are
    ],
)
def test_a_checkpoint_written_anew_replaces_the_old_one_once_it_is_there(
    here: Machine, gcs: FakeGcs, failing: str, there: list[int], segments: str, name: str
) -> None:
    opened = here.open()
    here.upload(10)
    with gcs.failing(403, kind="write", part=failing), pytest.raises(errors.BucketError):
        here.upload(10, *segments, content=" made anew", name=name)
    assert steps(gcs) == there
    opened.uploads.upload(10)
    opened.uploads.prune(10)
    assert steps(gcs) == [10]
    params = f"{URL.path}/checkpoints/steps/000000000010/params/"
    assert gcs.names("runs", params) == [f"{params}{name}"]
    assert gcs.content("runs", f"{params}{name}").endswith(b"made anew")


@pytest.mark.parametrize("name", ["best/model.pt", "epoch-3/model.pt", "model.pt", "steps/last/model.pt"])
def test_checkpoints_of_something_else_are_refused_and_stay(machine: Make, gcs: FakeGcs, name: str) -> None:
    gcs.put("runs", f"{URL.path}/checkpoints/{name}", b"weights")
    with pytest.raises(errors.ResumeError, match=f"checkpoints/{name}"):
        machine("a").open()
    assert gcs.content("runs", f"{URL.path}/checkpoints/{name}") == b"weights"


@pytest.mark.parametrize("step", [15, 20])
@pytest.mark.parametrize("name", ["params/data", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one_and_may_be_made_anew(
    here: Machine, there: Machine, gcs: FakeGcs, name: str, step: int
) -> None:
    here.run([10, 20])
    gcs.put("runs", f"{URL.path}/checkpoints/steps/000000000020/{name}", b"params of 2?")
    again = there.open()
    assert there.steps == [10]
    assert any("20" in text and "is damaged" in text for text in there.said)
    there.upload(step, content=" made anew")
    again.uploads.prune(step)
    assert steps(gcs) == [10, step]


@pytest.mark.parametrize(("saved", "common"), [([10], None), ([10, 20], 10)], ids=["only", "common"])
def test_where_no_checkpoint_can_be_used_nothing_is_begun_anew_or_deleted(
    here: Machine, there: Machine, gcs: FakeGcs, saved: list[int], common: int | None
) -> None:
    here.run(saved, "s1")
    key = f"{URL.path}/checkpoints/steps/000000000010/params/data"
    gcs.put("runs", key, b"something else") if common else gcs.remove("runs", key)
    before = names(gcs)
    told = "^checkpoint 10 in {} cannot be used" if common else "^none of the checkpoints in {} .*another --run_dir"
    with pytest.raises(errors.CheckpointError, match=told.format("gs://runs/team/one")):
        there.open(step=common)
    assert names(gcs) == before


def test_a_checkpoint_whose_replay_is_gone_is_fetched_without_it(
    here: Machine, there: Machine, gcs: FakeGcs, printed: list[str]
) -> None:
    here.run([10], "s1")
    gcs.remove("runs", f"{URL.path}/checkpoints/segments/s1/rows")
    there.open()
    path, found, _ = saved_files.find(there.path / "checkpoints", "last", "state")
    assert (path.name, found.has_replay) == ("000000000010", True)
    assert any("checkpoint 10 in gs://runs/team/one " in text and "s1" in text for text in printed)
    with pytest.raises(errors.CheckpointError, match="s1"):
        saved_files.check_segments(there.path / "checkpoints", found.segments, content=False)


def test_a_manifest_that_names_files_elsewhere_is_refused(machine: Make, gcs: FakeGcs) -> None:
    here = machine("a")
    here.run([10])
    directory = here.root / "forged"
    directory.mkdir()
    files = {"../../../../x": durable.Checksum(1, "0")}
    manifest.write(directory, manifest.Manifest(20, 0.0, 2, False, {}, {}, files, {}, False))
    key = f"{URL.path}/checkpoints/steps/000000000020/manifest.json"
    gcs.put("runs", key, (directory / "manifest.json").read_bytes())
    other = machine("b")
    other.open()
    assert other.steps == [10]
    assert any("it names '../../../../x'" in text for text in other.said)


def test_the_best_checkpoint_replaces_the_one_before(machine: Make, gcs: FakeGcs) -> None:
    here = machine("a")
    opened = here.open()
    for step in (30, 20):  # the second one after a resume that gave up the past of the first
        for other in saved_files.finished(here.path / "checkpoints/best"):
            durable.remove(here.path / f"checkpoints/best/{other:012d}")
        here.write(step, best=True)
        here.upload(step)
        opened.uploads.prune(step)
    assert {name.split("/")[2] for name in names(gcs) if name.startswith("checkpoints/best")} == {"000000000020"}
    opened.finish()
    elsewhere = machine("b")
    elsewhere.open()
    assert saved_files.finished(elsewhere.path / "checkpoints/best") == [20]


def test_the_best_checkpoint_is_there_before_the_counters_that_know_its_return(here: Machine, gcs: FakeGcs) -> None:
    here.open()
    here.write(9, best=True)
    order = gcs.recorded("write")
    here.upload(10)
    written = [name.split("/")[-3] for name in order if name.endswith(manifest.NAME)]
    assert written == [saved_files.BEST, saved_files.STEPS]


@pytest.mark.parametrize("file", [manifest.NAME, "params/data"])
@pytest.mark.parametrize("best", [True, False])
def test_a_damaged_local_checkpoint_is_reported_once_and_the_others_are_uploaded(
    here: Machine, gcs: FakeGcs, best: bool, file: str
) -> None:
    here.open()
    here.write(9, best=best, for_good=True)
    damaged = here.path / "checkpoints" / ("best" if best else "steps") / f"{9:012d}"
    (damaged / file).unlink()
    if file == manifest.NAME:
        (damaged / file).write_text("not a manifest")
    for step in (10, 20):
        here.upload(step)
    assert steps(gcs) == [10, 20] and not [name for name in names(gcs) if f"{9:012d}" in name]
    told = [text for text in here.said if text.startswith(f"{damaged} cannot be uploaded: ")]
    assert len(told) == (best or file != manifest.NAME)  # without its manifest, no one knows that it is permanent


def test_a_refused_listing_is_not_a_new_run(machine: Make, gcs: FakeGcs) -> None:
    with (
        gcs.failing(403, kind="list"),
        pytest.raises(errors.BucketError, match=r"listing gs://runs/team/one .*lease\.json"),
    ):
        machine("a").open()


def test_a_deletion_that_fails_is_told_and_done_the_next_time(here: Machine, gcs: FakeGcs) -> None:
    opened = here.open(keep=1)
    for step in (10, 20):
        here.upload(step)
    with gcs.failing(403, kind="delete"):
        opened.uploads.prune(20)
    assert steps(gcs) == [10, 20] and "gs://runs/team/one" in here.said[-1] and "deleting" in here.said[-1]
    opened.uploads.prune(20)
    assert steps(gcs) == [20]


def test_who_waits_is_told_how_far_an_upload_is(here: Machine, gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "_PROGRESS_SECONDS", 0.0)
    opened = here.open()
    here.upload(10)
    assert not any("uploading" in text or "is in" in text for text in here.said)
    opened.uploads.report_progress()
    here.upload(20, "s1")
    progress = [text for text in here.said if text.startswith("uploading")]
    assert progress[-1] == "uploading gs://runs/team/one/checkpoints/steps/000000000020: 0.0 of 0.0 MB"
    assert len(progress) == 2 and re.match("checkpoint 20 .*gs://runs/team/one$", here.said[-1])


def test_changed_files_alone_are_sent_again(here: Machine, gcs: FakeGcs) -> None:
    opened = here.open()
    (here.path / "metrics.jsonl").write_text("1\n")
    (here.path / "spec.json").write_text("{}")
    opened.uploads.upload(None)
    here.write(10, best=True)
    opened.uploads.upload(None)
    before = gcs.requests["write"]
    (here.path / "metrics.jsonl").write_text("1\n2\n")
    opened.finish()
    assert gcs.content("runs", f"{URL.path}/metrics.jsonl") == b"1\n2\n"
    assert gcs.requests["write"] - before == 2  # metrics, and the lease that is given back


def test_another_learner_s_takeover_is_told_and_nothing_is_written_any_more(
    here: Machine, gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.Lease, "renew_seconds", 0.05)
    opened = here.open()
    name = f"{URL.path}/{lease.NAME}"
    other = {**json.loads(gcs.content("runs", name)), "copy": "other", "process": "other", "host": "elsewhere"}
    gcs.put("runs", name, json.dumps(other).encode())
    assert here.lost.wait(10)
    assert "gs://runs/team/one " in here.said[-1] and "elsewhere" in here.said[-1]
    here.write(10)
    before = names(gcs)
    with pytest.raises(errors.LeaseLost):
        opened.uploads.upload(10)
    assert names(gcs) == before


def test_a_learner_that_stood_still_writes_nothing_over_its_successor(
    here: Machine, there: Machine, gcs: FakeGcs
) -> None:
    opened = here.open()
    (here.path / "metrics.jsonl").write_text("older")
    forget_lease(gcs)
    there.open()
    (there.path / "metrics.jsonl").write_text("newer")
    there.opened[-1].finish()
    opened.uploads._lease._renewed -= SETTINGS.lease_seconds  # the time that passed meanwhile
    with pytest.raises(errors.LeaseLost):
        opened.uploads.send_files()
    assert gcs.content("runs", f"{URL.path}/metrics.jsonl") == b"newer"


def _half_checkpoints(gcs: FakeGcs) -> list[int]:
    """Returns the checkpoints in the bucket that lack a file, or have another one's."""
    half, found = [], names(gcs)
    for step in steps(gcs):
        prefix = remote.step_prefix(step)
        known = manifest.parse(gcs.content("runs", f"{URL.path}/{prefix}/{manifest.NAME}"), step)
        own = {f"{prefix}/{name}": file.sha256 for name, file in known.files.items()}
        damaged = [
            key
            for key, digest in own.items()
            if key in found and hashlib.sha256(gcs.content("runs", f"{URL.path}/{key}")).hexdigest() != digest
        ]
        if damaged or remote.all_keys(prefix, known) - found:
            half.append(step)
    return half


def _fail_at(gcs: FakeGcs, place: int, fault: int) -> list[str]:
    """Has the object of a request fail from then on, the lease aside; returns its name, once it has failed."""
    asked, failing = itertools.count(), list[str]()

    def answer(request: fake_gcs.Request) -> int | None:
        if not request.name.endswith(lease.NAME) and next(asked) == place:
            failing.append(request.name)
        return fault if request.name in failing else None

    gcs.fault = answer
    return failing


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [412, 429, 503, fake_gcs.CUT, fake_gcs.UNANSWERED])
def test_a_request_that_fails_for_good_loses_nothing_and_leaves_nothing_half(
    fault: int, machine: Make, gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(bucket, "_num_retries", lambda seconds: 2)
    here = machine("a")
    opened = here.open(keep=2)
    for step in itertools.count(1):
        here.write(step, f"s{step // 2}")
        (here.path / "metrics.jsonl").write_text(f"{step}")
        failing = _fail_at(gcs, step - 1, fault)
        try:
            opened.uploads.upload(step)
            opened.uploads.prune(step)
        except errors.BucketError as error:
            assert failing and failing[0] in str(error)
        gcs.fault = lambda request: None
        assert not _half_checkpoints(gcs)
        opened.uploads.upload(step)
        assert not _half_checkpoints(gcs) and step in steps(gcs)
        opened.uploads.prune(step)
        if not failing:
            break
    assert step > 5 and steps(gcs) == [step - 1, step]
    opened.finish()

    elsewhere = machine("b")
    for place in itertools.count():
        shutil.rmtree(elsewhere.path, ignore_errors=True)
        failing = _fail_at(gcs, place, fault)
        with contextlib.suppress(errors.BucketError):
            elsewhere.open()
        gcs.fault = lambda request: None
        assert all(row["ok"] for row in saved_files.list_steps(elsewhere.path / "checkpoints", content=True))
        elsewhere.opened[-1].finish()
        if not failing:
            break
        elsewhere.open().finish()
        assert elsewhere.steps == [step]
        assert (elsewhere.path / "metrics.jsonl").read_text() == f"{step}"
    assert place > 5 and not _half_checkpoints(gcs)


def _params(step: int) -> dict[str, Any]:
    return {"params": {"w": np.full(3, step, np.float32)}, "rest": {"n": np.int32(step)}}


@contextlib.contextmanager
def saving(opened: mirrors.Mirror, **kept: int) -> Iterator[tuple[checkpointers.Checkpointer, list[int], list[str]]]:
    """Yields what writes checkpoints into the copy and the bucket, the durable ones, and the failures."""
    done, failed = list[int](), list[str]()
    saver = checkpointers.Checkpointer(
        opened.path / "checkpoints",
        sections.CheckpointConfig(**kept),
        on_durable=done.append,
        on_error=failed.append,
        uploader=opened.uploads,
    )
    yield saver, done, failed
    saver.close()


def test_a_save_is_durable_when_it_is_in_the_bucket(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    opened, with_best = here.open(keep=1), trees.copy(_params(3)["params"])
    with saving(opened, keep=1) as (saver, done, failed):
        saver.save(1, trees.copy(_params(1)), {}, None)
        saver.wait()
        assert done == [1] == steps(gcs)
        with gcs.failing(403, kind="write"):
            saver.save_best(2, {"params": with_best}, {})
            saver.save(2, trees.copy(_params(2)), {}, None)
            saver.wait()
        assert done == [1] == steps(gcs)
        assert "checkpoint 2 " in failed[0] and "writing gs://runs/team/one/" in failed[0]
        saver.save(3, trees.copy(_params(3)), {}, None)
        saver.wait()
        assert done == [1, 3] and len(failed) == 1
        assert steps(gcs) == [3]
        assert [name for name in names(gcs) if name.startswith("checkpoints/best/000000000002/")]
    opened.finish()
    shutil.rmtree(here.path)
    there.open()
    params, _ = saved_files.restore_params(there.path / "checkpoints", "last", with_best)
    assert params["w"].tolist() == [3, 3, 3]


def test_a_state_saved_in_haste_is_durable_when_it_is_in_the_bucket(here: Machine, gcs: FakeGcs) -> None:
    with saving(here.open()) as (saver, done, failed):
        saver.save_state(1, trees.copy(_params(1)), {})
        assert done == [1] == steps(gcs)
        with gcs.failing(403, kind="write"):
            saver.save_state(2, trees.copy(_params(2)), {})
        assert done == [1] == steps(gcs)
        assert "checkpoint 2 " in failed[0] and "writing gs://runs/team/one/" in failed[0]


# ------------------------------------------------------------------------------------ frozen players


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_frozen_player_that_the_bucket_lost_costs_neither_checkpoint_nor_replay(
    here: Machine, there: Machine, gcs: FakeGcs, printed: list[str], is_damaged: bool
) -> None:
    here.run([10], "s1", frozen=[ONE, TWO])
    key = f"{URL.path}/{player_file(ONE)}"
    gcs.put("runs", key, b"params of another") if is_damaged else gcs.remove("runs", key)
    there.open()
    directory = there.path / "checkpoints"
    found = saved_files.verified(directory, saved_files.step_directory(directory, 10), scope="replay")
    whole, problems = player_files.usable(directory, found.frozen)
    assert list(whole) == [TWO] and len(problems) == 1 and ONE in problems[0]
    (told,) = [text for text in printed if ONE in text]
    reason = "is damaged: its checksum does not fit" if is_damaged else "is missing"
    assert f"{URL} cannot be fetched: {player_file(ONE)} {reason}" in told
    there.upload(20, "s1", frozen=[TWO])
    assert steps(gcs) == [10, 20]


def test_a_checkpoint_ahead_of_the_bucket_is_uploaded_without_a_lost_player(
    here: Machine, gcs: FakeGcs, printed: list[str]
) -> None:
    opened = here.open()
    here.upload(10)
    here.write(20, frozen=[ONE, TWO])
    kill(gcs, opened)
    (here.path / player_file(ONE)).unlink()
    here.open()
    assert steps(gcs) == [10, 20] and player_file(TWO) in names(gcs) and player_file(ONE) not in names(gcs)
    fetched, lost = (text for text in printed if ONE in text)
    assert f"{URL} cannot be fetched: {player_file(ONE)} is missing" in fetched
    assert f"{player_file(ONE)} is missing here and in {URL}" in lost


def test_a_frozen_player_that_is_replaced_after_a_resume_is_sent_whole(
    here: Machine, there: Machine, gcs: FakeGcs
) -> None:
    opened = here.open()
    here.upload(10)
    here.upload(20, frozen=[ONE])
    # A deterministic run that goes on from 10 freezes a player of the same name.
    durable.remove(here.path / "checkpoints/frozen" / ONE)
    here.upload(15, frozen=[ONE], content=" made anew")
    opened.uploads.prune(15)
    assert steps(gcs) == [10, 15]
    assert gcs.content("runs", f"{URL.path}/{player_file(ONE)}").endswith(b"made anew")
    opened.finish()
    there.open()
    _, found, _ = saved_files.find(there.path / "checkpoints", "last")
    assert (found.step, list(found.frozen)) == (15, [ONE])


def test_a_frozen_player_of_a_save_is_durable_in_the_bucket(here: Machine, there: Machine, gcs: FakeGcs) -> None:
    opened = here.open(keep=1)
    with saving(opened, keep=1) as (saver, done, failed):
        saver.freeze(ONE, 1, trees.copy(_params(1)["params"]), {})
        saver.save(1, trees.copy(_params(1)), {}, None, [ONE])
        saver.freeze(TWO, 2, trees.copy(_params(2)["params"]), {})
        saver.save(2, trees.copy(_params(2)), {}, None, [TWO])
    assert not failed
    assert done == [1, 2] and steps(gcs) == [2]
    assert {name.split("/")[2] for name in names(gcs) if "frozen" in name} == {TWO}
    opened.finish()
    there.open()
    found = player_files.read(there.path / "checkpoints", TWO, trees.copy(_params(0)["params"]))
    assert (found.step, found.params["w"].tolist()) == (2, [2, 2, 2])
