"""gcp/*.sh without Google Cloud: flags, the plan, questions, dry runs; a gcloud that is called fails the test."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import deploy_files
import pytest

from seedzero.cli import gcp
from seedzero.interfaces.launch import google_cloud

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "gcp"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh") if os.access(path, os.X_OK))
ENTRIES = {
    "train_atari.sh": ["Pong"],
    "train_atari_tpu_vm.sh": ["Pong", "--platform=tpu-vm"],
    "train_cartpole.sh": ["cartpole"],
    "train_dmlab.sh": ["--env=dmlab:explore_goal_locations_small"],
    "train_football.sh": ["--env=football:academy_empty_goal"],
}
"""Scripts that run train.sh with these words."""
BODIES = [name for name in SCRIPTS if name not in ENTRIES]
WORDS = {"train.sh": ["Pong"]}
"""What a script needs."""
VERTEX = ["train_atari.sh", "train_cartpole.sh", "train_dmlab.sh", "train_football.sh"]
NO_LOCAL_WORKERS = ["train_dmlab.sh", "train_football.sh"]
"""Scripts whose learner's image cannot make the environments."""
PROJECT = "--project=my-project"
ACCELERATORS = ("cpu", "t4", "l4", "a100", "tpu-v5e-1", "tpu-v5e-4", "tpu-v5e-8")
TPUS = ("v5litepod-1", "v5litepod-4", "v5litepod-8", "v6e-1", "v6e-4", "v6e-8")


