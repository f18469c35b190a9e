"""The table of rules between settings: each row provokes one, and every rule has a row.

A row has a preset with settings, as on a command line, and what is found: for an error the setting that it is about,
for a warning `warning SETTING`, and for a note `note SETTING=VALUE`.
"""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from seedzero.config import combinations, configs, presets, rules
from seedzero.core import errors, types

SEATS = ("first", "second")
TEAMS = ("left_0", "left_1", "right_0")
AGENTS = ("adversary_0", "adversary_1", "agent_0")


def _seats(*names: str, fixed: bool = False, shape: tuple[int, ...] = (4,)) -> types.EnvSpec:
    return types.EnvSpec(shape, "float32", 2, seats=names, tasks=names, fixed_seats=fixed)


SPECS = {
    "alone": types.EnvSpec((4,), "float32", 2),
    "continuous": types.EnvSpec((4,), "float32", 0, action_low=(-1.0,), action_high=(1.0,)),
    "grid": types.EnvSpec((9, 4, 1), "float32", 2),
    "two players": types.EnvSpec((4,), "float32", 2, num_players=2),
    "moves again": types.EnvSpec((4,), "float32", 2, num_players=2, moves_again=True, has_chance=True),
    "two continuous": types.EnvSpec((4,), "float32", 0, num_players=2, action_low=(-1.0,), action_high=(1.0,)),
    "three players": types.EnvSpec((4,), "float32", 2, num_players=3),
    "two seats": _seats(*SEATS),
    "three seats": _seats(*SEATS, "third"),
    "teams": _seats(*TEAMS, fixed=True),
    "agents": _seats(*AGENTS, fixed=True),
    "three sides": _seats("wolf", "dog", "sheep", fixed=True),
    "one side": _seats("cart_0", "cart_1", "cart_2", fixed=True),
    "pictures": _seats(*AGENTS, fixed=True, shape=(64, 64, 3)),
}
PUCT = "--search.policy=puct --search.temperature=0"
MANY = "league-tictactoe --league.main_exploiters=1 --optimizer.schedule=constant"
MOST = "league-tictactoe --league.max_players=2 --worker.num_groups=4 --optimizer.schedule=constant"
MEMBERS = "league-tictactoe --league.members=random,mcts-50,my_bots:clever"
MODEL = "league-tictactoe --league.opponent_model=true"
CORRECTED = "--muzero.off_policy_correction --muzero.target_network_updates=3"
EIGHT, FOUR = "catch --training.num_devices=8", "catch --training.num_devices=4 --replay.num_slots=32"
THREE = f"{EIGHT} --training.acting_devices=3"
ORDER = f"{EIGHT} --deterministic --workers=1 --worker.num_groups=1"
HOSTS = "catch --cluster.num_hosts=2 --cluster.index=1 --cluster.coordinator=host-0:7000 --token_file=token"
EACH = "agents --agent=ppo --seats.policies=each"
ROUNDS = "'--env=spiel:repeated_game(stage_game=matrix_rps(),num_repetitions=9)'"
WHOLE = "--worker.envs_per_group=6 --evaluation.num_envs=6 --evaluation.episodes=12"
SIDES = f"catch --agent=ppo --league.freeze_every=500 {WHOLE}"

