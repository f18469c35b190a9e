"""`seedzero evaluate` scores a checkpoint, `play` shows an episode as a video, `export` writes programs for JAX."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from seedzero.acting.actors import agent_choice
from seedzero.api import runs
from seedzero.cli import output, parse, status
from seedzero.config import combinations, configs
from seedzero.core import env_ids, errors, opponents
from seedzero.storage.checkpoints import run_dirs

_VIDEO = "play.mp4"
_EXHAUSTIVE = "exhaustive"
_EPISODES = 20
_OF_SERVER = {
    "token_file=FILE": "transport.token_file",
    "insecure": "transport.insecure",
    "tls.cert_file=FILE": "tls.cert_file",
    "tls.key_file=FILE": "tls.key_file",
}
"""Flags of the server that --listen starts -> the settings with the same meaning."""


def run(arguments: parse.Arguments) -> int:
    """Plays episodes with a checkpoint and prints their statistics; returns the exit code."""
    opponent = arguments.flags.get("opponent")
    episodes = arguments.integer("episodes", minimum=1) or _EPISODES
    is_served = opponent is not None and opponents.is_address(opponent)
    choice, access = read_choice(arguments), _access(arguments, is_served=is_served)
    name = f"step {choice.step}, " if choice.step else f"{choice.player}, " if choice.player else ""
    amount = "every line of play" if opponent == _EXHAUSTIVE else f"{episodes} episodes"
    output.say(f"evaluating {choice.run_dir}, {name}{amount}")
    with runs.opened(choice) as here:
        if access is None:
            with output.others_aside():
                result = runs.evaluate_choice(
                    here, episodes, opponent=opponent, access=status.access(arguments) if is_served else None
                ).to_json()
        else:
            from seedzero.acting.tables import served

            reports = served.Reports(output.say, output.progress("episodes"))
            result = served.evaluate(here, episodes, access, reports)
            if unplayed := runs.unplayed(run_dirs.read_spec(here.path), result):
                output.say(unplayed)
        _report("evaluated", here, result)
        drawn = _drawn(here, result)
    if "stderr_return" in result:
        output.say(
            f"mean return {result['mean_return']:.4g}, standard error {result['stderr_return']:.2g} over "
            f"{result['episodes']} episodes"
        )
    if drawn is not None:
        output.say(f"training's newest episodes drew their actions and returned {drawn:.4g}: --policy=sample plays so")
    output.print_json(result)
    return 0


def _drawn(choice: agent_choice.AgentChoice, result: Mapping[str, Any]) -> float | None:
    """Returns the return of training's drawn actions if a greedy score is lower by more than chance, else None."""
    from seedzero.monitoring import learning_curves, symptoms

    if {"policy", "opponent", "player"} & result.keys() or "stderr_return" not in result:
        return None
    with contextlib.suppress(errors.Error):  # the score itself needed none of these files
        curve, _ = learning_curves.read(choice.path)
        config = run_dirs.read_saved(choice.path).config
        case = symptoms.RunCase(config, run_dirs.read_spec(choice.path), curve)
        score = result["mean_return"], result["std_return"], result["episodes"]
        if config.run.agent in symptoms.DRAWS and symptoms.tells_by_return(case) and symptoms.is_above(curve, *score):
            return curve.newest_return
    return None


def _access(arguments: parse.Arguments, *, is_served: bool) -> configs.Config | None:
    """Returns a configuration with the flags' address, token and certificate, or None without --listen.

    is_served: whether the opponent has its own server.
    """
    flags, listens = arguments.flags, "listen" in arguments.flags
    read: Mapping[str, str] = _OF_SERVER if listens else status.ACCESS if is_served else {}
    for flag in {**_OF_SERVER, **status.ACCESS}:
        if (name := flag.partition("=")[0]) in flags and flag not in read:
            owner = "--listen=HOST:PORT" if flag in _OF_SERVER else "--opponent=HOST:PORT"
            raise errors.UsageError(f"--{name} is for {owner}; give that too, or leave it out")
    if not listens:
        return None
    names = ("listen", *(flag.partition("=")[0] for flag in _OF_SERVER))
    given = {name: flags[name] for name in names if name in flags}
    if "player" in arguments.flags:
        raise errors.UsageError(
            f"--player={arguments.flags['player']}: frozen players play games that this machine makes itself, without "
            "--listen; leave one of them out"
        )
    if "opponent" in arguments.flags:
        raise errors.UsageError(
            f"--opponent={arguments.flags['opponent']}: the worker that --listen waits for brings the opponents; "
            "leave one of them out"
        )
    return server_config(given)


