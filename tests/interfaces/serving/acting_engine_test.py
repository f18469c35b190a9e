"""Rows of several clients in one call: memory, masks, versions, and what a client may ask for."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import numpy as np
import policies
import policy_world
import pytest

from seedzero.acting.actors import acting_policy
from seedzero.core import errors, types
from seedzero.interfaces.serving import acting_engine
from seedzero.transport import inference_pb2, policy_codec, policy_servers

RECURRENT = {"run__agent": "ppo", "network__lstm_width": 4}


def _request(
    slots: list[int], observation: Any, *, session: str = "a", player: str = "main", first: bool = True, **given: Any
) -> policy_servers.PolicyRequest:
    number, frames = len(slots), np.asarray(observation, np.float32)
    mask = given.pop("mask", None)
    step = types.EnvStep.first(frames)._replace(
        action_mask=mask, reward=np.full(number, given.pop("reward", 0.0), np.float32)
    )
    rows = policy_codec.PolicyRows(np.arange(number, dtype=np.int32), step, np.full(number, first), **given)
    return policy_servers.PolicyRequest(session, 0, player, np.array(slots, np.int32), rows)


def _answers(
    engine: acting_engine.ActingEngine, *requests: policy_servers.PolicyRequest
) -> dict[str, inference_pb2.Acted]:
    """Returns the answers to requests that wait at the same time, by session."""
    found: dict[str, inference_pb2.Acted] = {}
    for request in requests:
        engine.act(request)

    def answer(answers: Any) -> None:
        found.update({session: policy_codec.decode_reply(data).acted for session, _, data in answers})
        if len(found) == len(requests):
            engine.stop()

    engine.run(answer, lambda versions: None)
    engine._is_over = False
    return found


def _actions(acted: inference_pb2.Acted) -> list[int]:
    return list(np.frombuffer(acted.action, "<i4").tolist())


def test_rows_of_several_clients_have_the_actions_of_a_policy_alone() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=16, max_batch=8)
    frames = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = acting_policy.Policy(saved)(frames).tolist()
    found = _answers(engine, _request([3, 0], frames[:2], session="a"), _request([9, 4, 7], frames[2:], session="b"))
    assert _actions(found["a"]) + _actions(found["b"]) == expected and len(set(expected)) > 1
    assert (engine.counts.calls, engine.counts.requests, engine.counts.rows) == (1, 2, 5)
    assert {acted.version for acted in found.values()} == {7}


@pytest.mark.thorough
def test_a_row_keeps_its_memory_until_an_episode_begins() -> None:
    saved = policy_world.agent(policy_world.PLAIN, **RECURRENT)
    engine, policy = acting_engine.ActingEngine({"main": saved}, num_slots=4, max_batch=4), acting_policy.Policy(saved)
    frames = np.random.default_rng(1).normal(size=(6, 1, 3)).astype(np.float32)
    expected = [int(policy(frames[0])[0]), *(int(policy(frame, reward=0.5)[0]) for frame in frames[1:])]
    steps = [(frame, {"first": not number, "reward": 0.5 * bool(number)}) for number, frame in enumerate(frames)]
    memories, taken = [], []
    for frame, given in steps:
        taken += _actions(_answers(engine, _request([2], frame, **given))["a"])
        memories.append(np.concatenate([np.ravel(x[2]) for x in _leaves(engine)]))
        looked = _answers(engine, _request([2], frame, first=False, only_look=True, findings=True))["a"]
        assert len(looked.probabilities) == 4 * 4
        assert np.array_equal(memories[-1], np.concatenate([np.ravel(x[2]) for x in _leaves(engine)]))
    assert taken == expected
    assert not np.array_equal(memories[0], memories[1])
    _answers(engine, _request([2], frames[0], first=True))
    assert np.allclose(memories[0], np.concatenate([np.ravel(x[2]) for x in _leaves(engine)]))
    assert not np.any([np.any(x[[0, 1, 3]]) for x in _leaves(engine)])


def _leaves(engine: acting_engine.ActingEngine) -> list[np.ndarray]:
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(engine._memory)]


@pytest.mark.thorough
def test_masks_and_findings_are_each_row_s_own() -> None:
    saved = policy_world.agent(policy_world.MASKED, run__agent="muzero")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=4, max_batch=4)
    frames, masks = np.zeros((2, 3), np.float32), np.array([[False, True, False, False], [True, False, False, True]])
    acted = _answers(engine, _request([0, 1], frames, mask=masks, findings=True))["a"]
    policy = np.frombuffer(acted.probabilities, "<f4").reshape(2, 4)
    visits = np.frombuffer(acted.visits, "<i4").reshape(2, 4)
    assert _actions(acted)[0] == 1 and _actions(acted)[1] in (0, 3)
    assert not policy[~masks].any() and policy.sum(axis=1) == pytest.approx([1, 1])
    assert not visits[~masks].any() and visits.sum(axis=1).tolist() == [3, 3] and len(acted.value) == 8
    expected = policies.acting_policy.Policy(saved).search(frames, action_mask=masks)
    assert np.allclose(policy, expected.policy, atol=1e-5) and np.array_equal(visits, expected.visit_counts)


def test_players_act_apart_and_change_between_two_calls() -> None:
    one = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    other = policy_world.agent(policy_world.PLAIN, seed=5, update=9, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": one, "old": other}, num_slots=8, max_batch=8)
    frames = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    first, second = (acting_policy.Policy(saved)(frames).tolist() for saved in (one, other))
    assert first != second
    found = _answers(
        engine,
        _request([0, 1, 2, 3], frames, session="a"),
        _request([4, 5, 6, 7], frames, session="b", player="old"),
    )
    assert (_actions(found["a"]), _actions(found["b"])) == (first, second)
    assert (found["a"].version, found["b"].version, engine.counts.calls) == (7, 9, 2)
    engine.change("main", other.params, 12)
    engine.change("new", one.params, 3)
    found = _answers(engine, _request([0, 1, 2, 3], frames), _request([4], frames[:1], session="b", player="new"))
    assert _actions(found["a"]) == second and found["a"].version == 12 and found["b"].version == 3
    assert engine.offer().players == {"main": 12, "old": 9, "new": 3} and engine.counts.changes == 2


def test_more_rows_than_a_batch_take_several_calls() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=32, max_batch=8)
    frames = np.random.default_rng(0).normal(size=(21, 3)).astype(np.float32)
    found = _answers(engine, _request(list(range(21)), frames))
    assert _actions(found["a"]) == acting_policy.Policy(saved)(frames).tolist() and engine.counts.calls == 3


def test_old_parameters_are_freed_over_many_changes() -> None:
    import gc
    import weakref

    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine, alive = acting_engine.ActingEngine({"main": saved}, num_slots=2, max_batch=2), []

    class Params(dict[str, Any]):
        """A tree of parameters that tells its end."""

    for version in range(100):
        params = Params(version=version)
        alive.append(weakref.ref(params))
        engine.change("main", params, version)
    thread = threading.Thread(target=engine.run, args=(print, lambda versions: engine.stop()))
    thread.start()
    thread.join()
    del params
    gc.collect()
    assert sum(one() is not None for one in alive) == 1 and engine.offer().players == {"main": 99}


def test_a_request_that_fits_into_no_batch_ends_its_own_session(caplog: pytest.LogCaptureFixture) -> None:
    """Such a request passes no check of the wire: the engine holds against what the checks forget."""
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=8, max_batch=8)
    frames = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    good, wrong = _request([0, 1, 2, 3], frames, session="a"), _request([4], np.zeros((1, 5)), session="b")
    found: dict[str, Any] = {}
    engine.act(good)
    engine.act(wrong)

    def answer(answers: Any) -> None:
        found.update({session: data for session, _, data in answers})
        engine.stop()

    engine.run(answer, lambda versions: None)
    engine._is_over = False
    engine.act(wrong)  # alone: it agrees with itself, and not with the program
    engine.run(answer, lambda versions: None)
    acted = policy_codec.decode_reply(found["a"]).acted
    assert _actions(acted) == acting_policy.Policy(saved)(frames).tolist()
    assert found["b"].code is grpc.StatusCode.INTERNAL and "request 0" in found["b"].details
    assert "float32[5]; expected float32[3]" in caplog.text and "float32" not in found["b"].details


def test_a_failed_call_ends_the_engine() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=8, max_batch=8)
    engine.compile()
    engine.change("main", {"params": {}}, 8)
    engine.act(_request([0], np.zeros((1, 3))))
    with pytest.raises(errors.ServingFailure, match="a call of player main failed") as raised:
        engine.run(lambda answers: pytest.fail("it answered"), lambda versions: None)
    assert raised.value.__cause__ is not None


def test_a_failure_on_another_thread_ends_the_engine() -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=8, max_batch=8)
    engine._program = None
    thread = threading.Thread(target=engine.compile_rest)
    thread.start()
    with pytest.raises(errors.ServingFailure, match=r"compiling.*'NoneType'.*'compile'"):
        engine.run(lambda answers: pytest.fail("it answered"), lambda versions: None)
    thread.join()
    with pytest.raises(errors.ServingFailure, match="compiling"):
        engine.compile()


def test_compiled_sizes_shrink_to_one_row() -> None:
    assert (
        acting_engine._sizes(64) == (64, 8, 1)
        and acting_engine._sizes(20) == (20, 2, 1)
        and acting_engine._sizes(1) == (1,)
    )


def test_a_compiled_server_compiles_nothing_for_a_first_request_with_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = policy_world.agent(policy_world.PLAIN, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=16, max_batch=8)
    engine.compile()
    monkeypatch.setattr(engine, "_compile", None)
    found = _answers(engine, _request([0], [[1, 2, 3]], findings=True))
    assert len(found["a"].probabilities) == 4 * 4