REFUSED = (
    # environments
    ("tictactoe --env.opponents=random,stockfish", "env.opponents", "--env.opponents=random,mcts-100"),
    ("catch --env.opponents=random,roshambo:pibot", "env.opponents", "--env.opponents=random"),
    ("roshambo --env=catch", "env.opponents", "--env.opponents=random"),
    ("pgx --agent=alphazero --env=spiel:tic_tac_toe", "env.id", "--env=pgx:GAME"),
    ("pgx --agent=alphazero --env=remote --workers=0", "env.id", "--env=pgx:GAME"),
    (
        "tictactoe --env.opponents=random,mcts-9 --evaluation.num_envs=3",
        "evaluation.num_envs",
        "--evaluation.num_envs=4",
    ),
    (
        "tictactoe --env.opponents=random,mcts-9 --evaluation.episodes=3",
        "evaluation.episodes",
        "--evaluation.episodes=4",
    ),
    ("catch --env.kwargs={}", "env.kwargs", "--env=catch"),
    ("atari --env.wrappers=[]", "env.wrappers", "--env=atari:Pong"),
    ("catch --env.max_episode_steps=9", "env.max_episode_steps", "--env=catch"),
    ("catch --metrics.info_keys=success", "env.info_keys", "omit it, or have your worker send Step.info"),
    ("catch --dmlab.level_cache=levels", "env.level_cache", "--env=catch"),
    ("catch --dmlab.level_seeds=9", "env.level_seeds", "--env=catch"),
    ("catch --env.checkpoint_rewards", "env.checkpoint_rewards", "--env=catch"),
    ("pgx --agent=alphazero --env.game_state --env=catch", "env.id", "--env=pgx:GAME"),
    ("catch --env.game_state", "env.game_state", "--env=catch"),
    ("pgx --agent=muzero --env.game_state", "env.game_state", "--agent=muzero"),
    ("agents --agent=ppo --env.joint_observation", "env.joint_observation", "--ppo.central_value=true"),
    ("catch --agent=ppo --env.joint_observation", "env.joint_observation", "--env=catch"),
    # hosts
    (f"{HOSTS} --cluster.index=2", "cluster.index", "--cluster.num_hosts=2 has hosts 0 to 1"),
    (f"{HOSTS} --cluster.num_hosts=1", "cluster.index", "give the number of all hosts"),
    (f"{HOSTS} --cluster.coordinator=", "cluster.index", "--cluster.coordinator=HOST:PORT"),
    (f"{HOSTS} --cluster.coordinator=host-0", "cluster.coordinator", "expected HOST:PORT, an address of host 0"),
    (f"{HOSTS} --token_file=", "cluster.coordinator", "--token_file=FILE"),
    (f"{HOSTS} --league.freeze_every=1000 --env=spiel:tic_tac_toe", "cluster.num_hosts", "--league.freeze_every=0"),
    ("league-kuhn --cluster.num_hosts=2", "cluster.num_hosts", "--league.freeze_every=0"),
    (f"{HOSTS} --training.acting_devices=1", "cluster.num_hosts", "--training.acting_devices=0"),
    (f"{HOSTS} --replay.placement=host", "cluster.num_hosts", "--replay.placement=device"),
    (f"{HOSTS} --checkpoint.keep=1", "cluster.num_hosts", "--checkpoint.keep=2 or more"),
    # connections
    ("catch --env=remote --workers=2", "worker.num", "--workers=2; leave it out"),
    ("catch --listen=localhost", "transport.listen", "HOST:PORT (port 0: any free one) or unix:PATH"),
    ("catch --listen=localhost:http", "transport.listen", "HOST:PORT (port 0: any free one) or unix:PATH"),
    (
        "catch --transport.max_workers=3 --workers=2 --worker.num_remote=1",
        "transport.max_workers",
        "--transport.max_workers=4",
    ),
    ("catch --batcher.max_batch=8", "batcher.max_batch", "--batcher.max_batch=16 or more"),
    ("catch --listen=0.0.0.0:7777", "transport.listen", "--token_file=FILE"),
    ("catch --listen=[::]:7777", "transport.listen", "--token_file=FILE"),
    ("catch --listen=learner.example:7777", "transport.listen", "--token_file=FILE"),
    ("catch --serve.token_file=pool", "serve.token_file", "--listen=HOST:PORT"),
    ("catch --metrics_port=0 --metrics_host=", "metrics.host", "127.0.0.1 (this machine)"),
    ("catch --tls.cert_file=cert.pem", "tls.cert_file", "--tls.key_file=FILE too"),
    ("catch --tls.key_file=key.pem", "tls.key_file", "--tls.cert_file=FILE too"),
    ("catch --tls.cert_file=c --tls.key_file=k", "tls.cert_file", "--listen=HOST:PORT"),
    # lock step
    ("catch --deterministic --workers=0", "run.deterministic", "--workers=1"),
    ("catch --deterministic --workers=0 --env=remote", "run.deterministic", "--env=remote"),
    ("catch --deterministic --worker.num_remote=2", "run.deterministic", "--worker.num_remote=0"),
    ("catch --deterministic --batcher.max_batch=16", "run.deterministic", "--batcher.max_batch=32"),
    ("catch --deterministic --checkpoint.replay=off", "run.deterministic", "--checkpoint.replay=off"),
    # replay and evaluations
    ("catch --replay.num_slots=31", "replay.num_slots", "--replay.num_slots=32"),
    ("catch --agent=vtrace --replay.num_slots=31", "replay.num_slots", "--replay.num_slots=32"),
    ("catch --training.acting_devices=2 --replay.placement=host", "replay.placement", "--training.acting_devices=2"),
    ("catch --replay.final_updates=5", "replay.final_updates", "--max_env_steps=N"),
    ("catch --replay.min_steps=100000", "replay.min_steps", "replay.capacity=32000"),
    ("catch --replay.num_slots=40 --replay.num_envs=41", "replay.num_envs", "replay.num_slots=40"),
    ("catch --replay.capacity=500 --replay.min_steps=100", "replay.capacity", "give at least 512"),
    ("catch --replay.capacity=1000 --replay.num_slots=400", "replay.capacity", "give at least 6400"),
    (
        "catch --muzero.memory=lstm --muzero.burn_in=1000 --replay.capacity=32000",
        "replay.capacity",
        "give at least 32608",
    ),
    ("catch --evaluation.every_updates=0", "run.stop_at_return", "--evaluation.every_updates=N"),
    (
        "catch --evaluation.video_every=2 --evaluation.every_updates=0 --stop_at_return=inf",
        "evaluation.video_every",
        "evaluation.every_updates=0",
    ),
    (
        "catch --evaluation.video_every=2 --metrics.tensorboard=false",
        "evaluation.video_every",
        "--metrics.tensorboard=false",
    ),
    ("catch --evaluation.video_every=2 --env=remote --workers=0", "evaluation.video_every", "--env=remote"),
    # leagues
    (
        "catch --league.freeze_every=500 --muzero.off_policy_correction",
        "muzero.off_policy_correction",
        "--league.freeze_every=500",
    ),
    (
        "catch --league.builder=alphastar --muzero.off_policy_correction",
        "muzero.off_policy_correction",
        "--league.builder=alphastar",
    ),
    ("catch --league.freeze_every=500 --muzero.memory=lstm", "muzero.memory", "--muzero.memory=none"),
    ("league-kuhn --agent=ppo --league.opponent_model=true", "league.opponent_model", "leave it out"),
    ("seats --agent=ppo --league.opponent_model=true", "league.opponent_model", "leave it out"),
    (f"{MODEL} --league.freeze_every=0", "league.opponent_model", "--league.freeze_every=N"),
    (f"{MODEL} --muzero.policy_gradient_weight=0.5", "muzero.policy_gradient_weight", "--league.opponent_model=true"),
    (f"{MODEL} --muzero.search_value_age=3", "muzero.search_value_age", "--league.opponent_model=true"),
    (f"{MODEL} --reanalyse.fresh_share=0.5", "reanalyse.fresh_share", "--league.opponent_model=true"),
    (f"{MEMBERS} --league.members=best", "league.members", "N is a bot's simulations, up to 9999999"),
    (f"{MEMBERS} --league.members=random,random", "league.members", "N is a bot's simulations, up to 9999999"),
    (f"{MEMBERS} --league.members=os:getcwd", "league.members", "expected one with your own function"),
    (f"{MEMBERS} --league.freeze_every=0", "league.members", "--league.freeze_every=N"),
    (f"{MEMBERS} --league.opponent_model", "league.members", "--league.opponent_model=true"),
    (f"{MEMBERS} --env=remote --workers=0", "league.members", "--league.members=, or such a game"),
    (
        f"{MEMBERS} --env=pgx:hex --league.members=mcts-50,spiel:uniform_random",
        "league.members",
        "--league.members=, or such a game",
    ),
    ("roshambo --env=catch --env.opponents=random", "league.members", "--league.members=, or such a game"),
    ("catch --league.main_players=2", "league.main_players", "--league.builder=alphastar"),
    ("catch --league.main_exploiters=1", "league.main_exploiters", "--league.builder=alphastar"),
    ("catch --league.league_exploiters=1", "league.league_exploiters", "--league.builder=alphastar"),
    ("catch --league.max_players=3", "league.max_players", "--league.builder=MODULE:FUNCTION"),
    (f"{MOST} --league.freeze_every=0", "league.max_players", "--league.builder=MODULE:FUNCTION"),
    (f"{MOST} --league.main_players=3", "league.max_players", "--league.max_players=3"),
    (MOST, "league.max_players", "--league.builder=alphastar"),
    (f"{MOST} --league.builder=self_play", "league.max_players", "--league.builder=alphastar"),
    (f"{MOST} --league.builder=alphastar", "league.max_players", "keep_training_probability"),
    (
        f"{MOST} --league.builder=alphastar "
        """'--league.builder_args={"keep_training_probability": {"main": 0}}'""",
        "league.max_players",
        "keep_training_probability",
    ),
    (f"{MANY} --max_env_steps=1000", "run.max_env_steps", "--max_env_steps=0"),
    (f"{MANY} --training.acting_devices=1", "training.acting_devices", "leave it out"),
    (f"{MANY} --replay.placement=host", "replay.placement", "--replay.placement=device"),
    (f"{MANY} --worker.num_groups=1", "worker.num_groups", "--worker.num_groups=2"),
    (
        "catch --league.builder=my_rules:build --league.max_players=40 --worker.num_groups=4",
        "worker.num_groups",
        "--worker.num_groups=40",
    ),
    (
        f"{MANY} --optimizer.schedule=cosine --league.builder=alphastar",
        "league.builder",
        "--optimizer.schedule=constant",
    ),
    (
        "league-kuhn --agent=ppo --league.builder=alphastar --optimizer.decay_updates=100",
        "league.builder",
        "--optimizer.decay_updates=0",
    ),
    (
        f"{MANY} --muzero.search_value_start=900 --league.builder=alphastar",
        "muzero.search_value_start",
        "--muzero.search_value_start=0",
    ),
    ("catch --league.builder=alphastr", "league.builder", "expected MODULE:FUNCTION, as in"),
    ("catch --league.builder=os:abort", "league.builder", "expected one with your own function, or"),
    (
        """catch --league.builder=alphastar '--league.builder_args={"min_games": -1}'""",
        "league.builder_args",
        "it must be at least 0 and at most 2147483647",
    ),
    ("catch --league.freeze_every=500 --league.builder_args=[7]", "league.builder_args", "expected a JSON object"),
    # seats
    (f"{EACH} --ppo.central_value --env=gym:CartPole-v1", "ppo.central_value", "--env=pettingzoo:MODULE"),
    (f"{EACH} --seats.policies=wolves", "seats.policies", "expected shared, each, or a JSON object"),
    (f"{EACH} --league.freeze_every=500", "seats.policies", "--league.freeze_every=0"),
    ("league-goofspiel --agent=ppo --seats.policies=each", "seats.policies", "--league.freeze_every=0"),
    (f"{EACH} --training.num_devices=2", "training.num_devices", "--training.num_devices=1"),
    (f"{EACH} --max_env_steps=1000", "run.max_env_steps", "--max_env_steps=0"),
    (f"{EACH} --cluster.num_hosts=2 --cluster.coordinator=localhost:1", "cluster.num_hosts", "--cluster.num_hosts=1"),
    # agents
    (f"catch {PUCT} --muzero.off_policy_correction", "muzero.off_policy_correction", "--search.temperature=1"),
    (f"catch {PUCT} --muzero.policy_gradient_weight=0.5", "muzero.policy_gradient_weight", "--search.temperature=1"),
    (
        "pgx --agent=alphazero --alphazero.win_draw_loss --reward.discount=0.9 --env.game_state",
        "alphazero.win_draw_loss",
        "--reward.discount=1",
    ),
    ("catch --muzero.value_prefix --muzero.memory=gru", "muzero.memory", "--muzero.value_prefix=true"),
    ("catch --muzero.chance_codes=32 --muzero.memory=lstm", "muzero.chance_codes", "--muzero.memory=lstm"),
    ("catch --muzero.chance_codes=32 --muzero.value_prefix", "muzero.chance_codes", "--muzero.value_prefix=true"),
    ("cartpole --agent=apex --evaluation.policy=sample", "evaluation.policy", "leave it out"),
    ("cartpole --agent=r2d2 --evaluation.policy=sample", "evaluation.policy", "leave it out"),
    ("cartpole --agent=r2d2 --network.lstm_width=0", "network.lstm_width", "--network.lstm_width=64"),
    (
        "catch --agent=ppo --network.lstm_width=8 --ppo.batch_size=3 --ppo.num_minibatches=4",
        "ppo.num_minibatches",
        "--ppo.num_minibatches=3",
    ),
    ("catch --agent=ppo --ppo.bonus=own:make --ppo.bonus_place=before", "ppo.bonus_place", "--reward.normalize=false"),
    ("catch --network.module=a:b --muzero.consistency_weight=1", "network.module", "--muzero.consistency_weight=0"),
    ("catch --network.module=a:b --muzero.value_prefix", "network.module", "--muzero.consistency_weight=0"),
    ("catch --network.module=a:b --muzero.predict_ends", "network.module", "--muzero.consistency_weight=0"),
    ("catch --network.module=a:b --muzero.memory=lstm", "network.module", "--muzero.consistency_weight=0"),
    ("catch --network.module=a:b --muzero.chance_codes=2", "network.module", "--muzero.consistency_weight=0"),
    (
        "catch --muzero.consistency_steps=9 --muzero.unroll_steps=8",
        "muzero.consistency_steps",
        "give at most that, or 0 for all",
    ),
    ("catch --muzero.off_policy_correction", "muzero.off_policy_correction", "--muzero.target_network_updates=100"),
    ("cartpole --agent=sac --env=gym:A --replay.priority_alpha=0.6", "replay.priority_alpha", "leave it out"),
    ("catch --optimizer.schedule=exponential --optimizer.decay_rate=0", "optimizer.decay_rate", "a factor above 0"),
)
"""Settings that exclude each other, the one that the first error is about, and a fact of its text."""