def server_config(given: Mapping[str, str]) -> configs.Config:
    """Returns a configuration with a server's settings, by SECTION.KEY or short names. Raises ConfigError."""
    remote = {"env.id": env_ids.REMOTE, "worker.num": "0"}
    config = configs.override(configs.Config(), {**remote, **given})
    combinations.check(config)
    return config


def read_step(arguments: parse.Arguments) -> runs.Step | None:
    """Returns the checkpoint that --step names, or None without the flag. Raises UsageError."""
    step = arguments.flags.get("step")
    is_number = step is not None and step.isdecimal()
    if not is_number and step not in (None, "best", "last"):
        raise errors.UsageError(f"--step={step}: expected the number of a saved update, best or last")
    return runs.checked_step(int(str(step)) if is_number else step)


def read_choice(arguments: parse.Arguments) -> agent_choice.AgentChoice:
    """Returns the saved agent that the flags of a command choose. Raises UsageError."""
    flags, step = arguments.flags, read_step(arguments)
    return runs.choose(
        flags["run_dir"],
        step,
        flags.get("player"),
        flags.get("policy"),
        trusted=arguments.switch("trust_run_dir"),
        seed=arguments.integer("seed", minimum=0) or 0,
        max_episode_steps=arguments.integer("max_episode_steps", minimum=1),
        simulations=arguments.integer("simulations", minimum=1),
    )


def _report(deed: str, choice: agent_choice.AgentChoice, result: Mapping[str, Any]) -> None:
    """Reports the checkpoint, why it was chosen, and episodes that the limit of steps ended."""
    if "player" in result:
        output.say(f"{deed} the player {result['player']}, of update {result['step']}")
        return
    if choice.step is not None:
        why = f" (--step={choice.step})"
    elif result["chosen"] == "best":
        why = ": the best by evaluation while training"
    elif choice.is_contest():
        why = ": the last one, as always where players meet each other from both sides"
    else:
        why = ": the last one, for no evaluation has chosen a best one yet (the first evaluation is a baseline)"
    output.say(f"{deed} the checkpoint of update {result['step']}{why}")
    if result.get("cut_off"):
        output.say(
            f"the limit of steps ended {result['cut_off']} of {result.get('episodes', 1)} episodes, which count with "
            "their rewards so far; --max_episode_steps=N sets another limit, --env.max_episode_steps=N that of a new "
            "run's training"
        )


def play(arguments: parse.Arguments) -> int:
    """Plays an episode into a video, or into a record on the page; returns the exit code."""
    choice = read_choice(arguments)
    if "port" in arguments.flags and not arguments.switch("page"):
        raise errors.UsageError(f"--port={arguments.flags['port']} is for --page; give that too, or leave it out")
    if arguments.flags.get("human", "false") != "false":
        from seedzero.cli import play_human

        return play_human.run(arguments, choice)
    if arguments.switch("page"):
        from seedzero.cli import play_page

        return play_page.run(arguments, choice)
    video = pathlib.Path(arguments.flags.get("video") or _free_name(pathlib.Path(_VIDEO)))
    from seedzero.acting.tables import videos

    videos.check_path(video)  # before JAX is loaded
    output.say(f"playing {choice.run_dir} into {video}")
    with runs.opened(choice) as here, output.others_aside():
        result = videos.play(here, video)
        _report("played", here, result)
    output.print_json(result)
    return 0


