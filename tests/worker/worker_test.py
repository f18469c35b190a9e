import collections
import json
import logging
import os
import pathlib
import queue
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading

import gymnasium
import numpy as np
import pytest
import scaled_catch
from gymnasium import spaces

from seedzero.config import families, sections, worker_options
from seedzero.core import errors, types
from seedzero.envs import catch, gym_env, registry
from seedzero.transport import servers
from seedzero.worker import worker

ROOT = pathlib.Path(__file__).parents[2]
DEADLINE_SECONDS = 600


class Learner:
    """A learner that learns nothing: assigns what it was given, one after the other, and always answers `action`.

    Where there is a mask it answers the first legal action instead.
    """

    def __init__(self, *assignments, action=0):
        self.assignments = list(assignments)
        self.action = action
        self.hellos, self.specs, self.requests, self.ends = [], {}, [], []
        self.events = queue.Queue()
        self.server = None

    def assign(self, hello):
        self.hellos.append(hello)
        fields = dict(role=types.Role.TRAIN, env="catch", env_settings="{}", num_groups=2, envs_per_group=3)
        fields |= self.assignments.pop(0) if len(self.assignments) > 1 else self.assignments[0]
        count = fields["num_groups"] * fields["envs_per_group"]
        return types.Assignment(session_id=f"session-{len(self.hellos)}", seeds=tuple(range(count)), **fields)

    def begin(self, session_id, spec):
        self.specs[session_id] = spec

    def step(self, request):
        self.requests.append(request)
        self.events.put(("step", request))
        mask = request.step.action_mask
        action = np.full(request.first.shape, self.action) if mask is None else mask.argmax(axis=1)
        self.server.reply(request, self.choose(request, action), 1)

    def choose(self, request, action):
        return action

    def end(self, session_id, reason):
        self.ends.append((session_id, reason))
        self.events.put(("end", reason))

    def status(self):
        return {}

    def serve(self, address, **changes):
        settings = sections.TransportConfig(listen=address, **changes)
        self.server = servers.Server(self, settings)
        return self.server.start()

    def await_steps(self, number, session_id=None):
        """Waits for so many more steps of one session (None: of any)."""
        while number:
            kind, request = self.events.get(timeout=DEADLINE_SECONDS)
            number -= kind == "step" and session_id in (None, request.session_id)

    def await_end(self):
        while True:
            kind, reason = self.events.get(timeout=DEADLINE_SECONDS)
            if kind == "end":
                return reason


@pytest.fixture
def address(tmp_path):
    return f"unix:{tmp_path}/learner"


@pytest.fixture
def serve(address):
    """Starts learners; they are stopped at the end of the test."""
    learners = []

    def start(*assignments, **kwargs):
        learner = Learner(*(assignments or ({},)), **kwargs)
        learner.serve(address)
        learners.append(learner)
        return learner

    yield start
    for learner in learners:
        learner.server.stop(finished=True, reason="the test is over")


class Running:
    """A worker in a thread of this process."""

    def __init__(self, address, **kwargs):
        self.stop = threading.Event()
        self._code = None
        self._thread = threading.Thread(target=self._run, args=(address,), kwargs=kwargs)
        self._thread.start()

    def _run(self, address, env_factory=None, **kwargs):
        options = worker_options.WorkerOptions(address, **kwargs)
        self._code = worker.run(options, env_factory=env_factory, stop=self.stop)

    def code(self):
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the worker does not end"
        return self._code


class Pushing(Learner):
    """Pushes environment i of three with 1 - i, in Pendulum's own units."""

    def choose(self, request, action):
        return np.array([[1], [0], [-1]], np.float32) * (1 if request.sequence % 2 else -1)


@pytest.fixture
def run(address):
    runs = []

    def start(**kwargs):
        runs.append(Running(address, **kwargs))
        return runs[-1]

    yield start
    for running in runs:
        running.stop.set()
        running.code()