POSSIBLE = (
    "catch",
    "catch --replay.capacity=1000 --replay.num_slots=400 --replay.num_envs=32",  # rings of those who join later
    *(f"catch --listen={address}" for address in ("127.0.0.1:0", "127.0.0.2:1", "localhost:1", "[::1]:7777")),
    *(f"catch --listen={address}" for address in ("unix:/tmp/a.sock", "")),
    "catch --listen=0.0.0.0:7777 --token_file=token",
    "catch --listen=0.0.0.0:7777 --insecure",
    "catch --transport.max_workers=1 --workers=1 --stop_at_return=inf --evaluation.every_updates=0",
    "catch --transport.max_workers=2 --workers=0",
    "catch --transport.max_workers=2 --workers=1",
    "catch --transport.max_workers=1 --workers=0 --env=remote",
    "catch --max_updates=3 --max_seconds=2 --max_env_steps=5",
    "catch --agent=vtrace --replay.min_steps=100000 --replay.capacity=500",  # it has a queue
    "catch --agent=apex --league.freeze_every=500 --muzero.off_policy_correction",  # it reads neither
    "catch --optimizer.schedule=linear --optimizer.decay_rate=0",
    "catch --optimizer.schedule=exponential --optimizer.decay_rate=0 --optimizer.decay_updates=0",
    "pgx --agent=alphazero --env=pgx:hex --env.game_state",
    "pgx --agent=alphazero --alphazero.win_draw_loss --env.game_state",
    f"catch --env.opponents=random,roshambo:pibot {ROUNDS}",
    "tictactoe --env.opponents=random,mcts-9 --evaluation.num_envs=4 --evaluation.episodes=4",
    "roshambo --env=catch --env.opponents=random --league.members=",
    "agents --agent=ppo --ppo.central_value --env.joint_observation",
    HOSTS,
    f"{HOSTS} --cluster.num_hosts=1 --cluster.index=0",
    *(f"{HOSTS} --agent={agent}" for agent in ("vtrace", "apex", "r2d2", "ppo")),
    f"{HOSTS} --agent=sac --env=gym:A",
    f"{HOSTS} --agent=alphazero --env=pgx:A --env.game_state --stop_at_return=inf",
    "catch --cluster.num_hosts=2",  # all on this machine
    f"{MANY} --training.num_devices=2",
    f"{MOST} --league.builder=alphastar "
    """'--league.builder_args={"keep_training_probability": {"main_exploiter": 0.5}}'""",
    "league-tictactoe --league.builder=my_rules:build --league.max_players=4 --worker.num_groups=4 "
    "--optimizer.schedule=constant",
    MODEL,
    MEMBERS,
    f"{MEMBERS} --env=remote --workers=0 --league.members=random",
    f"{MEMBERS} --env=pgx:hex",
    EACH,
    "catch --agent=ppo --ppo.bonus=own:make --ppo.bonus_place=before --reward.normalize=false",
    "catch --agent=ppo --ppo.bonus=own:make --ppo.bonus_place=after",
    "catch --agent=ppo --ppo.bonus_place=before",
    "catch --agent=vtrace --ppo.bonus=own:make --ppo.bonus_place=before",
    f"catch {CORRECTED}",
    "catch --muzero.off_policy_correction --reanalyse.fresh_share=1",
    "catch --network.module=a:b",
    "catch --agent=apex --network.module=a:b",
    "catch --muzero.consistency_steps=8 --muzero.unroll_steps=8",
)