def _free_name(path: pathlib.Path) -> pathlib.Path:
    """Returns a path that does not exist yet: this one, or play-2.mp4 for play.mp4, and so on."""
    others = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(free for free in itertools.chain([path], others) if not os.path.lexists(free))


def export(arguments: parse.Arguments) -> int:
    """Exports a checkpoint; returns the exit code."""
    flags = arguments.flags
    manifest = runs.export_choice(
        read_choice(arguments),
        flags["out"],
        file_format=flags.get("format", "stablehlo"),
        platforms=flags.get("platforms", "cpu").split(","),
        batch_size=arguments.integer("batch_size", minimum=1),
    )
    name = f"player {manifest['player']}, of" if "player" in manifest else "checkpoint of"
    output.say(f"exported the {name} update {manifest['step']} to {flags['out']}")
    for part in ({**manifest["functions"], "parameters": manifest["parameters"]}).values():
        description = f": {part['description']}" if "description" in part else ""
        output.say(f"{part['file']}: {part['num_bytes'] / 1024:.0f} KiB{description}")
    kept = ("step", "chosen", "player", "policy", "platforms", "batch_size")
    output.print_json({"out": flags["out"], **{name: manifest[name] for name in kept if name in manifest}})
    return 0


_PLAYER = {
    "player=NAME": "a frozen player of the run's league, instead of --step; `seedzero league show` lists them; or one "
    "of the policies of --seats.policies",
}
_POLICY = {
    "policy=greedy|sample": "greedy: the best action; sample: a draw from the agent's policy "
    "(MuZero: the search's; Ape-X and R2D2 have no policy); default: as the run's evaluations "
    "(--evaluation.policy): sample in games of seats, otherwise greedy",
}
CHECKPOINT = {
    "step=N|best|last": "checkpoint: an update's number, best (by evaluations while "
    "training), or last; default: best if there is one, otherwise last; in games where players meet "
    "each other last (docs/evaluating.md)",
    **_PLAYER,
    **_POLICY,
}
SIMULATIONS = {"simulations=N": "of the agent's search at each move (default: as in training)"}
LIMIT = {
    "max_episode_steps=N": "end longer episodes here, and count their rewards so far (default: "
    "the run's evaluation.max_episode_steps); `evaluate` rejects it in "
    "games of two players, which it plays to the end",
}
COMMAND = parse.Command(
    summary="Plays episodes with a saved agent and prints their mean return as JSON.",
    usage="--run_dir=DIR [--step=N|best|last] [--episodes=N] [--seed=N] "
    "[--opponent=random|mcts-N|exhaustive|RUN_DIR|HOST:PORT]",
    flags={
        **parse.RUN_DIR,
        **CHECKPOINT,
        "episodes=N": f"number of episodes (default {_EPISODES})",
        "seed=N": "seed of the environments, of random moves and of drawn actions (default 0)",
        **LIMIT,
        **SIMULATIONS,
        "opponent=random|mcts-N|gtp:COMMAND|exhaustive|RUN_DIR|HOST:PORT": "games of two players: random moves (the "
        "default); mcts-N, OpenSpiel's bot with N simulations; gtp:COMMAND, a program that speaks the Go Text "
        "Protocol; exhaustive, every line of play of a small game once; the last checkpoint of another run; or "
        "HOST:PORT or HOST:PORT/NAME, a policy server's player. Games of two seats: random, RUN_DIR, HOST:PORT, or "
        "roshambo:BOT (roshambo:all: all 43 bots)",
        **{flag: f"of --opponent=HOST:PORT: {text}" for flag, text in status.ACCESS.items()},
        **parse.TRUST,
        "listen=HOST:PORT|unix:PATH": "runs with --env=remote: play in the environments of a worker that "
        "connects here",
        **{
            flag: f"with --listen: {configs.fields()[setting].metadata['help']}"
            for flag, setting in _OF_SERVER.items()
        },
        "token_file=FILE": "with --listen: file with the token that the worker must present; with "
        "--opponent=HOST:PORT: file with that server's token",
    },
    required=("run_dir",),
    details="""
The last line on standard output: step (the checkpoint's update), chosen (best, last or given), episodes, mean_return,
std_return, min_return, max_return, mean_length, stderr_return (standard error of mean_return, but of one episode and
of `exhaustive`), player (the name, with --player), policy (sample, if actions were drawn), cut_off (episodes that
--max_episode_steps ended, if there are any), for several tasks task_returns (the mean of each), and for Atari and
DMLab-30 human_normalized (0: random play, 1: a human; of all 30 levels the mean of the scores, each capped at 1).

Games of two players add opponent, wins, draws, losses, and the same three as `first` and `second`: with the first
move and without it, which is half of --episodes each; lengths are moves of both. Two agents without noise would
always play the same game: each pair of games begins with the same 2 random moves, by --seed, and the agents change
sides. With --policy=sample both draw their moves. The lines of `exhaustive` are counted, not weighted. In games of two
seats (hidden information, chance or simultaneous moves) against another run both draw their moves, each in the first
seat in half of the games; there the mean return counts, for stakes differ.

A run with --env=remote has its environment in a worker: `--listen=127.0.0.1:0` prints the flags for it, and waits.""",
    run=run,
)
PLAY = parse.Command(
    summary="Plays one episode with a saved agent as a video or on the page, or lets you play against the agent.",
    usage="--run_dir=DIR [--video=FILE.mp4|FILE.gif|--page|--human[=SEAT]] [--step=N|best|last] [--seed=N]",
    flags={
        **parse.RUN_DIR,
        "video=FILE.mp4|FILE.gif": f"file to write (default {_VIDEO}, or play-2.mp4 and so on if that exists)",
        "page": "instead of a video: record the episode, with the search's "
        "findings, into records/ of the run directory, and open the page at "
        "it (docs/page.md); Ctrl-C ends the page",
        "port=N": "of that page; 0, the default: any free port, which is printed",
        "human": "you play against the agent, in any game of two or more seats; --human=second, or the name or number "
        "of a seat, instead of the first one. Each game is recorded as records/human-N.npz of the run directory",
        **SIMULATIONS,
        **CHECKPOINT,
        "seed=N": "seed of the environment and of drawn actions (default 0)",
        **LIMIT,
        **parse.TRUST,
    },
    required=("run_dir",),
    details="""
With --human a line is a move, by its number or its name, or one of undo, hint, think, resign, new, sides, help and
quit. You see your seat's view alone. Moves can be taken back where nothing is hidden. The last line on standard
output: step, chosen, player and policy as of `evaluate`, wins, draws, losses, and records, the files of all games.""",
    run=play,
)
EXPORT = parse.Command(
    summary="Writes a saved agent as StableHLO programs that need only JAX.",
    usage="--run_dir=DIR --out=DIR [--step=N|best|last] [--format=stablehlo] [--platforms=cpu,cuda,tpu]",
    flags={
        **parse.RUN_DIR,
        "out=DIR": "directory to write; an earlier export there is replaced as a whole",
        "step=N|best|last": CHECKPOINT["step=N|best|last"],
        **_PLAYER,
        **_POLICY,
        "format=stablehlo": "stablehlo (the default): programs of jax.export",
        "platforms=NAMES": "platforms that the programs run on, of cpu, cuda, rocm, tpu (default cpu)",
        "batch_size=N": "rows of all inputs (default: any number)",
        **parse.TRUST,
    },
    required=("run_dir", "out"),
    details="""
Needs the package flatbuffers. OUT has manifest.json (names, shapes, dtypes and the call), parameters.npz and
a file for each function: act, from newest frames to actions with everything that a row carries; for MuZero represent,
predict and dynamics, too. Every input and output is an array by name. docs/python.md has the call. With
--policy=sample, act draws actions from its input key: two new numbers each call.

Without --batch_size programs take batches of any size. With cpu among the platforms all compute in float32.""",
    run=export,
)