TPU_VM = "train_atari_tpu_vm.sh"
EIGHT = ("--", "--training.num_devices=8")
NEEDED = r"device\(s\), and these settings need"
TPU_FLAGS = "--privileged --user=root --env=JAX_PLATFORMS=tpu,cpu"


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    """A PATH on which gcloud and docker only write down that they were called, in a folder beside copied scripts.

    No seedzero is there, nor .venv beside the copy: a program that starts to check settings takes most of the time.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copytree(FOLDER, _copied(str(tools)))
    for name in ("gcloud", "docker"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{tmp_path}/calls"\nexit 1\n')
        (tools / name).chmod(0o755)
    rest = [part for part in os.environ["PATH"].split(os.pathsep) if not (pathlib.Path(part) / "seedzero").exists()]
    return os.pathsep.join([str(tools), *rest])


def _copied(path: str) -> pathlib.Path:
    """Returns the folder of the scripts that a PATH of the fixture belongs to."""
    return pathlib.Path(path.split(os.pathsep)[0]).parent / "clone" / FOLDER.name


def _run(script: str, *args: str, path: str, folder: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script that must call neither gcloud nor docker."""
    calls = pathlib.Path(path.split(os.pathsep)[0]).parent / "calls"
    done = subprocess.run(
        ["bash", str((folder or _copied(path)) / script), *args], capture_output=True, text=True, check=False, cwd="/",
        stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert not calls.exists(), calls.read_text()
    return done


def _dry(script: str, *args: str, path: str, folder: pathlib.Path | None = None) -> str:
    done = _run(script, "--dry_run", PROJECT, *args, path=path, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _answered(script: str, *args: str, path: str, answers: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs a script with a gcloud that answers; returns what gcloud was called with, too.

    Args:
      answers: branches of a `case` in sh over gcloud's words.
    """
    tools = pathlib.Path(path.split(os.pathsep)[0])
    calls = tools.parent / "answered"
    # Like gcloud it reads the secret; the script would end by SIGPIPE if the pipe closed before that.
    reads = 'case "$*" in *--data-file=-*) cat > /dev/null ;; esac'
    (tools / "gcloud").write_text(f'#!/bin/sh\necho "$*" >> "{calls}"\n{reads}\ncase "$*" in\n{answers}\nesac\n')
    done = subprocess.run(
        ["bash", str(_copied(path) / script), PROJECT, "--yes", *args], capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path, "POLL_SECONDS": "0"}, timeout=600,
    )  # fmt: skip
    return done, calls.read_text().splitlines()


def _body(script: str, name: str) -> str:
    """Returns a file that a dry run's script would write."""
    found = re.search(rf"^cat > {re.escape(name)} <<'BODY'\n(.*?)\nBODY$", script, re.DOTALL | re.MULTILINE)
    assert found, script
    return found[1]


def _pools(script: str) -> list[Any]:
    return list(json.loads(_body(script, "job.json"))["workerPoolSpecs"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> gcp.Files:
    """A secret, as gcp/setup.sh makes it and the entrypoint writes it down."""
    script = f'script=test; . "{FOLDER}/lib.sh"; set -euo pipefail; new_secret'
    text = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    return gcp.write_files(tmp_path_factory.mktemp("secret"), google_cloud.Secret(**json.loads(text)))


def _check_entrypoint(args: Sequence[str], files: gcp.Files) -> list[str]:
    """Checks the arguments of seedzero.cli.gcp and the command lines of `seedzero` that it makes; returns its own."""
    own, words = gcp.split(args)
    gcp.parse.read("gcp", gcp.COMMAND, own)
    if words[0] == "train":
        deploy_files.check_command(gcp.train_command(words, files, 2222))
    else:
        deploy_files.check_command(gcp.worker_command(words, files, "learner:2222"))
    return words


def test_the_scripts_are_those_that_are_documented() -> None:
    assert set(SCRIPTS) == {"setup.sh", "status.sh", "stop.sh", "train.sh", *ENTRIES}


@pytest.mark.parametrize("script", ENTRIES)
def test_an_entry_is_train_sh_with_words_of_its_own(script: str, path: str) -> None:
    given = ["--run=r", "--workers=4", "--spot", "--", "--seed=1"]
    one, other = _dry(script, *given, path=path), _dry("train.sh", *ENTRIES[script], *given, path=path)
    tag = r":20\d{12}\b"  # of images: the second, where there is no commit
    assert re.sub(tag, ":TAG", one) == re.sub(tag, ":TAG", other) and re.search(tag, one)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "no project; give --project=ID"),
        (["--project=PROJECT"], "--project=PROJECT: "),
        (["--project=short"], "--project=short: "),
        (["--project=ends-with-"], "--project=ends-with-: "),
        (["--project=1-begins"], "--project=1-begins: "),
    ],
)
def test_a_dry_run_without_a_project_names_what_is_missing(
    words: list[str], named: str, tmp_path: pathlib.Path
) -> None:
    for tool in ("bash", "basename", "dirname", "awk", "cut", "date", "tr", "sed", "cat"):  # and no gcloud
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    command = ["bash", str(FOLDER / "train_atari.sh"), "--dry_run", *words]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=environment)
    assert (done.returncode, done.stdout) == (2, "") and named in done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_explains_itself(script: str, path: str) -> None:
    done = _run(script, "--help", path=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: gcp/{script} ")
    assert {"--project=ID", "--region=NAME", "--yes", "--dry_run"} <= set(done.stdout.split())
    declared = re.findall(r"^\s*(?:flag|switch) (\w+) ", (FOLDER / script).read_text(), re.MULTILINE)
    assert not [name for name in declared if f"  --{name}" not in done.stdout]


@pytest.mark.thorough
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_examples_of_the_help_are_taken(script: str, path: str) -> None:
    text = _run(script, "--help", path=path).stdout
    examples = re.findall(rf"^  gcp/{re.escape(script)} ?([^#\n]*)", text, re.MULTILINE)
    assert examples
    for example in examples:
        _dry(script, *example.split(), path=path)


@pytest.mark.parametrize("script", BODIES)
def test_an_unknown_flag_is_refused_with_the_nearest(script: str, path: str) -> None:
    done = _run(script, "--projct=p", path=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(f"{script}: error: .*--projct=p; .*--project", done.stderr)
    far = _run(script, PROJECT, "--seed=3", path=path)
    assert far.returncode == 2 and "--seed=3; " in far.stderr
    assert (" seedzero train " in far.stderr) == (script == "train.sh")


@pytest.mark.parametrize(
    ("script", "args", "message"),
    [
        ("train_atari.sh", ["--accelerator=l44"], "--accelerator=l44: .* l4.*: cpu t4 l4"),
        ("train_atari.sh", ["--workers=two"], "--workers=two: "),
        ("train_atari.sh", ["--max_hours=0"], "--max_hours=0: .* 1"),
        ("train_atari.sh", ["--run=Pong_1"], "--run=Pong_1: "),
        ("train_atari.sh", ["--run=pong_1"], "--run=pong_1: "),
        ("train_atari.sh", ["--run=" + "p" * 41], "--run=p{41}: .* 40"),
        ("train_atari.sh", ["--game=../x"], "--game=../x: .* Pong"),
        ("train_atari.sh", ["--env=gym:Pong"], "--env=gym:Pong: expected atari:NAME"),
        ("train_dmlab.sh", ["--env=dmlab:"], "--env=dmlab:: expected .* dmlab:LEVEL"),
        ("train.sh", ["--spot"], "no game.* Pong"),
        ("train.sh", ["--env=python:my_env:MyEnv"], "--image=us-central1-docker.pkg.dev/my-project/seedzero/NAME:TAG"),
        ("train.sh", ["--env=python:my_env:MyEnv", "--image=my-env"], "--image=my-env: expected us-central1-docker"),
        ("train.sh", ["Pong", "Qbert"], "'Qbert'"),
        ("train.sh", ["Pong", "--platform=gce"], "--platform=gce: .*: vertex tpu-vm"),
        ("train.sh", ["Pong", "--zone=z"], "--zone .*--platform=vertex"),
        (TPU_VM, ["--max_hours=3"], "--max_hours .*--platform=tpu-vm"),
        ("train_dmlab.sh", ["--workers=0"], "--workers=0: .* 1"),
        ("train_atari.sh", ["--run"], "--run=NAME"),
        ("train_atari.sh", ["--spot=yes"], "--spot "),
        ("train_atari.sh", ["pong"], "'pong'"),
        ("train_atari.sh", ["--", "--seed=1\n2"], "control character"),
        (TPU_VM, ["--accelerator=v6e-16"], "--accelerator=v6e-16: .* v6e-1"),
        (TPU_VM, ["--provisioning=soon"], "--provisioning=soon: .*: queued now"),
        ("stop.sh", ["--", "--seed=1"], "--"),
        ("stop.sh", ["--run=x", "--delete_storage"], "--delete_storage"),
        # a slice that does not fit the learners
        (TPU_VM, ["--num_learners=2"], r"--num_learners=2: did you mean 1\? choose one of: 1 4 8 16"),
        (TPU_VM, ["--num_learners=4", "--accelerator=v6e-8"], r"--accelerator=v6e-8: did you mean v6e-16\?"),
        (
            TPU_VM,
            ["--num_learners=4", "--workers=6"],
            "--workers=6: each of 4 learners has as many workers as the others; give a ",
        ),
        (TPU_VM, ["--num_learners=4", *EIGHT], f"v5litepod-16 has 4 {NEEDED} 8"),
        # settings for more than the machine that is rented
        ("train_atari.sh", ["--", "--cluster.num_hosts=2"], "--cluster.num_hosts=2: one machine is rented"),
        ("train_atari.sh", ["--accelerator=tpu-v5e-4", *EIGHT], f"has 4 {NEEDED} 8"),
        ("train_dmlab.sh", ["--", "--training.num_devices", "2"], f"l4 has 1 {NEEDED} 2"),
        ("train_cartpole.sh", ["--", "--training.acting_devices=1"], f"cpu has 1 {NEEDED} 2"),
        (TPU_VM, ["--accelerator=v6e-4", "--", "--training.num_devices=5"], f"has 4 {NEEDED} 5"),
    ],
    ids=lambda value: value[0][:30] if isinstance(value, list) else None,
)
def test_a_wrong_value_is_named(script: str, args: list[str], message: str, path: str) -> None:
    done = _run(script, PROJECT, "--dry_run", *args, path=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(message, done.stderr)


@pytest.mark.parametrize("script", ["train.sh", "setup.sh"])
def test_without_a_terminal_nothing_is_spent_unless_yes_says_so(script: str, path: str) -> None:
    done = _run(script, PROJECT, *WORDS.get(script, []), path=path)
    assert done.returncode == 2
    assert "--yes" in done.stderr and "--dry_run" in done.stderr


def test_a_dry_run_s_script_makes_the_calls_that_it_shows(path: str, tmp_path: pathlib.Path) -> None:
    text = _dry("train_atari_tpu_vm.sh", "--run=r", "--build=none", "--", "--env=gym:it's a $x", path=path)
    recorder = tmp_path / "tools" / "gcloud"
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{tmp_path}/arguments"\n')
    subprocess.run(["bash"], input=text, text=True, check=True, cwd=tmp_path, env={**os.environ, "PATH": path})
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert any(word.endswith(f";seedzero-docker-flags={TPU_FLAGS}") for word in arguments)
    assert "--metadata-from-file=startup-script=" in "".join(arguments)
    assert (tmp_path / "learner.args").read_text().splitlines()[-1] == "--env=gym:it's a $x"


LISTINGS = r"""
*custom-jobs\ list*) printf '7\tJOB_STATE_RUNNING\tseedzero-x\tus-central1\tn1\n' ;;
*tpu-vm\ list*) printf 'seedzero-seedzero-x\tREADY\tseedzero-x\tus-central1-a\tv6e-1\n' ;;
*instance-groups\ managed\ list*) printf 'seedzero-x\tSTABLE\tseedzero-x\tus-central1-a\t2\n' ;;
"""


def test_a_run_whose_name_begins_as_resources_do_is_found(path: str) -> None:
    shown, _ = _answered("status.sh", path=path, answers=LISTINGS)
    runs = [line.split()[3] for line in shown.stdout.splitlines()[1:4]]
    assert runs == ["seedzero-x", "seedzero-x", "x"]
    refused, _ = _answered("train_cartpole.sh", "--run=seedzero-x", path=path, answers=LISTINGS)
    assert refused.returncode == 2 and "seedzero-x " in refused.stderr and "job" in refused.stderr


def test_a_listing_that_fails_keeps_nothing_else_running(path: str) -> None:
    answers = f"*queued-resources\\ list*) echo unreachable >&2; exit 1 ;;{LISTINGS}"
    shown, _ = _answered("status.sh", path=path, answers=answers)
    assert shown.returncode == 1 and "queued-tpu: " in shown.stderr
    assert len(shown.stdout.split("JOB_STATE_RUNNING")) == 2

    done, calls = _answered("stop.sh", "--delete_storage", path=path, answers=answers)
    assert done.returncode == 1 and "unreachable" in done.stderr and "storage" in done.stderr
    called = "\n".join(calls)
    assert "custom-jobs cancel 7" in called and "tpu-vm delete seedzero-seedzero-x" in called
    assert "storage" not in called

    done, _ = _answered("stop.sh", path=path, answers="*list*) exit 1 ;;")
    assert done.returncode == 1
    for kind in ("custom-job", "queued-tpu", "tpu-vm", "worker-group", "worker-template"):
        assert f"stop.sh: {kind}: gcloud's listing failed" in done.stderr
    assert "run gcp/stop.sh again" in done.stderr
    assert "nothing runs" not in done.stderr and "nothing is" not in done.stderr


def test_the_rule_for_a_slice_s_hosts_goes_with_the_last_tpu(path: str, tmp_path: pathlib.Path) -> None:
    delete = "compute firewall-rules delete seedzero-host --project=my-project --quiet"
    assert f"gcloud {delete}\n" in _dry("stop.sh", path=path)
    gone = f'*tpu-vm\\ delete*) echo >> "{tmp_path}/gone" ;;*tpu-vm\\ list*) [ -f "{tmp_path}/gone" ] || printf'
    answers = f"{gone} 'seedzero-a\\tREADY\\ta\\tus-central1-a\\tv5litepod-16\\n' ;;"
    done, calls = _answered("stop.sh", "--run=b", path=path, answers=answers)
    assert done.returncode == 0 and delete not in calls and "rule seedzero-host stays" in done.stderr
    done, calls = _answered("stop.sh", "--run=a", path=path, answers=answers)
    assert done.returncode == 0 and calls[-1] == delete, done.stderr
    absent = "*firewall-rules\\ describe*) echo was not found >&2; exit 1 ;;"
    done, calls = _answered("stop.sh", path=path, answers=absent)
    assert done.returncode == 0 and calls.count(delete) == 1, done.stderr  # that of the call before


def test_a_rule_of_another_network_is_refused_before_a_slice_is_requested(path: str) -> None:
    flags = ("--run=r", "--num_learners=4", "--build=none", "--workers=0", "--network=mine")
    done, calls = _answered("train_atari_tpu_vm.sh", *flags, path=path, answers="*firewall*network*) echo default ;;")
    assert done.returncode == 2 and "seedzero-host is for network default, not mine" in done.stderr
    assert not [call for call in calls if " create " in call]


def test_a_tpu_whose_state_cannot_be_asked_is_waited_for(path: str, tmp_path: pathlib.Path) -> None:
    flags = ("--run=r", "--build=none", "--workers=0")
    state = f'*queued-resources\\ describe*state.state*) echo >> "{tmp_path}/asked"; %s ;; *) ;;'
    answers = state % f'[ "$(wc -l < "{tmp_path}/asked")" -gt 3 ] || exit 1; echo ACTIVE'
    done, _ = _answered("train_atari_tpu_vm.sh", *flags, path=path, answers=answers)
    assert done.returncode == 0 and done.stderr.count("asking again") == 2  # before it is waited for, it is asked once
    assert "seedzero-r: ACTIVE" in done.stderr
    done, calls = _answered("train_atari_tpu_vm.sh", *flags, path=path, answers=state % "exit 1")
    assert done.returncode == 2 and "gcp/stop.sh --run=r removes it" in done.stderr and len(calls) < 100


def test_whoever_leaves_the_queue_is_told_that_the_request_stays(path: str, tmp_path: pathlib.Path) -> None:
    tools = pathlib.Path(path.split(os.pathsep)[0])
    asked = (
        f'echo >> "{tmp_path}/asked"; [ "$(wc -l < "{tmp_path}/asked")" -lt 3 ] || kill -INT "$(cat "{tmp_path}/pid")"'
    )
    (tools / "gcloud").write_text(f'#!/bin/sh\ncase "$*" in *state.state*) {asked}; echo WAITING ;; esac\n')
    # A shell cannot trap what its parent ignores, as whoever runs the tests in the background may do with Ctrl-C.
    foreground = f"""
import os, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
pathlib.Path("{tmp_path}/pid").write_text(str(os.getpid()))
os.execvp("bash", ["bash", *sys.argv[1:]])
"""
    words = [str(_copied(path) / "train_atari_tpu_vm.sh"), PROJECT, "--yes", "--run=r", "--workers=0"]
    done = subprocess.run(
        [sys.executable, "-c", foreground, *words], capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path, "POLL_SECONDS": "0"}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "TPU seedzero-r " in done.stderr


def test_images_have_the_tag_of_what_is_in_them(tmp_path: pathlib.Path) -> None:
    for name in (".dockerignore", "gcp/lib.sh", "docker/worker.Dockerfile", "seedzero/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def git(*words: str) -> None:
        own = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*own, *words], check=True, capture_output=True)

    def tag() -> str:
        script = f'script=test; . "{tmp_path}/gcp/lib.sh"; image_tag'
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    git("add", "--all")
    git("commit", "-m", "all")
    of_commit = tag()
    (tmp_path / "breakout.mp4").write_text("a video")
    assert tag() == of_commit and "-" not in of_commit
    (tmp_path / "seedzero" / "new.py").write_text("x = 1")
    of_new = tag()
    assert of_new == tag() and of_new.startswith(f"{of_commit}-")
    (tmp_path / "seedzero" / "new.py").write_text("x = 2")
    assert tag() != of_new
    (tmp_path / "docker" / "worker.Dockerfile").write_text("FROM scratch")
    (tmp_path / "seedzero" / "new.py").unlink()
    assert tag() not in (of_new, of_commit)


def test_cloud_build_gets_what_the_images_are_made_of() -> None:
    kept = {name: (ROOT / name).read_text().split("\n") for name in (".dockerignore", ".gcloudignore")}
    wanted = {f"!/{line[1:].partition('/')[0]}" for line in kept[".dockerignore"] if line.startswith("!")}
    assert {line for line in kept[".gcloudignore"] if line.startswith("!")} == {*wanted, "!/docker", "!/.dockerignore"}


def test_a_secret_that_cannot_be_looked_up_is_not_replaced(path: str) -> None:
    done, calls = _answered("setup.sh", path=path, answers="*versions\\ list*) echo unreachable >&2; exit 1 ;;")
    assert done.returncode == 1 and "unreachable" in done.stderr
    assert "not finished" in done.stderr and "run it again" in done.stderr
    assert not [call for call in calls if "versions add" in call]
    done, calls = _answered("setup.sh", path=path, answers="*versions\\ list*) ;; *network*) echo default ;;")
    assert done.returncode == 0 and [call for call in calls if "versions add" in call]


def test_the_key_reaches_openssl_through_a_pipe(path: str) -> None:
    program = pathlib.Path(path.split(os.pathsep)[0]) / "openssl"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != req ] || [ -p /dev/stdin ] || exit 9\nexec {shutil.which("openssl")} "$@"\n'
    )
    program.chmod(0o755)
    script = f'. "{FOLDER}/lib.sh"; set -euo pipefail; new_secret'
    environment = {**os.environ, "PATH": path, "BASH_COMPAT": "5.0"}  # its <<< writes to a file
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert "BEGIN CERTIFICATE" in json.loads(done.stdout)["certificate"]


def test_the_estimate_is_the_sum_of_the_list_prices(path: str) -> None:
    done = _run("train_atari.sh", "--dry_run", PROJECT, "--workers=3", path=path)
    assert re.search(r"learner +1 x g2-standard-16 +1\.32\n", done.stderr)
    assert re.search(r"workers +3 x n1-highcpu-32 +3\.91\n", done.stderr)
    assert re.search(r"estimate +5\.23 ", done.stderr)
    assert re.search(r"budget +at most 21 US dollars in 4 hours\n.* not measured on l4\n", done.stderr)
    spot = _run("train_atari.sh", "--dry_run", PROJECT, "--workers=3", "--spot", path=path)
    assert re.search(r"estimate +2\.62 ", spot.stderr)
    tpu = _run("train_atari_tpu_vm.sh", "--dry_run", PROJECT, "--accelerator=v6e-1", "--workers=0", path=path)
    assert re.search(r"estimate +2\.70 ", tpu.stderr)


def test_a_machine_without_a_price_is_said_to_have_none(path: str) -> None:
    done = _run("train_atari.sh", "--dry_run", PROJECT, "--worker_machine=c4-highcpu-96", path=path)
    assert re.search("prices.tsv .*: c4-highcpu-96", done.stderr)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "accelerator"),
    [*(("train_atari.sh", name) for name in ACCELERATORS), *(("train_atari_tpu_vm.sh", name) for name in TPUS)],
)
def test_every_accelerator_has_a_price_and_workers_of_its_size(script: str, accelerator: str, path: str) -> None:
    done = _run(script, "--dry_run", PROJECT, f"--accelerator={accelerator}", path=path)
    assert done.returncode == 0 and not re.search(r"prices\.tsv .*:", done.stderr)
    num_threads = 16 if accelerator in ("tpu-v5e-1", "v5litepod-1", "v6e-1") else 32
    assert re.search(rf"workers +2 x n1-highcpu-{num_threads} ", done.stderr)