REFUSED_BY_ENVIRONMENT = (
    ("alone", "catch --agent=sac", "run.agent", "--agent=muzero|vtrace|apex|r2d2|ppo"),
    ("two players", "catch --agent=apex --env=spiel:tic_tac_toe", "run.agent", "--agent=muzero|vtrace|ppo"),
    ("three players", "catch", "run.agent", "no agent does"),
    ("continuous", "catch --agent=vtrace --env=gym:Pendulum-v1", "run.agent", "--agent=muzero|ppo|sac"),
    ("two seats", "catch --env=spiel:kuhn_poker", "run.agent", "--agent=vtrace|apex|r2d2|ppo"),
    ("two seats", "catch --agent=sac --env=spiel:kuhn_poker", "run.agent", "--agent=vtrace|apex|r2d2|ppo"),
    (
        "three seats",
        "catch --agent=ppo --env=spiel:kuhn_poker",
        "worker.envs_per_group",
        "give a multiple of 3, such as 18",
    ),
    (
        "agents",
        "catch --agent=ppo --worker.envs_per_group=6 --evaluation.num_envs=10",
        "evaluation.num_envs",
        "give a multiple of 3, such as 12",
    ),
    (
        "agents",
        f"catch --agent=ppo {WHOLE} --evaluation.episodes=10",
        "evaluation.episodes",
        "give a multiple of 3, such as 12",
    ),
    ("teams", f"{SIDES} --evaluation.num_envs=9", "evaluation.num_envs", "give a multiple of 6, such as 12"),
    ("alone", "catch --league.freeze_every=500", "league.freeze_every", "has 1 player; give --env=spiel:GAME"),
    (
        "continuous",
        "catch --league.freeze_every=500",
        "league.freeze_every",
        "has continuous actions; give --env=spiel:GAME",
    ),
    (
        "two continuous",
        "catch --league.freeze_every=500",
        "league.freeze_every",
        "has continuous actions; give --env=spiel:GAME",
    ),
    (
        "continuous",
        "catch --league.builder=alphastar",
        "league.freeze_every",
        "has continuous actions; give --env=spiel:GAME",
    ),
    ("three seats", f"{SIDES} --env=spiel:kuhn_poker", "league.freeze_every", "has 3 seats; give --env=spiel:GAME"),
    ("three sides", SIDES, "league.freeze_every", "--league.freeze_every=0"),
    ("one side", SIDES, "league.freeze_every", "--league.freeze_every=0"),
    (
        "two players",
        "catch --league.builder=biased --env=spiel:tic_tac_toe",
        "league.builder",
        "--env=spiel:matrix_brps",
    ),
    ("teams", f"{SIDES} --league.builder=biased", "league.builder", "--env=spiel:matrix_brps"),
    ("teams", f"{SIDES} --agent=vtrace", "run.agent", "--agent=ppo"),
    ("teams", f"{SIDES} --env=remote", "env.id", "--env=pettingzoo:MODULE:FUNCTION"),
    ("teams", f"{SIDES} --ppo.central_value", "ppo.central_value", "--ppo.central_value=false"),
    ("teams", f"{SIDES} --network.lstm_width=32", "network.lstm_width", "--network.lstm_width=0"),
    ("teams", f"{SIDES} --training.num_devices=2", "training.num_devices", "--training.num_devices=1"),
    ("teams", f"{SIDES} --league.main_players=2", "league.main_players", "--league.main_players=1"),
    ("teams", f"{SIDES} --league.main_exploiters=1", "league.main_exploiters", "--league.main_exploiters=0"),
    ("teams", f"{SIDES} --league.league_exploiters=1", "league.league_exploiters", "--league.league_exploiters=0"),
    ("teams", f"{SIDES} --league.max_players=2", "league.max_players", "--league.max_players=1"),
    ("alone", EACH, "seats.policies", "--env=pettingzoo:MODULE"),
    ("two seats", EACH, "seats.policies", "--env=pettingzoo:MODULE"),
    (
        "agents",
        f"""{EACH} {WHOLE} '--seats.policies={{"wolf": "a"}}'""",
        "seats.policies",
        'add a pattern, such as "*" at the end',
    ),
    ("alone", "agents --agent=ppo --ppo.central_value", "ppo.central_value", "--ppo.central_value=false"),
    ("pictures", f"agents --agent=ppo --ppo.central_value {WHOLE}", "ppo.central_value", "--ppo.central_value=false"),
    *(
        (
            "two players",
            f"catch --agent={agent} --network.frame_stack=4",
            "network.frame_stack",
            "give --network.frame_stack=1",
        )
        for agent in ("muzero", "ppo", "vtrace")
    ),
    ("two players", "catch --agent=ppo --network.lstm_width=4", "network.lstm_width", "--network.lstm_width=0"),
    ("two players", "catch --agent=ppo --ppo.bonus=my_module:bonus", "ppo.bonus", "leave it out"),
    ("two players", "catch --muzero.memory=gru", "muzero.memory", "--muzero.memory=none"),
    ("two players", "catch --explore.epsilon=1", "explore.epsilon", "--explore.epsilon=0"),
    ("two players", "catch --explore.first_steps=1", "explore.first_steps", "--explore.first_steps=0"),
    *(
        (
            "moves again",
            f"catch --agent={agent} --league.freeze_every=100",
            "league.freeze_every",
            "give --league.freeze_every=0",
        )
        for agent in ("muzero", "alphazero", "ppo", "vtrace")
    ),
    *(
        (
            "two players",
            f"catch --agent={agent} --league.freeze_every=10 --{agent}.n_step=1",
            f"{agent}.n_step",
            f"give --{agent}.n_step=2 or more",
        )
        for agent in ("muzero", "alphazero")
    ),
    ("moves again", "catch --network.module=my_module:make", "network.module", "leave it out"),
    ("continuous", "catch --muzero.chance_codes=2", "muzero.chance_codes", "--muzero.chance_codes=0"),
    ("two players", "catch --muzero.chance_codes=2", "muzero.chance_codes", "--muzero.chance_codes=0"),
    (
        "alone",
        "catch --env=spiel:mastermind --muzero.chance_codes=2",
        "muzero.chance_codes",
        "--muzero.chance_codes=0",
    ),
    ("alone", "catch --muzero.shift_pixels=2", "muzero.shift_pixels", "--muzero.shift_pixels=0"),
    ("alone", "catch --muzero.intensity_scale=0.1", "muzero.intensity_scale", "--muzero.intensity_scale=0"),
    ("grid", "catch --muzero.shift_pixels=4", "muzero.shift_pixels", "give less"),
    ("continuous", f"catch {CORRECTED}", "muzero.off_policy_correction", "--muzero.off_policy_correction=false"),
    (
        "continuous",
        "catch --muzero.policy_gradient_weight=0.5",
        "muzero.policy_gradient_weight",
        "--muzero.policy_gradient_weight=0",
    ),
)
"""What the environment has, settings that do not go with it, the one of the first error, and a fact of its text."""

