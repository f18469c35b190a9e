"""`seedzero.connect` against a server in this process: the actions of `seedzero.load`, and its refusals."""

from __future__ import annotations

import gc
import pathlib
import pickle
import subprocess
import sys
import threading
from concurrent import futures

import certificates
import numpy as np
import policy_world
import pytest

import seedzero
from seedzero.acting.actors import acting_policy
from seedzero.config import sections
from seedzero.core import errors, forks, types
from seedzero.transport import inference_pb2, policy_client, policy_codec, policy_servers, security

TOKEN = "0123456789abcdef"
WATCH = f"/{policy_codec.SERVICE}/Watch"
FRAMES = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.thorough
def test_actions_and_findings_are_those_of_the_loaded_policy() -> None:
    saved = policy_world.agent(policy_world.MASKED, run__agent="muzero")
    mask = np.array([True, False, True, True])
    policy = acting_policy.Policy(saved)
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        expected = policy.search(FRAMES[0], action_mask=mask)
        found = remote.search(FRAMES[0], action_mask=mask)
        assert (found.action, found.version) == (expected.action, 7) and isinstance(found.action, int)
        assert found.policy == pytest.approx(expected.policy, abs=1e-5)
        assert found.visit_counts is not None and found.visit_counts.tolist() == expected.visit_counts.tolist()
        assert found.value == pytest.approx(float(expected.value), abs=1e-4)
        assert remote.probabilities(FRAMES[0], action_mask=mask) == pytest.approx(expected.policy, abs=1e-5)
        assert remote(FRAMES[0], action_mask=mask) == policy(FRAMES[0], action_mask=mask)
        remote.reset()
        policy.reset()
        masks = np.tile(mask, (4, 1))
        batch = remote(FRAMES, action_mask=masks)
        assert batch.tolist() == policy(FRAMES, action_mask=masks).tolist() and world.server.num_sessions == 1
    assert world.server.num_sessions == 0


@pytest.mark.thorough
def test_memory_goes_on_after_a_lost_connection_and_begins_with_an_episode() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo", network__lstm_width=4)
    policy = acting_policy.Policy(saved)
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        with pytest.raises(errors.UsageError, match="rows"):
            remote(FRAMES)
            remote(FRAMES[:2], reward=0.0)
        remote.close()
        expected, found = [policy(FRAMES).tolist()], [remote(FRAMES).tolist()]
        with pytest.raises(errors.UsageError, match="reward"):
            remote(FRAMES)
        for number in range(4):
            assert remote._client is not None and remote._client._stream is not None
            remote._client._stream.drop()  # as a network does
            policy.reset([number])
            remote.reset([number])
            expected.append(policy(FRAMES[::-1], reward=1.0).tolist())
            found.append(remote(FRAMES[::-1], reward=1.0).tolist())
        assert found == expected


def test_players_are_chosen_by_name_and_newer_versions_are_announced() -> None:
    one = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    other = policy_world.agent(policy_world.PLAIN, seed=5, update=9, run__agent="ppo")
    with policy_world.serving({"main": one, "old": other}) as world:
        with seedzero.connect(world.address, player="old") as remote:
            assert remote.version == 9 and remote(FRAMES).tolist() == acting_policy.Policy(other)(FRAMES).tolist()
        with security.channel(security.for_client(world.address)) as channel:
            news = channel.stream_stream(WATCH, None, inference_pb2.Announcement.FromString)(iter(()))
            assert policy_codec.players_of(next(news).players) == {"main": 7, "old": 9}
            with seedzero.connect(world.address) as remote:
                assert remote(FRAMES).tolist() == acting_policy.Policy(one)(FRAMES).tolist()
                world.engine.change("main", other.params, 11)
                assert policy_codec.players_of(next(news).players) == {"main": 11, "old": 9}
                assert remote(FRAMES).tolist() == acting_policy.Policy(other)(FRAMES).tolist() and remote.version == 11


def test_no_request_fails_while_versions_rise() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        over = threading.Event()

        def change() -> None:
            for version in range(8, 58):
                world.engine.change("main", saved.params, version)
            over.set()

        thread = threading.Thread(target=change)
        thread.start()
        versions = []
        while not over.is_set() or len(versions) < 20:
            remote(FRAMES)
            versions.append(remote.version)
        thread.join()
        remote(FRAMES)
        assert versions == sorted(versions) and remote.version == 57


def test_a_lost_session_is_told_unless_all_rows_begin_an_episode() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        remote(FRAMES)
        for session in list(world.server._side.sessions.values()):
            world.server._thread.run(_ended(world, session))  # type: ignore[union-attr]
        with pytest.raises(errors.ProtocolError, match=r"\b30\b.*session"):
            remote(FRAMES)
        remote.reset()
        assert remote(FRAMES).shape == (4,)