def test_prices_name_their_date_and_source() -> None:
    comments, rows = [], []
    for line in (FOLDER / "prices.tsv").read_text().splitlines():
        (comments if line.startswith("#") else rows).append(line)
    assert re.search(r"\b20\d\d\b", comments[0]) and "https://cloud.google.com/vertex-ai/pricing" in " ".join(comments)
    for row in rows:
        name, compute, vertex = row.split("\t")
        assert vertex == "-" or 1.1 < float(vertex) / float(compute) < 1.25, name


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "workers"),
    [(script, workers) for script in VERTEX for workers in (0, 1, 6) if workers or script not in NO_LOCAL_WORKERS],
)
def test_what_a_job_runs_is_understood_by_seedzero(script: str, workers: int, path: str, files: gcp.Files) -> None:
    pools = _pools(_dry(script, f"--workers={workers}", "--run=r", "--", "--seed=3", path=path))
    assert [pool["replicaCount"] for pool in pools] == [1, workers][: 1 + bool(workers)]
    for pool in pools:
        assert pool["containerSpec"]["command"] == ["python", "-m", "seedzero.cli.gcp"]
    learner = _check_entrypoint(pools[0]["containerSpec"]["args"], files)
    assert {"--run_dir=gs://my-project-seedzero/runs/r", f"--workers={int(workers == 0)}", "--seed=3"} <= set(learner)
    assert (f"--worker.num_remote={workers}" in learner) == (workers > 0)
    if workers:
        assert _check_entrypoint(pools[1]["containerSpec"]["args"], files) == ["worker"]