PLAYED = (
    *(("alone", f"catch --agent={agent}") for agent in configs.agent_names() if agent != "sac"),
    *(("two seats", f"catch --agent={agent} --env=spiel:kuhn_poker") for agent in ("ppo", "vtrace", "apex", "r2d2")),
    ("two players", "catch"),
    ("continuous", "catch"),
    ("two players", "catch --league.freeze_every=500"),
    ("two seats", "catch --agent=ppo --league.freeze_every=500 --env=spiel:kuhn_poker"),
    ("alone", "catch --agent=apex --league.freeze_every=500"),
    ("teams", SIDES),
    ("alone", "agents --agent=ppo --seats.policies=shared"),
    ("two seats", "agents --agent=ppo --seats.policies=shared"),
    ("agents", f"{EACH} {WHOLE}"),
    ("agents", f"agents --agent=ppo --ppo.central_value {WHOLE}"),
    ("alone", "catch --network.frame_stack=4 --explore.epsilon=1 --muzero.memory=gru"),
    ("alone", "catch --agent=ppo --network.frame_stack=4 --network.lstm_width=4 --ppo.bonus=my_module:bonus"),
    ("two players", "catch --agent=alphazero --league.freeze_every=10 --alphazero.n_step=2"),
    ("moves again", "catch --muzero.chance_codes=2"),
    ("alone", "catch --muzero.chance_codes=2 --network.module=my_module:make"),
    ("grid", "catch --muzero.shift_pixels=3 --muzero.intensity_scale=0.1"),
    ("alone", f"catch {CORRECTED} --muzero.policy_gradient_weight=0.5"),
)

REFUSED_BY_DEVICES = (
    ("begins", f"{FOUR} --replay.batch_size=130", "training.num_devices", "--replay.batch_size=132"),
    ("begins", f"{FOUR} --agent=vtrace --vtrace.batch_size=30", "training.num_devices", "--vtrace.batch_size=32"),
    (
        "begins",
        f"{FOUR} --reanalyse.batch_size=30 --reanalyse.per_insert=1",
        "training.num_devices",
        "--reanalyse.batch_size=32",
    ),
    (
        "begins",
        f"{THREE} --replay.num_slots=33 --replay.batch_size=24",
        "training.num_devices",
        "--replay.batch_size=30",
    ),
    (
        "begins",
        f"{THREE} --replay.num_slots=32 --replay.batch_size=30",
        "training.num_devices",
        "--replay.num_slots=33",
    ),
    (
        "continues",
        f"{EIGHT} --replay.num_slots=20 --replay.batch_size=120",
        "training.num_devices",
        "--training.acting_devices=2 or 4 or 5",
    ),
    (
        "continues",
        "catch --training.num_devices=5 --replay.num_slots=9 --replay.batch_size=21",
        "training.num_devices",
        "--training.num_devices=3 --training.acting_devices=0",
    ),
    (
        "begins",
        f"{EIGHT} --training.acting_devices=8",
        "training.acting_devices",
        "give 7 or less, or 0: all act and learn",
    ),
    (
        "begins",
        "catch --training.num_devices=1 --training.acting_devices=1",
        "training.acting_devices",
        "give 0: all act and learn",
    ),
    (
        "begins",
        f"{ORDER} --worker.envs_per_group=20 --replay.num_slots=24",
        "run.deterministic",
        "multiple of 8 environments, or --training.num_devices=7",
    ),
    (
        "begins",
        f"{ORDER} --worker.envs_per_group=16 --replay.num_slots=32",
        "run.deterministic",
        "16 environments leave devices without any",
    ),
)
"""Whether a run begins or continues, settings, the one of the first error with these devices, and a fact of it."""

SHARED = (
    f"{THREE} --replay.num_slots=33 --replay.batch_size=30",
    f"{ORDER} --worker.envs_per_group=16 --replay.num_slots=16",
    f"{FOUR} --reanalyse.batch_size=30",
    f"{FOUR} --agent=vtrace --vtrace.batch_size=32",
    "league-tictactoe --league.main_exploiters=1 --training.num_devices=7 --replay.num_slots=96",
)