def test_no_late_answer_is_taken_for_that_to_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(stream: object) -> None:
        raise KeyboardInterrupt

    saved = policy_world.agent(policy_world.PLAIN, seed=5, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        expected = remote(FRAMES).tolist()
        assert expected != expected[::-1]
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(policy_client._Stream, "take", interrupted)
            remote(FRAMES[::-1])
        with pytest.raises(errors.ProtocolError, match="interrupted; call reset"):
            remote(FRAMES)
        remote.reset()
        assert remote(FRAMES).tolist() == expected


async def _ended(world: policy_world.World, session: object) -> None:
    side = world.server._side
    session.expires_at = 0.0  # type: ignore[attr-defined]
    side.expire()


def test_a_token_and_tls_are_asked_for(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    files = certificates.make(tmp_path / "authority", ["127.0.0.1"])
    tls, ca = sections.TlsConfig(str(files.cert), str(files.key)), str(files.ca)
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    secured = security.for_server(str(tmp_path / "token"), tls)
    with policy_world.serving({"main": saved}, secured=secured) as world:
        with pytest.raises(errors.AccessDenied, match=f"{world.address} .*TLS"):
            seedzero.connect(world.address, token=TOKEN)
        with pytest.raises(errors.AccessDenied, match=r"token.*--token_file=FILE"):
            seedzero.connect(world.address, ca_file=ca)
        with pytest.raises(errors.AccessDenied, match=r"token.*--token_file=FILE"):
            seedzero.connect(world.address, ca_file=ca, token=TOKEN[::-1])
        with seedzero.connect(world.address, ca_file=ca, token_file=str(tmp_path / "token")) as remote:
            assert remote(FRAMES).shape == (4,)


def test_mistakes_are_named() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world:
        with pytest.raises(errors.UsageError, match=r"player=nobody: .* has main; give one of them"):
            seedzero.connect(world.address, player="nobody")
        with seedzero.connect(world.address) as remote:
            with pytest.raises(errors.UsageError, match=r"shape.*\[5\].*\[3\]"):
                remote(np.zeros(5))
            with pytest.raises(errors.UsageError, match="no action mask; leave action_mask out"):
                remote(FRAMES, action_mask=np.ones((4, 4)))
            with pytest.raises(errors.ProtocolError, match=r"'observation'.*finite"):
                remote(np.full(3, np.nan))
            remote.close()
            with pytest.raises(errors.ProtocolError, match=r"\b17\b.*\b1\b.*16"):
                remote(np.zeros((17, 3), np.float32))
    with pytest.raises(errors.ProtocolError, match=r"no policy server.*`seedzero serve`"):
        seedzero.connect(world.address)


def test_observations_that_would_change_in_their_dtype_are_rejected() -> None:
    saved = policy_world.agent(types.EnvSpec((3,), "uint8", 4), run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        for policy in (acting_policy.Policy(saved), remote):
            with pytest.raises(errors.UsageError, match="dtype float32; expected uint8"):
                policy(np.array([0.5, 0.25, 0.0], np.float32))
            with pytest.raises(errors.UsageError, match="value 300"):
                policy(np.array([1, 300, -1]))
            assert policy([1, 2, 255]) in range(4)


def test_rows_may_be_reset_before_the_first_call() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        for policy in (acting_policy.Policy(saved), remote):
            policy.reset([1])
            policy(FRAMES)
            policy.reset([1])


def test_a_client_imports_neither_jax_nor_gymnasium() -> None:
    code = "import sys, seedzero; seedzero.connect; print(sorted({'jax', 'gymnasium', 'flax'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_threads_that_share_a_policy_get_the_answers_to_their_own_requests() -> None:
    saved = policy_world.agent(policy_world.PLAIN, seed=5, run__agent="ppo")
    rows = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)
    expected = [acting_policy.Policy(saved)(row) for row in rows]
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        with futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(remote, rows)) == expected and len(set(expected)) > 1
        assert world.server.num_sessions == 1


@pytest.mark.thorough
def test_a_dropped_policy_frees_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world:
        side, is_free = world.server._side, threading.Event()
        end = side.end

        def ended(session: policy_servers.PolicySession, reason: str) -> None:
            end(session, reason)
            is_free.set()

        monkeypatch.setattr(side, "end", ended)
        remote = seedzero.connect(world.address)
        remote(FRAMES)
        assert world.server.num_sessions == 1 and not is_free.is_set()
        del remote
        gc.collect()
        assert is_free.wait(60) and world.server.num_sessions == 0


def test_a_forked_process_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    with policy_world.serving({"main": saved}) as world, seedzero.connect(world.address) as remote:
        remote(FRAMES)
        with monkeypatch.context() as forked:
            forked.setattr(forks, "_left_behind", {"gRPC"})
            with pytest.raises(errors.UsageError, match=r"gRPC.*'spawn'"):
                remote(FRAMES)
            for call in (remote.reset, lambda: seedzero.connect(world.address)):
                with pytest.raises(errors.UsageError, match="gRPC"):
                    call()
            remote.close()
            assert world.server.num_sessions == 1  # it is the other process's
        with pytest.raises(errors.UsageError, match="another process; connect there"):
            pickle.dumps(remote)
        assert remote(FRAMES).shape == (4,)