@pytest.mark.parametrize("platform", ["vertex", "tpu-vm"])
def test_an_own_environment_trains_in_its_own_images(
    platform: str, path: str, files: gcp.Files, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "examples" / "own_environment.py", tmp_path / "my_env.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    image = "us-central1-docker.pkg.dev/my-project/seedzero/my-env"
    words = ["--env=python:my_env:Corridor", f"--image={image}:1", "--workers=4", "--run=mine"]
    text = _dry("train.sh", *words, f"--platform={platform}", "--", "--env.max_episode_steps=30", path=path)
    assert (
        f"{image}-learner:1" in text and f"{image}-worker:1" in text and "docker" not in text.replace(image, "")[:99]
    )
    args = (
        _pools(text)[0]["containerSpec"]["args"] if platform == "vertex" else _body(text, "learner.args").split("\n")
    )
    learner = _check_entrypoint(args, files)
    assert {"--env=python:my_env:Corridor", "--worker.num_remote=4", "--env.max_episode_steps=30"} <= set(learner)
    assert not [word for word in learner if word.startswith("--preset")]  # the learner's image knows the environment
    assert "--preset=discrete" in _dry("train.sh", *words, "--preset=discrete", path=path)


def test_the_command_that_makes_images_can_be_pasted_into_a_shell(path: str) -> None:
    image = "us-central1-docker.pkg.dev/my-project/seedzero/my-env:1"
    words = ["--dry_run", PROJECT, "--env=spiel:leduc_poker(players=2)"]
    made = f"scripts/image '{words[-1]}'"
    shown = _run("train.sh", *words, f"--image={image}", path=path).stderr
    assert f"made by: {made} --image={image} --extras=cuda --push\n" in shown
    assert f"which {made} makes" in _run("train.sh", *words, path=path).stderr


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_a_learner_must_find_its_accelerator(accelerator: str, path: str) -> None:
    learner, worker = _pools(_dry("train_atari.sh", f"--accelerator={accelerator}", path=path))
    kind = {"cpu": "", "tpu": "tpu"}.get(accelerator.partition("-")[0], "cuda")
    expected = [{"name": "JAX_PLATFORMS", "value": f"{kind},cpu"}] if kind else []
    assert (learner["containerSpec"]["env"], worker["containerSpec"]["env"]) == (expected, [])


def test_numbers_may_begin_with_0(path: str) -> None:
    text = _dry("train_atari.sh", "--workers=08", "--max_hours=010", path=path)
    assert _pools(text)[1]["replicaCount"] == 8 and '"timeout": "36000s"' in text


def test_the_environment_is_the_one_that_was_asked_for_and_names_the_run(path: str) -> None:
    for script, env, name in (
        ("train_atari.sh", "atari:SpaceInvaders", "atari-spaceinvaders"),
        ("train_dmlab.sh", "dmlab:rooms_keys_doors_puzzle", "dmlab-rooms-keys-doors-p"),
        ("train_football.sh", "football:5_vs_5", "football-5-vs-5"),
    ):
        text = _dry(script, f"--env={env}", path=path)
        args = _pools(text)[0]["containerSpec"]["args"]
        assert f"--env={env}" in args and f"--preset={script[len('train_') : -len('.sh')]}" in args
        assert re.search(rf"--display-name=seedzero-{name}-20\d{{6}}-\d{{6}} ", text)


def test_an_environment_holds_with_the_preset_of_another(path: str) -> None:
    assert (
        "--env=atari:Pong"
        in _pools(_dry("train.sh", "Pong", "--preset=cartpole", path=path))[0]["containerSpec"]["args"]
    )


def test_workers_of_lab_have_an_image_of_their_own_and_share_their_levels(path: str) -> None:
    text = _dry("train_dmlab.sh", "--bucket=b", path=path)
    assert "_DOCKERFILE=docker/worker-dmlab.Dockerfile," in text
    learner, workers = _pools(text)
    assert "/worker-dmlab:" in workers["containerSpec"]["imageUri"]
    args = learner["containerSpec"]["args"]
    assert {"--agent=vtrace", "--dmlab.level_cache=gs://b/dmlab-levels", "--evaluation.every_updates=0"} <= set(args)
    assert (ROOT / "docker" / "worker-dmlab.Dockerfile").is_file()


def test_workers_of_football_have_an_image_with_envpool(path: str) -> None:
    text = _dry("train_football.sh", path=path)
    assert "_DOCKERFILE=docker/worker.Dockerfile,_ARGUMENT=EXTRAS=envpool,_IMAGE=" in text
    learner, workers = _pools(text)
    assert "/worker-envpool:" in workers["containerSpec"]["imageUri"]
    assert {"--agent=vtrace", "--evaluation.every_updates=0"} <= set(learner["containerSpec"]["args"])
    built = _dry("train_football.sh", "--build=docker", path=path)
    builds = [line for line in built.splitlines() if line.startswith("docker build --platform linux/amd64 ")]
    assert ["--build-arg EXTRAS=cuda" in builds[0], "--build-arg EXTRAS=envpool" in builds[1]] == [True, True]


def test_what_a_tpu_vm_and_its_workers_run_is_understood_by_seedzero(path: str, files: gcp.Files) -> None:
    text = _dry("train_atari_tpu_vm.sh", "--run=r", "--game=Breakout", "--workers=6", "--", "--seed=3", path=path)
    learner = _check_entrypoint(_body(text, "learner.args").split("\n"), files)
    expected = {"--env=atari:Breakout", "--workers=0", "--run_dir=gs://my-project-seedzero/runs/r", "--seed=3"}
    assert {*expected, "--worker.num_remote=6"} <= set(learner)
    assert _check_entrypoint(_body(text, "worker.args").split("\n"), files) == ["worker"]


def test_a_tpu_slice_has_a_host_for_each_learner(path: str, files: gcp.Files) -> None:
    text = _dry("train_atari_tpu_vm.sh", "--run=r", "--build=none", "--num_learners=4", path=path)
    args = _body(text, "learner.args").split("\n")
    learner = _check_entrypoint(args, files)
    assert "--hosts=4" in args and {"--workers=0", "--worker.num_remote=2"} <= set(learner)
    command = gcp.train_command(learner, files, 7777)
    deploy_files.check_command([*command, *gcp.host_words(3, ["a", "b", "c", "d"], 4, files, 7777)])
    assert " --accelerator-type=v5litepod-16 " in text and " --tags=seedzero,seedzero-host " in text
    assert " --rules=tcp --source-tags=seedzero-host --target-tags=seedzero-host " in text and " --size=8 " in text


@pytest.mark.thorough
def test_a_seedzero_that_is_installed_refuses_wrong_settings_first(path: str, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "tools" / "seedzero"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m seedzero.cli "$@"\n')
    program.chmod(0o755)
    done = _run("train_atari.sh", PROJECT, "--yes", "--", "--seed=1", "--search.num_simulation=3", path=path)
    assert done.returncode == 2
    assert "--search.num_simulation=3; did you mean --search.num_simulations?" in done.stderr
    assert "nothing was changed" in done.stderr
    for script in ("train_atari.sh", "train_atari_tpu_vm.sh"):
        done = _run(script, PROJECT, "--yes", "--", "--deterministic", path=path)
        assert done.returncode == 2 and "--deterministic " in done.stderr
    _dry("train_cartpole.sh", "--", "--seed=1", path=path)


def test_settings_for_all_of_a_machine_are_taken(path: str) -> None:
    words = ["--training.num_devices=4", "--training.acting_devices=3", "--cluster.num_hosts=1"]
    out = _dry("train_atari.sh", "--accelerator=tpu-v5e-4", "--", *words, path=path)
    assert all(word in out for word in words)


def test_settings_reach_the_learner_as_they_were_given(path: str) -> None:
    awkward = ["--env=gym:a b\"c\\d'e", "--x=$(id)", "--y=ü*"]
    pools = _pools(_dry("train_cartpole.sh", "--", *awkward, path=path))
    assert pools[0]["containerSpec"]["args"][-3:] == awkward


@pytest.mark.parametrize("platform", ["vertex", "tpu-vm"])
def test_no_secret_is_in_what_a_script_prints_or_sends(platform: str, path: str) -> None:
    text = _dry("train.sh", "Pong", f"--platform={platform}", path=path)
    assert "--secret=projects/my-project/secrets/seedzero-fleet/versions/latest" in text
    assert "--token" not in text and "BEGIN" not in text


def test_bodies_have_only_fields_that_google_s_protos_know(path: str, tmp_path: pathlib.Path) -> None:
    fake = pytest.importorskip("fake_google_cloud", reason="the protos of Google Cloud come with the extra clouds")
    kind = fake.aiplatform_v1.CustomJobSpec
    for accelerator in ACCELERATORS:
        text = _dry("train_atari.sh", f"--accelerator={accelerator}", "--spot", path=path)
        fake.parse(kind, json.loads(_body(text, "job.json")))
    copy = _misspelt(tmp_path, "train.sh", "tpuTopology", "tpuTopologie")
    wrong = json.loads(_body(_dry("train_atari.sh", "--accelerator=tpu-v5e-1", path=path, folder=copy), "job.json"))
    with pytest.raises(fake.Refused, match="tpuTopologie"):
        fake.parse(kind, wrong)
    build = deploy_files.documents(FOLDER / "cloudbuild.yaml")[0]
    fake.parse(fake.cloudbuild_v1.Build, build)
    with pytest.raises(fake.Refused, match="step"):
        fake.parse(fake.cloudbuild_v1.Build, {"step": build["steps"]})


def _misspelt(tmp_path: pathlib.Path, name: str, right: str, wrong: str) -> pathlib.Path:
    """Returns a copy of the scripts with a mistake in one."""
    copy = tmp_path / "copy" / "gcp"
    shutil.copytree(FOLDER, copy)
    text = (copy / name).read_text()
    assert right in text
    (copy / name).write_text(text.replace(right, wrong))
    return copy


@pytest.fixture(scope="module")
def gcloud() -> list[str]:
    """The command that has gcloud read command lines and do nothing."""
    program = shutil.which("gcloud")
    if program is None:
        pytest.skip("gcloud is not installed")
    root = pathlib.Path(program).resolve().parents[1]
    bundled = root / "platform" / "bundledpythonunix" / "bin" / "python3"
    if not (root / "lib" / "googlecloudsdk").is_dir():
        pytest.skip(f"{program} is not where its own modules are")
    python = str(bundled) if bundled.exists() else "python3"
    return [python, str(pathlib.Path(__file__).with_name("gcloud_parser.py")), str(root)]


class TestParser:
    """Every gcloud command line, read by gcloud itself."""

    @pytest.mark.slow
    def test_gcloud_takes_every_command_line(self, gcloud: list[str], path: str, tmp_path: pathlib.Path) -> None:
        variants = [
            ("setup.sh", "--rotate_secret", "--billing_account=0-0-0"), ("status.sh",),
            ("stop.sh", "--delete_storage"), ("train_cartpole.sh",), ("train_atari.sh", "--spot"),
            ("train_dmlab.sh",), ("train_football.sh",),
            ("train_atari_tpu_vm.sh", "--spot"), ("train_atari_tpu_vm.sh", "--provisioning=now", "--workers=6"),
            ("train_atari_tpu_vm.sh", "--num_learners=4"),
        ]  # fmt: skip
        text = "\n".join(_dry(*variant, path=path) for variant in variants)
        pages = (page.read_text().replace("\\\n", "") for page in sorted((ROOT / "docs").rglob("*.md")))
        text = "\n".join([text, *pages])
        lines = [line.partition("   #")[0] for line in text.splitlines() if line.startswith("gcloud ")]
        commands = {_without_values(line): line for line in lines}  # one of each kind: reading takes its time
        assert len(commands) > 25
        assert not _refusals(gcloud, list(commands.values()), tmp_path)


def _without_values(line: str) -> str:
    return " ".join(word.partition("=")[0] for word in shlex.split(line))


def _refusals(parser: list[str], commands: list[str], tmp_path: pathlib.Path) -> list[str]:
    """Returns the command lines that gcloud refuses."""
    own = {"CLOUDSDK_CONFIG": str(tmp_path / "gcloud"), "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false"}
    environment = {**os.environ, **own}
    for name in ("job.json", "learner.args", "worker.args"):  # flags that read a file read it while they are parsed
        (tmp_path / name).write_text("{}")
    done = subprocess.run(
        parser, input="\n".join(commands), capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    return done.stdout.splitlines()