FOUND = (
    ("catch --env=remote", "note worker.num=0, note run.stop_at_return=inf, note evaluation.pauses_training=false"),
    ("catch --env=remote --workers=2 --stop_at_return=1 --evaluation.pauses_training", ""),
    ("catch --env=gym:X-v0", "note run.stop_at_return=inf, note evaluation.pauses_training=false"),
    ("catch --env=gym:X-v0 --stop_at_return=1 --evaluation.pauses_training", ""),
    ("tictactoe --env=spiel:othello", "note run.max_updates=0"),
    ("tictactoe --env=spiel:othello --max_updates=9", ""),
    ("cartpole --env.max_episode_steps=9", "note run.stop_at_return=inf"),
    ("""cartpole '--env.wrappers=["ClipReward"]'""", "note run.stop_at_return=inf"),
    ("""cartpole '--env.kwargs={"a": 1}'""", "note run.stop_at_return=inf"),
    ("cartpole --evaluation.max_episode_steps=9", "note run.stop_at_return=inf"),
    ("cartpole --env.kwargs={} --env.wrappers=[]", ""),
    (
        "continuous --agent=ppo --env=gym:Lunar-v3 --optimizer.learning_rate=5e-4 --stop_at_return=inf",
        "note reward.discount=0.99",
    ),
    ("continuous --agent=ppo", ""),
    # memory
    *((f"memory-tmaze --agent={agent} --env=memory:tmaze-20", "") for agent in ("r2d2", "muzero", "ppo", "vtrace")),
    ("memory-tmaze --agent=r2d2 --env=memory:tmaze-35 --stop_at_return=9", "note r2d2.sequence_length=70"),
    ("memory-repeat --agent=r2d2 --env=memory:repeat-8 --stop_at_return=9", ""),
    ("memory-tmaze --agent=ppo --env=memory:tmaze-50 --stop_at_return=9", "note ppo.unroll_length=100"),
    ("memory-repeat --agent=vtrace --env=memory:repeat-32 --stop_at_return=9", "note vtrace.unroll_length=64"),
    ("memory-repeat --agent=vtrace --env=memory:repeat-32 --stop_at_return=9 --vtrace.unroll_length=20", ""),
    ("memory-cartpole --agent=ppo", ""),
    ("memory-tmaze --agent=muzero --env=memory:tmaze-35 --stop_at_return=9", "note muzero.burn_in=70"),
    ("memory-repeat --agent=muzero --env=memory:repeat-12 --stop_at_return=9", "note muzero.burn_in=24"),
    ("memory-repeat --agent=muzero --env=memory:repeat-12 --stop_at_return=9 --muzero.burn_in=20", ""),
    ("memory-cartpole --agent=muzero --muzero.memory=none", "warning run.agent"),
    ("memory-tmaze --agent=muzero --muzero.memory=none --network.frame_stack=5", ""),
    ("memory-tmaze --agent=apex --env=memory:tmaze-20", "warning run.agent"),
    ("memory-repeat --agent=ppo --network.lstm_width=0", "warning run.agent"),
    # what an environment does not read
    ("minatar --env=gym:ALE/Pong-v5 --env.frame_skip=4", "warning env.frame_skip"),
    ("cartpole --env.life_loss", "warning env.life_loss"),
    ("dmlab --env.frame_size=96", "warning env.frame_size"),
    ("atari --env.random_opening=4", "warning env.random_opening"),
    ("atari --env.by_turns", "warning env.by_turns"),
    ("atari --env.action_mask", "warning env.action_mask"),
    ("atari --env.opponents=random", "warning env.opponents"),
    ("cartpole --env.noop_max=3", "warning env.noop_max"),
    ("cartpole --env.sticky_actions=0", "warning env.sticky_actions"),
    ("cartpole --env.full_action_space=false", "warning env.full_action_space"),
    ("atari --env.frame_skip=4", ""),
    ("atari --env=envpool:Pong-v5 --env.noop_max=3 --stop_at_return=9", ""),
    ("dmlab --env.frame_skip=4", ""),
    ("spiel --env.random_opening=4", ""),
    ("catch --env=remote --workers=0 --stop_at_return=1 --evaluation.pauses_training --env.frame_size=96", ""),
    # levels
    ("dmlab --env=dmlab:dmlab30", ""),
    ("dmlab --env=dmlab:dmlab30 --workers=1", "warning worker.num"),
    ("dmlab --env=dmlab:dmlab30 --evaluation.num_envs=20", "warning evaluation.num_envs"),
    ("dmlab --env=dmlab:dmlab30 --evaluation.episodes=20", "warning evaluation.episodes"),
    ("dmlab --env=dmlab:dmlab30 --batcher.max_batch=16", "warning batcher.max_batch"),
    ("dmlab --env=dmlab:dmlab30 --batcher.max_batch=16 --evaluation.every_updates=0", ""),
    # runs
    ("atari-100k", ""),
    ("atari-100k --max_env_steps=0", "note replay.final_updates=0"),
    ("catch --cluster.index=0 --cluster.coordinator=host-0:7000", "warning cluster.index"),
    ("catch --checkpoint.every_updates=9", "warning checkpoint.every_updates"),
    ("catch --checkpoint.every_updates=9 --deterministic", ""),
    ("catch --checkpoint.every_seconds=9 --deterministic", "warning checkpoint.every_seconds"),
    ("catch --checkpoint.every_seconds=9", ""),
    ("catch --cluster.index=0 --cluster.coordinator=host-0:7000 --cluster.num_hosts=1", ""),
    (HOSTS, ""),
    # leagues
    (
        "league-tictactoe --league.builder=alphastar",
        "note league.main_exploiters=1, note worker.num_groups=4, note optimizer.schedule=constant",
    ),
    (
        "league-tictactoe --league.builder=alphastar --league.main_exploiters=2 --worker.num_groups=3 "
        "--optimizer.schedule=constant",
        "",
    ),
    ("league-tictactoe", ""),
    (
        "league-tictactoe --league.builder=my_rules:build --league.max_players=4",
        "note worker.num_groups=5, note optimizer.schedule=constant",
    ),
    ("league-kuhn --agent=ppo --league.builder=alphastar --league.main_exploiters=0 --optimizer.decay_updates=9", ""),
    ("league-goofspiel --league.builder=past --league.freeze_every=0", "note league.builder_args="),
    ("league-goofspiel --league.builder=biased", "note league.builder_args="),
    ("league-goofspiel --league.builder=alphastar --worker.num_groups=4", "note league.main_exploiters=1"),
    ("league-brps --league.builder=my_rules:build", "note league.builder_args="),
    ("""league-brps --league.builder=my_rules:build --league.builder_args={}""", ""),
    # agents
    ("chance --network.module=a:b", "note muzero.consistency_weight=0, note muzero.chance_codes=0"),
    ("atari-100k --network.module=a:b", "note muzero.consistency_weight=0, note muzero.value_prefix=false"),
    ("cartpole --network.module=a:b", "note muzero.predict_ends=false"),
    ("cartpole --network.module=a:b --muzero.predict_ends", ""),
    ("memory-repeat --network.module=a:b", "note muzero.memory=none"),
    ("pgx --agent=alphazero", "note env.game_state=true"),
    ("agents --agent=ppo --ppo.central_value", "note env.joint_observation=true"),
    ("catch --agent=ppo --ppo.decay_clip", "warning ppo.decay_clip"),
    ("catch --agent=ppo --ppo.decay_clip --optimizer.decay_updates=100", ""),
    ("atari --agent=ppo --optimizer.decay_updates=0", "warning ppo.decay_clip"),
    ("atari --agent=ppo", ""),
    ("catch --muzero.burn_in=5", "warning muzero.burn_in"),
    ("catch --muzero.memory_width=5", "warning muzero.memory_width"),
    ("catch --muzero.memory=gru --muzero.burn_in=5 --muzero.memory_width=5", ""),
    ("catch --muzero.search_value_start=5", "warning muzero.search_value_start"),
    ("catch --muzero.search_value_start=5 --muzero.search_value_age=5", ""),
    (
        "catch --explore.exponent=1 --explore.max_length=5 --explore.spread",
        "warning explore.exponent, warning explore.max_length, warning explore.spread",
    ),
    # Random first steps have an exponent of their own.
    ("catch --explore.exponent=1 --explore.max_length=5 --explore.first_steps=50", "warning explore.exponent"),
    ("catch --explore.exponent=1 --explore.max_length=5 --explore.epsilon=0.1", ""),
    (
        f"pgx --agent=alphazero {PUCT} --env.game_state --search.num_considered=4 --search.rounds=1 "
        "--search.gumbel_scale=2 --search.value_scale=1",
        "warning search.num_considered, warning search.rounds, warning search.gumbel_scale, "
        "warning search.value_scale",
    ),
    ("catch --search.num_considered=2 --search.rounds=1 --search.gumbel_scale=2 --search.value_scale=1", ""),
    ("catch --search.temperature=0.5", "warning search.temperature"),
    (
        "catch --agent=apex --replay.priority_alpha=0 --replay.priority_beta=1 --replay.importance_min=0.1",
        "warning replay.priority_beta, warning replay.importance_min",
    ),
    ("catch --replay.priority_alpha=1 --replay.priority_beta=1 --replay.importance_min=0.1", ""),
    (
        "catch --optimizer.schedule=constant --optimizer.decay_updates=90 --optimizer.decay_rate=0.5",
        "warning optimizer.decay_updates, warning optimizer.decay_rate",
    ),
    ("catch --optimizer.schedule=linear --optimizer.decay_updates=90 --optimizer.decay_rate=0.5", ""),
    ("catch --optimizer.schedule=constant --optimizer.decay_updates=0", ""),
    ("catch --agent=ppo --optimizer.decay_updates=90", ""),
    ("catch --agent=vtrace --vtrace.popart_step=0.1", "warning vtrace.popart_step"),
    ("catch --agent=vtrace --vtrace.popart_step=0.1 --vtrace.popart", ""),
    ("catch --agent=ppo --ppo.bonus_place=before", "warning ppo.bonus_place"),
    ("catch --agent=ppo --ppo.bonus_place=before --ppo.bonus=own:make --reward.normalize=false", ""),
    (
        "pgx --agent=alphazero --alphazero.win_draw_loss --network.num_bins=5 --network.width=8 --env.game_state",
        "warning network.num_bins",
    ),
    (
        "pgx --agent=alphazero --alphazero.win_draw_loss --network.support_limit=5 "
        "--network.value_transform=symlog --env.game_state",
        "warning network.support_limit, warning network.value_transform",
    ),
    ("pgx --agent=alphazero --network.num_bins=5 --env.game_state", ""),
    ("catch --explore.spread", "warning explore.spread"),
    ("catch --explore.spread --explore.epsilon=0.005", ""),
    (
        "atari --network.normalize_pixels --muzero.shift_pixels=0 --muzero.intensity_scale=0.05",
        "warning muzero.intensity_scale",
    ),
    ("atari --network.normalize_pixels --muzero.shift_pixels=2 --muzero.intensity_scale=0", ""),
    ("atari --network.normalize_pixels=false --muzero.shift_pixels=2 --muzero.intensity_scale=0.05", ""),
    ("cartpole --agent=ppo", ""),
    ("cartpole --agent=ppo --ppo.batch_size=64", "warning ppo.batch_size"),
    ("cartpole --agent=ppo --ppo.batch_size=64 --ppo.max_lag=2", "warning ppo.batch_size"),
    ("cartpole --agent=ppo --ppo.batch_size=8", "warning ppo.batch_size"),
    ("cartpole --agent=ppo --ppo.batch_size=8 --ppo.max_lag=4", ""),
    ("cartpole --agent=ppo --ppo.batch_size=8 --workers=0", ""),
    ("cartpole --agent=ppo --ppo.batch_size=8 --worker.num_remote=1", ""),
    ("cartpole --agent=vtrace --vtrace.batch_size=64", ""),
    ("cartpole --agent=vtrace --vtrace.batch_size=65", "warning vtrace.batch_size"),
    ("cartpole --agent=vtrace --vtrace.batch_size=65 --workers=0", ""),
    ("cartpole --agent=r2d2 --replay.min_steps=992", ""),
    ("cartpole --agent=r2d2 --replay.min_steps=991", "warning r2d2.sequence_length"),
    ("cartpole --agent=r2d2 --replay.min_steps=991 --workers=0", ""),
    ("cartpole --agent=r2d2 --replay.min_steps=991 --worker.num_remote=1", ""),
)
"""What is found in settings that are possible, in the order in which the user reads it."""