def run_script(script, *args, **kwargs):
    """Runs Python code in a new process."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, **kwargs)


OWN = """
import os, signal, subprocess, sys, threading
from seedzero.config import worker_options
from seedzero.core import errors
from seedzero.envs import catch
from seedzero.worker import worker

def run(env_factory, **options):
    return worker.run_process(worker_options.WorkerOptions(sys.argv[1], **options), env_factory=env_factory)

"""
"""Begins the program of a worker with environments of its own; the address is the first argument."""


def counted():
    """Returns a list, and a factory of environments that puts their numbers in it."""
    made = []

    def factory(num_envs):
        made.append(num_envs)
        return catch.Catch(num_envs)

    return made, factory


def spawn(*args):
    command = [sys.executable, "-m", "seedzero.worker", *args]
    pipes = dict(stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


def finish(child):
    """Returns exit code and standard error; standard input stays as it is."""
    code = child.wait(DEADLINE_SECONDS)
    with child.stderr:
        text = child.stderr.read()
    child.stdin.close()
    return code, text


def test_continuous_actions_reach_the_environments_unchanged(address, run):
    learner = Pushing(dict(env="gym:Pendulum-v1", num_groups=1))
    learner.serve(address)
    run()
    learner.await_steps(5)
    learner.server.stop(finished=True, reason="enough")
    alone = gym_env.make("Pendulum-v1", sections.EnvConfig(), 3)
    expected = [alone.reset((0, 1, 2))]
    expected += [alone.step(np.array([[1], [0], [-1]], np.float32) * sign) for sign in (-1, 1, -1, 1)]
    alone.close()
    for request, step in zip(learner.requests, expected, strict=False):
        np.testing.assert_array_equal(request.step.observation, step.observation)
        np.testing.assert_array_equal(request.step.reward, step.reward)
    (spec,) = learner.specs.values()
    assert (spec.num_actions, spec.action_low, spec.action_high) == (0, (-2.0,), (2.0,))


def test_a_session_sends_every_step_of_both_groups_and_ends_with_the_learner(serve, run, monkeypatch):
    monkeypatch.setenv(worker_options.KEY, "of the learner")
    learner = serve(action=catch.LEFT)
    running = run(worker_id="w", num_envs=6)
    learner.await_steps(40)
    learner.server.stop(finished=True, reason="enough")
    assert running.code() == errors.DONE
    hello = learner.hellos[0]
    assert (hello.worker_id, hello.max_envs, hello.environments) == (
        "w",
        6,
        tuple(family.prefix for family in families.FAMILIES if family.make),
    )
    assert set(hello.roles) == {types.Role.TRAIN, types.Role.EVALUATE}
    assert hello.key == "of the learner" and worker_options.KEY not in os.environ  # not for what environments start
    for group, seeds in enumerate(([0, 1, 2], [3, 4, 5])):
        requests = [request for request in learner.requests if request.group == group]
        expected = catch.Catch(3)
        step = expected.reset(seeds)
        for number, request in enumerate(requests):
            assert request.sequence == number
            assert request.first.all() == (number % 10 == 0)
            np.testing.assert_array_equal(request.step.observation, step.observation)
            np.testing.assert_array_equal(request.step.reward, step.reward)
            np.testing.assert_array_equal(request.step.terminated, step.terminated)
            step = expected.step(np.full(3, catch.LEFT, np.int32))


def test_a_restart_resets_environments_and_makes_them_anew_for_new_settings(serve, run):
    made, factory = counted()
    yours = dict(env="yours")
    learner = serve(yours, yours, yours | dict(envs_per_group=5))
    run(env_factory=factory)
    for number, sizes in enumerate(([3, 3], [3, 3], [3, 3, 5, 5]), start=1):
        learner.await_steps(7, f"session-{number}")
        assert made == sizes
        learner.server.restart(f"session-{number}", "try again")
    learner.await_steps(1, "session-4")
    for number in (1, 2):
        requests = [request for request in learner.requests if request.session_id == f"session-{number}"]
        assert requests[0].first.all()
        assert requests[0].sequence == 0
        expected = catch.Catch(3).reset([0, 1, 2])
        np.testing.assert_array_equal(requests[0].step.observation, expected.observation)


def test_environments_of_several_tasks_tell_their_tasks(serve, run, monkeypatch):
    made = []

    def make(env_id, settings, num_envs, *, indices=(), **others):
        made.append(list(indices))
        return scaled_catch.ScaledCatch(num_envs)

    monkeypatch.setattr(registry, "make", make)
    learner = serve(dict(indices=(4, 5, 6, 9, 8, 7)), dict(indices=(0, 1, 2, 3, 4, 5)), {})
    run()
    learner.await_steps(4, "session-1")
    assert made == [[4, 5, 6], [9, 8, 7]]
    learner.server.restart("session-1", "other places")
    learner.await_steps(4, "session-2")
    assert made[2:] == [[0, 1, 2], [3, 4, 5]]
    learner.server.restart("session-2", "an older learner tells no places")
    learner.await_steps(1, "session-3")
    assert made[4:] == [[0, 1, 2], [3, 4, 5]]
    assert learner.specs["session-1"].tasks == ("small", "large")
    assert all(request.step.task.tolist() == [0, 1, 0] for request in learner.requests)


def test_environments_of_one_task_are_kept_for_other_places(serve, run):
    made, factory = counted()
    learner = serve(dict(env="yours", indices=tuple(range(6))), dict(env="yours", indices=tuple(range(6, 12))))
    run(env_factory=factory)
    learner.await_steps(3, "session-1")
    learner.server.restart("session-1", "other places")
    learner.await_steps(3, "session-2")
    assert made == [3, 3]


def test_a_restart_with_another_role_makes_games_with_an_opponent_or_without(serve, run):
    game = dict(env="spiel:tic_tac_toe", num_groups=1, envs_per_group=2)
    learner = serve(game, game | dict(role=types.Role.EVALUATE))
    run()
    learner.await_steps(6, "session-1")
    learner.server.restart("session-1", "evaluate now")
    learner.await_steps(6, "session-2")

    def movers(session_id):
        """Returns [3, E]: who moves in the first three steps of a session."""
        requests = [request for request in learner.requests if request.session_id == session_id]
        return [request.step.observation[:, 0, 0, -1].tolist() for request in requests[:3]]

    assert movers("session-1") == [[0, 0], [1, 1], [0, 0]]
    assert movers("session-2") == [[0, 1], [0, 1], [0, 1]]


class Naming(Learner):
    """Has bots move environments 0 and 2 in each odd step; others take the first legal action."""

    def step(self, request):
        self.requests.append(request)
        self.events.put(("step", request))
        asked = (np.array([1, 0, 2], np.uint8),) if request.sequence % 2 else ()
        self.server.reply(request, request.step.action_mask.argmax(axis=1), 1, *asked)


def test_bots_move_where_the_learner_names_them_and_their_actions_are_told(address, run):
    names = ("spiel:fixed_action_preference(actions=8:7:6:5:4:3:2:1:0)", "mcts-3")
    learner = Naming(dict(env="spiel:tic_tac_toe", num_groups=1, bots=names))
    learner.serve(address)
    run()
    learner.await_steps(9)
    learner.server.stop(finished=True, reason="enough")
    assert learner.hellos[0].knows_bots
    games = registry.make("spiel:tic_tac_toe", sections.EnvConfig(), 3)
    step = games.reset((0, 1, 2))
    for number, request in enumerate(learner.requests[:9]):
        np.testing.assert_array_equal(request.step.observation, step.observation)
        played = step.action_mask.argmax(axis=1).astype(np.int32)
        if number % 2:
            told = learner.requests[number + 1].step.played if number < 8 else None
            played = games.with_bots(played, [names[0], "", names[1]])
            assert told is None or told.tolist() == played.tolist()
        else:
            assert number == 8 or learner.requests[number + 1].step.played is None
        step = games.step(played)


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (dict(bots=("no_such_module:bot",)), "bot of the league: 'no_such_module:bot': there is no module"),
        (dict(bots=("mcts-3",), env="catch"), "the learner asks for a bot's move"),
    ],
)
def test_a_bot_that_cannot_be_played_is_told_to_the_learner(address, run, assignment, reason):
    learner = Learner(dict(env="spiel:tic_tac_toe", num_groups=1) | assignment)
    learner.choose = lambda request, action: action
    learner.serve(address)
    reply = learner.server.reply
    learner.server.reply = lambda *answer: reply(*answer, np.ones(3, np.uint8))
    running = run()
    assert reason in learner.await_end() and running.code() == errors.FAILED
    learner.server.stop(finished=True, reason="enough")


def test_a_worker_with_environments_of_its_own_plays_no_bots(serve, run):
    learner = serve(dict(env="yours"))
    run(env_factory=counted()[1])
    learner.await_steps(2)
    assert not learner.hellos[0].knows_bots


def test_a_worker_resets_its_environments_at_another_host_when_its_own_dies(address, caplog):
    caplog.set_level(logging.INFO)
    learners, events = {f"{address}-{name}": Learner({}) for name in "ab"}, queue.Queue()
    for name, learner in learners.items():
        learner.events = events
        learner.serve(name, lease_seconds=0.3)
    running = Running(",".join(learners))
    try:
        events.get(timeout=DEADLINE_SECONDS)
        dying, other = sorted(learners, key=lambda name: not learners[name].hellos)
        learners[dying].server.stop(finished=False, reason="the machine is gone")
        while not (requests := learners[other].requests):
            events.get(timeout=DEADLINE_SECONDS)
        assert (requests[0].sequence, requests[0].first.all()) == (0, True)
        np.testing.assert_array_equal(requests[0].step.observation, catch.Catch(3).reset([0, 1, 2]).observation)
        joined = [line for line in caplog.messages if line.startswith("joined")]
        assert [line.split(": ")[0] for line in joined] == [f"joined {dying}", f"joined {other}"]
    finally:
        learners[other].server.stop(finished=True, reason="enough")
        running.stop.set()
        assert running.code() == errors.DONE


def test_stop_says_goodbye_and_ends_with_success(serve, run):
    learner = serve()
    running = run()
    learner.await_steps(3)
    running.stop.set()
    assert running.code() == errors.DONE
    assert learner.await_end() == "goodbye"


def test_a_worker_that_never_found_its_learner_can_be_stopped_and_says_that_it_was(run, caplog):
    caplog.set_level(logging.INFO)
    running = run()
    running.stop.set()
    assert running.code() == errors.DONE
    assert caplog.messages[-1].endswith("told to stop")


class Fragile(catch.Catch):
    def step(self, actions):
        raise ZeroDivisionError("the ball is flat")


class PanicError(BaseException):
    """As a simulator in Rust raises it by PyO3."""


class Panicking(catch.Catch):
    def step(self, actions):
        raise PanicError("index out of bounds")


def unmakeable(num_envs):
    raise OSError(f"no room for {num_envs} boards")


def unlicensed(num_envs):
    raise errors.EnvironmentFailure("the license has expired")


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (Fragile, "ZeroDivisionError: the ball is flat"),
        (Panicking, "PanicError: index out of bounds"),
        (unmakeable, "OSError: no room for 3 boards"),
        (unlicensed, "the license has expired"),
    ],
    ids=["step", "panic", "make", "own error"],
)
def test_failing_environments_end_the_worker_tell_the_learner_and_leave_others_alone(
    serve, run, caplog, factory, reason
):
    learner = serve(dict(env="yours"))
    other = run(worker_id="other", env_factory=catch.Catch)
    learner.await_steps(2)
    failing = run(worker_id="failing", env_factory=factory)
    assert failing.code() == errors.FAILED
    told = learner.await_end()
    assert told.startswith("failed")
    assert told == f"failed: {reason}" if factory is unlicensed else reason in told  # an own error is unchanged
    complaints = [record for record in caplog.records if record.name == "seedzero.worker.worker"]
    assert len([record for record in complaints if reason in record.getMessage()]) == 1
    learner.await_steps(20, "session-1")
    other.stop.set()
    assert other.code() == errors.DONE


class Gone(Fragile):
    def close(self):
        raise BrokenPipeError("the simulator is gone")


def test_an_error_of_close_does_not_hide_the_one_before_it(serve, run, caplog):
    learner = serve(dict(env="yours"))
    assert run(env_factory=Gone).code() == errors.FAILED
    assert "the ball is flat" in learner.await_end()
    assert "the ball is flat" in caplog.text and "the simulator is gone" not in caplog.text


def test_groups_are_closed_when_a_later_one_cannot_be_made_and_though_one_raises(serve, run):
    made, closed = [], []

    class Simulator(catch.Catch):
        def __init__(self, num_envs):
            if len(made) == 2:
                raise OSError("port 2000 is in use")
            super().__init__(num_envs)
            made.append(self)

        def close(self):
            closed.append(self)
            raise BrokenPipeError("the simulator is gone")

    learner = serve(dict(env="yours", num_groups=3))
    assert run(env_factory=Simulator).code() == errors.FAILED
    assert "port 2000 is in use" in learner.await_end()
    assert sorted(map(id, closed)) == sorted(map(id, made)) and len(made) == 2


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (dict(env="gym:Nowhere-v0"), "Nowhere"),
        (dict(env="atari:Ping"), "pong"),
        (dict(env="chess"), "'chess'"),
        (dict(env="yours"), "env_factory"),
        (dict(env="spiel:hanabi"), "hidden information"),
        (dict(env="gym:CartPole-v1", env_settings='{"wrappers": "[\\"ClipAction\\"]"}'), "ClipAction"),
        (dict(env_settings='{"frame_sice": 84}'), "frame_sice"),
        (dict(env_settings="[1]"), "same version"),
    ],
)
def test_what_cannot_be_made_is_told_to_the_learner(serve, run, assignment, reason):
    learner = serve(assignment)
    assert run().code() == errors.FAILED
    told = learner.await_end()
    assert told.startswith("failed")
    assert reason in told


def test_actions_out_of_range_never_reach_the_environments(serve, run):
    reached = []

    class Careful(catch.Catch):
        def step(self, actions):
            reached.append(actions)
            return super().step(actions)

    serve(dict(env="yours"), action=3)
    assert run(env_factory=Careful).code() == errors.REFUSED
    assert not reached


def masked(names):
    """Returns a factory of alike environments of Gymnasium, of which Taxi alone shows masks."""
    makers = iter(names)

    def factory(num_envs):
        name = next(makers)

        def make():
            env = gymnasium.make(name)
            env.observation_space, env.action_space = spaces.Discrete(500), spaces.Discrete(6)
            return env

        return gym_env.GymVectorEnv.from_factory(make, num_envs)

    return factory


def one_simulator():
    same = gymnasium.make("CartPole-v1")
    return lambda num_envs: gym_env.GymVectorEnv.from_factory(lambda: same, num_envs)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (lambda num_envs: catch.Catch(num_envs + 1), "expected 1"),
        (masked(["Taxi-v4", "FrozenLake-v1"]), "has_action_mask=False"),
        (one_simulator(), "environment 'yours' is the same object each time"),
    ],
    ids=["sizes", "masks", "one simulator"],
)
def test_groups_that_differ_or_are_one_are_refused(serve, run, factory, reason):
    learner = serve(dict(env="yours", envs_per_group=1))
    assert run(env_factory=factory).code() == errors.FAILED
    assert reason in learner.await_end()


def test_own_gymnasium_environments_serve_a_remote_learner(serve, run):
    learner = serve(dict(env="yours"))

    def factory(num_envs):
        return gym_env.GymVectorEnv.from_factory(lambda: gymnasium.make("CartPole-v1"), num_envs)

    run(env_factory=factory)
    learner.await_steps(10)
    assert learner.hellos[0].environments == ("yours",)
    assert learner.specs["session-1"].observation_shape == (4,)


@pytest.mark.parametrize("server", ["nonsense", "a:1,nonsense", "a:1,", "a:1,unix:/nonsense"])
def test_an_unreadable_address_is_bad_usage(caplog, server):
    assert worker.run(worker_options.WorkerOptions(server)) == errors.BAD_USAGE
    assert server in caplog.text or "'nonsense'" in caplog.text


@pytest.mark.thorough
def test_a_whole_session_of_every_family_never_imports_jax(serve, address):
    # In a process of its own: other tests put stand-ins of packages into this one.
    listed = """
        import json
        from seedzero.config import families
        # Pgx's rules are JAX functions; PettingZoo's games bring pygame; OpenEnv's need a server.
        without = ("python", "pgx", "pettingzoo", "openenv")
        offers = [family.offers[0] for family in families.FAMILIES if family.make and family.prefix not in without]
        print(json.dumps([offer.example for offer in offers if offer.state.startswith("installed")]))
    """
    envs = [*json.loads(run_script(listed).stdout), "gym:MinAtar/Breakout-v1"]
    assert {"catch", "gym:CartPole-v1", "spiel:tic_tac_toe", "atari:Pong", "memory:tmaze-20"} <= set(envs)
    learner, over = serve(dict(env=envs[0], envs_per_group=1)), set()

    def next_session():
        """Waits for six steps of a session that is not over; a worker may have lost one and taken another."""
        found = collections.Counter()
        while True:
            kind, request = learner.events.get(timeout=DEADLINE_SECONDS)
            if kind == "step" and request.session_id not in over:
                found[request.session_id] += 1
                if found[request.session_id] == 6:
                    return request.session_id

    script = """
        import json, sys
        from seedzero.worker import worker
        code = worker.main(sys.argv[1:])
        print(json.dumps([code, sorted(sys.modules)]))
    """
    finished = []
    child = threading.Thread(target=lambda: finished.append(run_script(script, f"--server={address}")))
    child.start()
    for env in envs[1:]:
        session = next_session()
        over.add(session)
        learner.assignments = [dict(env=env, envs_per_group=1)]
        learner.server.restart(session, "the next family")
    next_session()
    learner.server.stop(finished=True, reason="enough")
    child.join()
    assert finished[0].returncode == 0, finished[0].stderr
    code, modules = json.loads(finished[0].stdout)
    assert code == errors.DONE
    assert "ale_py" in modules
    assert "gymnasium" in modules
    assert "minatar" in modules
    assert "pyspiel" in modules
    heavy = ("jax", "jaxlib", "flax", "optax", "orbax", "mctx", "torch", "tensorflow", "pygame", "matplotlib")
    assert not [name for name in modules if name.split(".")[0] in heavy]
    assert not [
        name
        for name in modules
        if name.startswith(("seedzero.learner", "seedzero.learner.loop", "seedzero.agents", "seedzero.cli"))
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_process_with_goodbye_and_exit_code_0(serve, address, number):
    learner = serve()
    child = spawn(f"--server={address}", "--num_envs=6", "--role=evaluate", "--worker_id=w7", "--threads=1")
    learner.await_steps(4)
    child.send_signal(number)
    code, log = finish(child)
    assert code == 0, log
    assert learner.await_end() == "goodbye"
    assert learner.hellos[0].roles == (types.Role.EVALUATE,)
    assert learner.hellos[0].worker_id == "w7"
    lines = log.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("seedzero worker w7: ") for line in lines)
    assert "joined" in lines[0]
    assert "2 x 3 " in lines[0] and "catch" in lines[0]
    assert "done after" in lines[1]


def test_a_supervised_process_ends_with_its_supervisors_pipe_and_ignores_ctrl_c(serve, address):
    learner = serve()
    child = spawn(f"--server={address}", "--supervised")
    learner.await_steps(4)
    child.send_signal(signal.SIGINT)
    learner.await_steps(40)
    child.stdin.close()
    code, log = finish(child)
    assert code == 0, log
    assert learner.await_end() == "goodbye"


def test_a_supervised_process_ends_with_the_pipe_while_the_learner_is_away(address):
    child = spawn(f"--server={address}", "--supervised")
    child.stdin.close()
    code, log = finish(child)
    assert code == 0, log


def test_the_traceback_of_an_environment_is_logged_above_its_line(serve, run, caplog):
    serve(dict(env="yours"))
    assert run(env_factory=Fragile).code() == errors.FAILED
    (text,) = [record.getMessage() for record in caplog.records if "the ball is flat" in record.getMessage()]
    first, *_, last = text.splitlines()
    assert first == "Traceback (most recent call last):" and last.startswith("EnvironmentFailure: environments of ")
    assert text.count("  ... frames of seedzero\n") == 1 and ", in step\n" in text


def test_a_process_that_fails_says_why_and_exits_with_1(serve, address):
    serve(dict(env="gym:Nowhere-v0"))
    child = spawn(f"--server={address}")
    code, log = finish(child)
    assert code == 1
    assert log.count("EnvironmentFailure") == 1
    assert log.splitlines()[-1].startswith("EnvironmentFailure") and "Nowhere" in log.splitlines()[-1]


class Exits(catch.Catch):
    """Ends its process in its step of a number, as some simulators do."""

    def __init__(self, num_envs, leave, after):
        super().__init__(num_envs)
        self._leave, self._left = leave, after

    def step(self, actions):
        self._left -= 1
        if not self._left:
            self._leave()
        return super().step(actions)


@pytest.mark.parametrize(("after", "code"), [(2, errors.FAILED), (30, errors.FAILED_LATER)])
def test_sys_exit_is_a_failure_with_its_line_and_episodes_make_it_a_later_one(serve, run, after, code):
    learner = serve(dict(env="yours"))
    assert run(env_factory=lambda num_envs: Exits(num_envs, sys.exit, after)).code() == code
    told = learner.await_end()
    assert told.startswith("failed: environments of group ") and "SystemExit (worker/worker_test.py, line" in told


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        ("lambda: os._exit(0)", errors.FAILED, "EnvironmentFailure: an environment called os._exit(0) ("),
        ("os.abort", -signal.SIGABRT, "Fatal Python error: Aborted"),
    ],
)
def test_an_environment_that_ends_its_process_is_named_with_its_line(serve, address, how, code, told):
    serve(dict(env="yours"))
    script = f"""
        class Exits(catch.Catch):
            def step(self, actions):
                ({how})()

        if not os.fork():
            os._exit(0)  # a child's end is not a failure
        run(Exits, close_seconds=60)
    """
    ended = run_script(OWN + textwrap.dedent(script), address)
    assert ended.returncode == code
    assert told in ended.stderr and ended.stderr.count("os._exit(") == (code == errors.FAILED)
    assert re.search(r'"?, line \d+,? in (step|<lambda>)', ended.stderr)


def test_ends_may_be_lists_of_truth_values(serve, run):
    class Lists(catch.Catch):
        def step(self, actions):
            step = super().step(actions)
            return step._replace(terminated=step.terminated.tolist(), truncated=step.truncated.tolist())

    learner = serve(dict(env="yours"))
    working = run(env_factory=Lists)
    assert all(learner.events.get(timeout=DEADLINE_SECONDS)[0] == "step" for _ in range(40))
    assert any(request.step.terminated.any() for request in learner.requests)
    working.stop.set()
    assert working.code() == errors.DONE


def test_an_environment_that_never_returns_cannot_hold_a_process_that_shall_end(serve, address):
    learner = serve(dict(env="yours"))
    script = """
        class Stuck(catch.Catch):
            def step(self, actions):
                os.kill(os.getpid(), signal.SIGTERM)
                while True:
                    threading.Event().wait(1)

        run(Stuck, close_seconds=0.1)
    """
    assert run_script(OWN + textwrap.dedent(script), address).returncode == errors.FAILED
    assert learner.requests


@pytest.mark.parametrize(
    ("in_thread", "num_steps", "code"),
    [(False, 0, errors.FAILED), (True, 0, errors.FAILED), (False, 30, errors.FAILED_LATER)],
)
def test_a_failed_environment_that_cannot_be_left_cannot_hold_its_process(serve, address, in_thread, num_steps, code):
    serve(dict(env="yours"))
    script = """
        hold = threading.Event().wait

        class Stuck(catch.Catch):
            left = int(sys.argv[3])

            def step(self, actions):
                if not self.left:
                    raise ValueError("the simulator is gone")
                self.left -= 1
                return super().step(actions)

            def close(self):
                if sys.argv[2] == "True":
                    threading.Thread(target=hold).start()
                else:
                    hold()

        errors.leave(run(Stuck, close_seconds=60 if sys.argv[2] == "True" else 0.1))
    """
    ended = run_script(OWN + textwrap.dedent(script), address, str(in_thread), str(num_steps))
    assert ended.returncode == code
    line = ended.stderr.splitlines()[-1]
    assert "the simulator is gone" in line


def test_what_hanging_environments_started_ends_with_the_supervisor(serve, address, tmp_path):
    learner = serve(dict(env="yours"))
    script = """
        class Simulated(catch.Catch):
            def step(self, actions):
                code = "import sys, time; held = open(sys.argv[1], 'w'); time.sleep(600)"
                subprocess.Popen([sys.executable, "-S", "-c", code, sys.argv[2]])
                threading.Event().wait()

        run(Simulated, supervised=True, close_seconds=0.1)
    """
    os.mkfifo(tmp_path / "left")
    command = [sys.executable, "-c", OWN + textwrap.dedent(script), address, tmp_path / "left"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True) as child:
        learner.await_steps(1)
        with open(tmp_path / "left", "rb", buffering=0) as left:
            child.stdin.close()
            try:
                assert select.select([left], [], [], DEADLINE_SECONDS)[0] and left.read(1) == b""
            except AssertionError:
                os.killpg(child.pid, signal.SIGKILL)
                raise


def test_a_signal_may_come_while_another_is_handled():
    script = """
        import signal
        from seedzero.worker import worker

        def run(options, env_factory, stop, on_failure, progress):
            with stop._cond:  # as within stop.set()
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)
            return 0 if stop.wait(60) else 1

        worker.run = run
        raise SystemExit(worker.main(["--server=127.0.0.1:9"]))
    """
    assert run_script(script).returncode == errors.DONE


def test_the_end_of_training_gives_environments_all_time_to_close(serve, address):
    learner = serve(dict(env="yours"))
    script = """
        class Slow(catch.Catch):
            def close(self):
                threading.Event().wait(0.5)  # longer than the time of those that were told to stop

        sys.exit(run(Slow, close_seconds=0.01))
    """
    with subprocess.Popen([sys.executable, "-c", OWN + textwrap.dedent(script), address], cwd=ROOT) as child:
        learner.await_steps(4)
        learner.server.stop(finished=True, reason="training is over")
        assert child.wait(DEADLINE_SECONDS) == errors.DONE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "--server"), (["--server=x:1", "--num_envs=0"], "at least 1"), (["--server=x:1", "--role=idle"], "idle")],
)
def test_bad_arguments_exit_with_2(capsys, arguments, message):
    assert worker.main(arguments) == errors.BAD_USAGE
    assert message in capsys.readouterr().err


def test_the_example_of_a_remote_worker_runs(serve, address):
    learner = serve(dict(env="yours"), action=1)
    command = [sys.executable, str(ROOT / "examples" / "remote_worker.py"), f"--server={address}"]
    environment = os.environ | dict(PYTHONPATH=str(ROOT))
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    learner.await_steps(30)
    learner.server.stop(finished=True, reason="enough")
    code, log = finish(child)
    assert code == errors.DONE, log
    assert sum(request.step.reward.sum() for request in learner.requests) > 0