FOUND_BY_ENVIRONMENT = (
    ("alone", "catch --agent=ppo", ""),
    ("three seats", "catch --agent=ppo", "note worker.envs_per_group=18, warning ppo.max_lag"),
    ("three seats", "catch --agent=ppo --worker.envs_per_group=16 --ppo.max_lag=2", ""),
    ("two seats", "catch --agent=ppo", "warning ppo.max_lag"),
    ("two seats", "catch --agent=vtrace", ""),
    ("two seats", "catch --agent=apex", ""),
    (
        "agents",
        "catch --agent=ppo --ppo.max_lag=2 --evaluation.num_envs=10 --evaluation.episodes=20",
        "note worker.envs_per_group=18",
    ),
    (
        "agents",
        "catch --agent=ppo --ppo.max_lag=2",
        "note worker.envs_per_group=18, note evaluation.num_envs=102, note evaluation.episodes=102",
    ),
    ("teams", f"{SIDES} --ppo.max_lag=2", ""),
    (
        "teams",
        "catch --agent=ppo --league.freeze_every=500 --ppo.max_lag=2 --evaluation.episodes=12",
        "note worker.envs_per_group=18, note evaluation.num_envs=102",
    ),
    ("agents", f"{EACH} {WHOLE}", "note ppo.batch_size=42"),
    ("agents", f"{EACH} {WHOLE} --ppo.batch_size=42", ""),
    ("agents", f"""{EACH} {WHOLE} '--seats.policies={{"agent_0": "wolf", "*": "sheep"}}'""", "note ppo.batch_size=42"),
    ("agents", f"""{EACH} {WHOLE} '--seats.policies={{"*": "sheep"}}'""", ""),
    ("agents", f"agents --agent=vtrace --seats.policies=each {WHOLE}", "note vtrace.batch_size=21"),
)
"""What is found once the environment is known."""

FOUND_BY_DEVICES = (
    (f"{EIGHT} --worker.envs_per_group=2", "warning worker.envs_per_group"),
    (f"{EIGHT} --worker.envs_per_group=2 --worker.num_remote=1", ""),
    ("catch --training.num_devices=4 --worker.envs_per_group=2", ""),
    ("league-tictactoe --league.main_exploiters=1 --training.num_devices=8 --worker.envs_per_group=2", ""),
)
REASONS = (
    ("catch --env=remote", "--env=remote: no local workers"),
    ("catch --env=gym:X-v0", "the preset's --stop_at_return=1.0, which is meant for catch"),
    (
        "cartpole --env.max_episode_steps=9",
        "495.0, which is meant for gym:CartPole-v1 without --env.max_episode_steps=9",
    ),
    (
        "memory-tmaze --agent=ppo --env=memory:tmaze-50 --stop_at_return=9",
        "memory:tmaze-50 needs a memory of 50 steps",
    ),
    ("memory-tmaze --agent=apex --env=memory:tmaze-20", "--agent=r2d2, vtrace or ppo"),
    ("memory-repeat --agent=ppo --network.lstm_width=0", "--network.lstm_width=64"),
    ("memory-cartpole --agent=muzero --muzero.memory=none", "--muzero.memory=lstm"),
    ("atari --env.by_turns", "it is for spiel, not for --env=atari:Pong"),
    ("dmlab --env=dmlab:dmlab30 --workers=1", "has 30 levels, and 8 environments play"),
    ("dmlab --env=dmlab:dmlab30 --batcher.max_batch=16", "16 of the 30 levels; give --batcher.max_batch=30"),
    ("dmlab --env=dmlab:dmlab30 --evaluation.episodes=20", "20 of the 30 levels; give --evaluation.episodes=30"),
    ("atari-100k --max_env_steps=0", "--max_env_steps, which has no limit"),
    ("catch --cluster.index=0 --cluster.coordinator=host-0:7000", "--cluster.num_hosts=N"),
    ("league-tictactoe --league.builder=alphastar", "--league.league_exploiters=1: builder alphastar's"),
    ("league-tictactoe --league.builder=alphastar", "--worker.num_groups=4: 3 learning players"),
    ("league-tictactoe --league.builder=alphastar", "schedule=constant: builder alphastar may reset players"),
    ("league-brps --league.builder=my_rules:build", '{"nash_conv": 25, "every": 5000} is for the preset\'s own'),
    ("cartpole --network.module=a:b", "--network.module=a:b has no such part"),
    ("catch --agent=ppo --ppo.decay_clip", "--optimizer.decay_updates=N"),
    ("catch --muzero.burn_in=5", "--muzero.memory=lstm or gru"),
    ("catch --muzero.search_value_start=5", "--muzero.search_value_age=N"),
    ("catch --explore.exponent=1", "--explore.epsilon=X"),
    ("catch --explore.max_length=5", "--explore.first_steps=N"),
    ("catch --search.policy=puct --search.rounds=1", "--search.policy=gumbel"),
    ("catch --search.temperature=0.5", "--search.policy=puct"),
    ("catch --replay.priority_beta=1", "--replay.priority_alpha=0"),
    ("catch --optimizer.schedule=constant --optimizer.decay_updates=90", "--optimizer.schedule=cosine, linear"),
    ("catch --agent=vtrace --vtrace.popart_step=0.1", "--vtrace.popart=true"),
    ("catch --agent=ppo --ppo.bonus_place=before", "--ppo.bonus=MODULE:FUNCTION"),
    (
        "pgx --agent=alphazero --alphazero.win_draw_loss --network.support_limit=5 --env.game_state",
        "--alphazero.win_draw_loss=true has three values, -1, 0 and 1",
    ),
    ("catch --explore.spread", "explore.epsilon=0; give --explore.epsilon=X"),
    ("atari --network.normalize_pixels --muzero.intensity_scale=0.05", "moments that network.normalize_pixels has"),
    ("cartpole --agent=ppo --ppo.batch_size=64", "32 environments and ppo.max_lag=1: every batch is padded"),
    (
        "cartpole --agent=ppo --ppo.batch_size=64 --ppo.max_lag=2",
        "unrolls of several updates; give --ppo.batch_size=32",
    ),
    ("cartpole --agent=ppo --ppo.batch_size=8", "become older; give --ppo.batch_size=32"),
    ("cartpole --agent=vtrace --vtrace.batch_size=65", "at most 64 unrolls wait (environments x vtrace.max_lag=2)"),
    ("cartpole --agent=r2d2 --replay.min_steps=991", "each of 32 environments has 31 steps"),
    ("cartpole --agent=r2d2 --replay.min_steps=991", "--replay.min_steps=992"),
)
"""Settings, and a fact of the text of what is found."""
REASONS_BY_ENVIRONMENT = (
    ("three seats", "catch --agent=ppo", "a game of --env=catch has 3"),
    ("two seats", "catch --agent=ppo", "--ppo.max_lag=1: rows are seats"),
    ("two seats", "catch --agent=ppo", "--ppo.max_lag=4"),
    (
        "teams",
        "catch --agent=ppo --league.freeze_every=500 --ppo.max_lag=2 --evaluation.episodes=12",
        "two games of --env=catch, one from each side, have 6",
    ),
    (
        "agents",
        f"agents --agent=vtrace --seats.policies=each {WHOLE}",
        "a policy learns from the rows of its own agents",
    ),
)


def _case(line: str, spec: str = "") -> rules.Situation:
    preset, *flags = shlex.split(line)
    given = {}
    for flag in flags:
        name, is_given, value = flag.removeprefix("--").partition("=")
        given[configs.ALIASES.get(name, name)] = value if is_given else "true"
    config = presets.get(preset, given.get("run.agent", ""))
    return rules.Situation(configs.override(config, given), frozenset(given), config.env.id, SPECS.get(spec))


def _found(line: str, spec: str = "") -> list[rules.Applied]:
    case, preset = _case(line, spec), shlex.split(line)[0]
    if spec:
        return combinations.implied(case, rules.Needs.SPEC)[1]
    elsewhere = presets.part(preset, case.run.agent).elsewhere
    return combinations.implied(case, rules.Needs.SETTINGS, elsewhere)[1]


def _with_devices(line: str) -> list[rules.Applied]:
    return combinations.implied(_case(line), rules.Needs.DEVICES)[1]


def _shown(found: list[rules.Applied]) -> str:
    values = {rules.Severity.NOTE: "note {0.settings[0]}={0.value}", rules.Severity.WARNING: "warning {0.settings[0]}"}
    return ", ".join(values[applied.rule.severity].format(applied) for applied in found)


def _check_refusal(case: rules.Situation, needs: rules.Needs, setting: str, fact: str, text: str) -> None:
    """Checks the first problem of settings, and what the user was told of it."""
    problem = combinations.first_problem(case, needs)
    assert problem is not None and problem.settings[0] == setting
    assert fact in text
    assert any(configs.flag(name).rpartition(".")[2].lstrip("-") in text for name in problem.settings)


@pytest.mark.parametrize(("line", "setting", "fact"), REFUSED, ids=lambda text: text)
def test_settings_that_exclude_each_other_are_refused(line: str, setting: str, fact: str) -> None:
    case = _case(line)
    with pytest.raises(errors.ConfigError) as raised:
        combinations.check(case.config)
    _check_refusal(case, rules.Needs.SETTINGS, setting, fact, str(raised.value))


@pytest.mark.parametrize("line", POSSIBLE)
def test_settings_that_go_together_are_possible(line: str) -> None:
    combinations.check(_case(line).config)


@pytest.mark.parametrize(("spec", "line", "setting", "fact"), REFUSED_BY_ENVIRONMENT, ids=lambda text: text)
def test_settings_that_an_environment_excludes_are_refused(spec: str, line: str, setting: str, fact: str) -> None:
    case = _case(line, spec)
    with pytest.raises(errors.ConfigError) as raised:
        combinations.check_environment(case.config, spec=case.spec)
    _check_refusal(case, rules.Needs.SPEC, setting, fact, str(raised.value))


@pytest.mark.parametrize(("spec", "line"), PLAYED, ids=lambda text: text)
def test_environments_that_go_with_the_settings_are_possible(spec: str, line: str) -> None:
    combinations.check_environment(_case(line).config, spec=SPECS[spec])


@pytest.mark.parametrize(("line", "expected"), FOUND)
def test_settings_imply_others_and_are_warned_of(line: str, expected: str) -> None:
    assert _shown(_found(line)) == expected


@pytest.mark.parametrize(("spec", "line", "expected"), FOUND_BY_ENVIRONMENT)
def test_environments_imply_settings_and_are_warned_of(spec: str, line: str, expected: str) -> None:
    assert _shown(_found(line, spec)) == expected


@pytest.mark.parametrize(("spec", "line", "fact"), [*(("", *row) for row in REASONS), *REASONS_BY_ENVIRONMENT])
def test_what_is_implied_or_warned_of_has_its_reason(spec: str, line: str, fact: str) -> None:
    assert fact in "\n".join(applied.text for applied in _found(line, spec))


@pytest.mark.parametrize(("state", "line", "setting", "fact"), REFUSED_BY_DEVICES, ids=lambda text: text)
def test_settings_that_devices_exclude_are_refused(state: str, line: str, setting: str, fact: str) -> None:
    case = dataclasses.replace(_case(line), is_begun=state == "continues")
    with pytest.raises(errors.ConfigError) as raised:
        combinations.check_devices(case.config, is_begun=case.is_begun)
    _check_refusal(case, rules.Needs.DEVICES, setting, fact, str(raised.value))


@pytest.mark.parametrize("line", SHARED)
def test_devices_that_go_with_the_settings_are_possible(line: str) -> None:
    combinations.check_devices(_case(line).config)


@pytest.mark.parametrize(("line", "expected"), FOUND_BY_DEVICES)
def test_devices_are_warned_of(line: str, expected: str) -> None:
    found = _with_devices(line)
    assert _shown(found) == expected
    assert all("4 environments leave some of 8 devices without any" in applied.text for applied in found)


def test_every_rule_has_a_row() -> None:
    firsts = [combinations.first_problem(_case(line), rules.Needs.SETTINGS) for line, *_ in REFUSED]
    firsts += [
        combinations.first_problem(_case(line, spec), rules.Needs.SPEC) for spec, line, *_ in REFUSED_BY_ENVIRONMENT
    ]
    firsts += [combinations.first_problem(_case(line), rules.Needs.DEVICES) for _, line, *_ in REFUSED_BY_DEVICES]
    found = [applied.rule for applied in firsts if applied]
    found += [applied.rule for line, _ in FOUND_BY_DEVICES for applied in _with_devices(line)]
    found += [applied.rule for line, _ in FOUND for applied in _found(line)]
    found += [applied.rule for spec, line, _ in FOUND_BY_ENVIRONMENT for applied in _found(line, spec)]
    assert [rule.about for rule in combinations.RULES if rule not in found] == []
