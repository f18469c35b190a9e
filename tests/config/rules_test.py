"""The table of rules between settings: each row provokes one, and every rule has a row.

A row has a preset with settings, as on a command line, and what is found: for an error the setting that it is about,
for a warning `warning SETTING`, and for a note `note SETTING=VALUE`.
"""

from __future__ import annotations

import dataclasses
import shlex

import golden
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
SHORT = "--env=memory:tmaze-20"
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
    ("tictactoe --env.opponents=random,stockfish", "env.opponents"),
    ("catch --env.opponents=random,roshambo:pibot", "env.opponents"),
    ("roshambo --env=catch", "env.opponents"),
    ("pgx --agent=alphazero --env=spiel:tic_tac_toe", "env.id"),
    ("pgx --agent=alphazero --env=remote --workers=0", "env.id"),
    ("tictactoe --env.opponents=random,mcts-9 --evaluation.num_envs=3", "evaluation.num_envs"),
    ("tictactoe --env.opponents=random,mcts-9 --evaluation.episodes=3", "evaluation.episodes"),
    ("catch --env.kwargs={}", "env.kwargs"),
    ("atari --env.wrappers=[]", "env.wrappers"),
    ("catch --env.max_episode_steps=9", "env.max_episode_steps"),
    ("catch --metrics.info_keys=success", "env.info_keys"),
    ("catch --dmlab.level_cache=levels", "env.level_cache"),
    ("catch --dmlab.level_seeds=9", "env.level_seeds"),
    ("catch --env.checkpoint_rewards", "env.checkpoint_rewards"),
    ("pgx --agent=alphazero --env.game_state --env=catch", "env.id"),
    ("catch --env.game_state", "env.game_state"),
    ("pgx --agent=muzero --env.game_state", "env.game_state"),
    ("agents --agent=ppo --env.joint_observation", "env.joint_observation"),
    ("catch --agent=ppo --env.joint_observation", "env.joint_observation"),
    # hosts
    (f"{HOSTS} --cluster.index=2", "cluster.index"),
    (f"{HOSTS} --cluster.num_hosts=1", "cluster.index"),
    (f"{HOSTS} --cluster.coordinator=", "cluster.index"),
    (f"{HOSTS} --cluster.coordinator=host-0", "cluster.coordinator"),
    (f"{HOSTS} --token_file=", "cluster.coordinator"),
    (f"{HOSTS} --league.freeze_every=1000 --env=spiel:tic_tac_toe", "cluster.num_hosts"),
    ("league-kuhn --cluster.num_hosts=2", "cluster.num_hosts"),
    (f"{HOSTS} --training.acting_devices=1", "cluster.num_hosts"),
    (f"{HOSTS} --replay.placement=host", "cluster.num_hosts"),
    (f"{HOSTS} --checkpoint.keep=1", "cluster.num_hosts"),
    # connections
    ("catch --env=remote --workers=2", "worker.num"),
    ("catch --listen=localhost", "transport.listen"),
    ("catch --listen=localhost:http", "transport.listen"),
    ("catch --transport.max_workers=3 --workers=2 --worker.num_remote=1", "transport.max_workers"),
    ("catch --batcher.max_batch=8", "batcher.max_batch"),
    ("catch --listen=0.0.0.0:7777", "transport.listen"),
    ("catch --listen=[::]:7777", "transport.listen"),
    ("catch --listen=learner.example:7777", "transport.listen"),
    ("catch --serve.token_file=pool", "serve.token_file"),
    ("catch --metrics_port=0 --metrics_host=", "metrics.host"),
    ("catch --tls.cert_file=cert.pem", "tls.cert_file"),
    ("catch --tls.key_file=key.pem", "tls.key_file"),
    ("catch --tls.cert_file=c --tls.key_file=k", "tls.cert_file"),
    # lock step
    ("catch --deterministic --workers=0", "run.deterministic"),
    ("catch --deterministic --workers=0 --env=remote", "run.deterministic"),
    ("catch --deterministic --worker.num_remote=2", "run.deterministic"),
    ("catch --deterministic --batcher.max_batch=16", "run.deterministic"),
    ("catch --deterministic --checkpoint.replay=off", "run.deterministic"),
    # replay and evaluations
    ("catch --replay.num_slots=31", "replay.num_slots"),
    ("catch --agent=vtrace --replay.num_slots=31", "replay.num_slots"),
    ("catch --training.acting_devices=2 --replay.placement=host", "replay.placement"),
    ("catch --replay.final_updates=5", "replay.final_updates"),
    ("catch --replay.min_steps=100000", "replay.min_steps"),
    ("catch --replay.num_slots=40 --replay.num_envs=41", "replay.num_envs"),
    ("catch --replay.capacity=500 --replay.min_steps=100", "replay.capacity"),
    ("catch --replay.capacity=1000 --replay.num_slots=400", "replay.capacity"),
    ("catch --muzero.memory=lstm --muzero.burn_in=1000 --replay.capacity=32000", "replay.capacity"),
    ("catch --evaluation.every_updates=0", "run.stop_at_return"),
    ("catch --evaluation.video_every=2 --evaluation.every_updates=0 --stop_at_return=inf", "evaluation.video_every"),
    ("catch --evaluation.video_every=2 --metrics.tensorboard=false", "evaluation.video_every"),
    ("catch --evaluation.video_every=2 --env=remote --workers=0", "evaluation.video_every"),
    # leagues
    ("catch --league.freeze_every=500 --muzero.off_policy_correction", "muzero.off_policy_correction"),
    ("catch --league.builder=alphastar --muzero.off_policy_correction", "muzero.off_policy_correction"),
    ("catch --league.freeze_every=500 --muzero.memory=lstm", "muzero.memory"),
    ("league-kuhn --agent=ppo --league.opponent_model=true", "league.opponent_model"),
    ("seats --agent=ppo --league.opponent_model=true", "league.opponent_model"),
    (f"{MODEL} --league.freeze_every=0", "league.opponent_model"),
    (f"{MODEL} --muzero.policy_gradient_weight=0.5", "muzero.policy_gradient_weight"),
    (f"{MODEL} --muzero.search_value_age=3", "muzero.search_value_age"),
    (f"{MODEL} --reanalyse.fresh_share=0.5", "reanalyse.fresh_share"),
    (f"{MEMBERS} --league.members=best", "league.members"),
    (f"{MEMBERS} --league.members=random,random", "league.members"),
    (f"{MEMBERS} --league.members=os:getcwd", "league.members"),
    (f"{MEMBERS} --league.freeze_every=0", "league.members"),
    (f"{MEMBERS} --league.opponent_model", "league.members"),
    (f"{MEMBERS} --env=remote --workers=0", "league.members"),
    (f"{MEMBERS} --env=pgx:hex --league.members=mcts-50,spiel:uniform_random", "league.members"),
    ("roshambo --env=catch --env.opponents=random", "league.members"),
    ("catch --league.main_players=2", "league.main_players"),
    ("catch --league.main_exploiters=1", "league.main_exploiters"),
    ("catch --league.league_exploiters=1", "league.league_exploiters"),
    ("catch --league.max_players=3", "league.max_players"),
    (f"{MOST} --league.freeze_every=0", "league.max_players"),
    (f"{MOST} --league.main_players=3", "league.max_players"),
    (MOST, "league.max_players"),
    (f"{MOST} --league.builder=self_play", "league.max_players"),
    (f"{MOST} --league.builder=alphastar", "league.max_players"),
    (
        f"{MOST} --league.builder=alphastar "
        """'--league.builder_args={"keep_training_probability": {"main": 0}}'""",
        "league.max_players",
    ),
    (f"{MANY} --max_env_steps=1000", "run.max_env_steps"),
    (f"{MANY} --training.acting_devices=1", "training.acting_devices"),
    (f"{MANY} --replay.placement=host", "replay.placement"),
    (f"{MANY} --worker.num_groups=1", "worker.num_groups"),
    ("catch --league.builder=my_rules:build --league.max_players=40 --worker.num_groups=4", "worker.num_groups"),
    (f"{MANY} --optimizer.schedule=cosine --league.builder=alphastar", "league.builder"),
    ("league-kuhn --agent=ppo --league.builder=alphastar --optimizer.decay_updates=100", "league.builder"),
    (f"{MANY} --muzero.search_value_start=900 --league.builder=alphastar", "muzero.search_value_start"),
    ("catch --league.builder=alphastr", "league.builder"),
    ("catch --league.builder=os:abort", "league.builder"),
    ("""catch --league.builder=alphastar '--league.builder_args={"min_games": -1}'""", "league.builder_args"),
    ("catch --league.freeze_every=500 --league.builder_args=[7]", "league.builder_args"),
    # seats
    (f"{EACH} --ppo.central_value --env=gym:CartPole-v1", "ppo.central_value"),
    (f"{EACH} --seats.policies=wolves", "seats.policies"),
    (f"{EACH} --league.freeze_every=500", "seats.policies"),
    ("league-goofspiel --agent=ppo --seats.policies=each", "seats.policies"),
    (f"{EACH} --training.num_devices=2", "training.num_devices"),
    (f"{EACH} --max_env_steps=1000", "run.max_env_steps"),
    (f"{EACH} --cluster.num_hosts=2 --cluster.coordinator=localhost:1", "cluster.num_hosts"),
    # agents
    (f"catch {PUCT} --muzero.off_policy_correction", "muzero.off_policy_correction"),
    (f"catch {PUCT} --muzero.policy_gradient_weight=0.5", "muzero.policy_gradient_weight"),
    (
        "pgx --agent=alphazero --alphazero.win_draw_loss --reward.discount=0.9 --env.game_state",
        "alphazero.win_draw_loss",
    ),
    ("catch --muzero.value_prefix --muzero.memory=gru", "muzero.memory"),
    ("catch --muzero.chance_codes=32 --muzero.memory=lstm", "muzero.chance_codes"),
    ("catch --muzero.chance_codes=32 --muzero.value_prefix", "muzero.chance_codes"),
    ("cartpole --agent=apex --evaluation.policy=sample", "evaluation.policy"),
    ("cartpole --agent=r2d2 --evaluation.policy=sample", "evaluation.policy"),
    ("cartpole --agent=r2d2 --network.lstm_width=0", "network.lstm_width"),
    ("catch --agent=ppo --network.lstm_width=8 --ppo.batch_size=3 --ppo.num_minibatches=4", "ppo.num_minibatches"),
    ("catch --agent=ppo --ppo.bonus=own:make --ppo.bonus_place=before", "ppo.bonus_place"),
    ("catch --network.module=a:b --muzero.consistency_weight=1", "network.module"),
    ("catch --network.module=a:b --muzero.value_prefix", "network.module"),
    ("catch --network.module=a:b --muzero.predict_ends", "network.module"),
    ("catch --network.module=a:b --muzero.memory=lstm", "network.module"),
    ("catch --network.module=a:b --muzero.chance_codes=2", "network.module"),
    ("catch --muzero.consistency_steps=9 --muzero.unroll_steps=8", "muzero.consistency_steps"),
    ("catch --muzero.off_policy_correction", "muzero.off_policy_correction"),
    ("cartpole --agent=sac --env=gym:A --replay.priority_alpha=0.6", "replay.priority_alpha"),
)
"""Settings that exclude each other, and the one that the first error is about."""

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
    ("alone", "catch --agent=sac", "run.agent"),
    ("two players", "catch --agent=apex --env=spiel:tic_tac_toe", "run.agent"),
    ("three players", "catch", "run.agent"),
    ("continuous", "catch --agent=vtrace --env=gym:Pendulum-v1", "run.agent"),
    ("two seats", "catch --env=spiel:kuhn_poker", "run.agent"),
    ("two seats", "catch --agent=sac --env=spiel:kuhn_poker", "run.agent"),
    ("three seats", "catch --agent=ppo --env=spiel:kuhn_poker", "worker.envs_per_group"),
    ("agents", "catch --agent=ppo --worker.envs_per_group=6 --evaluation.num_envs=10", "evaluation.num_envs"),
    ("agents", f"catch --agent=ppo {WHOLE} --evaluation.episodes=10", "evaluation.episodes"),
    ("teams", f"{SIDES} --evaluation.num_envs=9", "evaluation.num_envs"),
    ("alone", "catch --league.freeze_every=500", "league.freeze_every"),
    ("continuous", "catch --league.freeze_every=500", "league.freeze_every"),
    ("two continuous", "catch --league.freeze_every=500", "league.freeze_every"),
    ("continuous", "catch --league.builder=alphastar", "league.freeze_every"),
    ("three seats", f"{SIDES} --env=spiel:kuhn_poker", "league.freeze_every"),
    ("three sides", SIDES, "league.freeze_every"),
    ("one side", SIDES, "league.freeze_every"),
    ("two players", "catch --league.builder=biased --env=spiel:tic_tac_toe", "league.builder"),
    ("teams", f"{SIDES} --league.builder=biased", "league.builder"),
    ("teams", f"{SIDES} --agent=vtrace", "run.agent"),
    ("teams", f"{SIDES} --env=remote", "env.id"),
    ("teams", f"{SIDES} --ppo.central_value", "ppo.central_value"),
    ("teams", f"{SIDES} --network.lstm_width=32", "network.lstm_width"),
    ("teams", f"{SIDES} --training.num_devices=2", "training.num_devices"),
    ("teams", f"{SIDES} --league.main_players=2", "league.main_players"),
    ("teams", f"{SIDES} --league.main_exploiters=1", "league.main_exploiters"),
    ("teams", f"{SIDES} --league.league_exploiters=1", "league.league_exploiters"),
    ("teams", f"{SIDES} --league.max_players=2", "league.max_players"),
    ("alone", EACH, "seats.policies"),
    ("two seats", EACH, "seats.policies"),
    ("agents", f"""{EACH} {WHOLE} '--seats.policies={{"wolf": "a"}}'""", "seats.policies"),
    ("alone", "agents --agent=ppo --ppo.central_value", "ppo.central_value"),
    ("pictures", f"agents --agent=ppo --ppo.central_value {WHOLE}", "ppo.central_value"),
    *(
        ("two players", f"catch --agent={agent} --network.frame_stack=4", "network.frame_stack")
        for agent in ("muzero", "ppo", "vtrace")
    ),
    ("two players", "catch --agent=ppo --network.lstm_width=4", "network.lstm_width"),
    ("two players", "catch --agent=ppo --ppo.bonus=my_module:bonus", "ppo.bonus"),
    ("two players", "catch --muzero.memory=gru", "muzero.memory"),
    ("two players", "catch --explore.epsilon=1", "explore.epsilon"),
    ("two players", "catch --explore.first_steps=1", "explore.first_steps"),
    *(
        ("moves again", f"catch --agent={agent} --league.freeze_every=100", "league.freeze_every")
        for agent in ("muzero", "alphazero", "ppo", "vtrace")
    ),
    *(
        ("two players", f"catch --agent={agent} --league.freeze_every=10 --{agent}.n_step=1", f"{agent}.n_step")
        for agent in ("muzero", "alphazero")
    ),
    ("moves again", "catch --network.module=my_module:make", "network.module"),
    ("continuous", "catch --muzero.chance_codes=2", "muzero.chance_codes"),
    ("two players", "catch --muzero.chance_codes=2", "muzero.chance_codes"),
    ("alone", "catch --env=spiel:mastermind --muzero.chance_codes=2", "muzero.chance_codes"),
    ("alone", "catch --muzero.shift_pixels=2", "muzero.shift_pixels"),
    ("alone", "catch --muzero.intensity_scale=0.1", "muzero.intensity_scale"),
    ("grid", "catch --muzero.shift_pixels=4", "muzero.shift_pixels"),
    ("continuous", f"catch {CORRECTED}", "muzero.off_policy_correction"),
    ("continuous", "catch --muzero.policy_gradient_weight=0.5", "muzero.policy_gradient_weight"),
)
"""What the environment has, settings that do not go with it, and the one that the first error is about."""

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
    ("begins", f"{FOUR} --replay.batch_size=130", "training.num_devices"),
    ("begins", f"{FOUR} --agent=vtrace --vtrace.batch_size=30", "training.num_devices"),
    ("begins", f"{FOUR} --reanalyse.batch_size=30 --reanalyse.per_insert=1", "training.num_devices"),
    ("begins", f"{THREE} --replay.num_slots=33 --replay.batch_size=24", "training.num_devices"),
    ("begins", f"{THREE} --replay.num_slots=32 --replay.batch_size=30", "training.num_devices"),
    ("continues", f"{EIGHT} --replay.num_slots=20 --replay.batch_size=120", "training.num_devices"),
    (
        "continues",
        "catch --training.num_devices=5 --replay.num_slots=9 --replay.batch_size=21",
        "training.num_devices",
    ),
    ("begins", f"{EIGHT} --training.acting_devices=8", "training.acting_devices"),
    ("begins", "catch --training.num_devices=1 --training.acting_devices=1", "training.acting_devices"),
    ("begins", f"{ORDER} --worker.envs_per_group=20 --replay.num_slots=24", "run.deterministic"),
    ("begins", f"{ORDER} --worker.envs_per_group=16 --replay.num_slots=32", "run.deterministic"),
)
"""Whether a run begins or continues, settings, and the one of the first error with these devices."""

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
    ("atari --network.normalize_pixels --muzero.shift_pixels=2", "warning muzero.shift_pixels"),
    (
        "atari --network.normalize_pixels --muzero.shift_pixels=0 --muzero.intensity_scale=0.05",
        "warning muzero.intensity_scale",
    ),
    ("atari --network.normalize_pixels --muzero.shift_pixels=0 --muzero.intensity_scale=0", ""),
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


@pytest.mark.parametrize(("line", "setting"), REFUSED, ids=lambda text: text)
def test_settings_that_exclude_each_other_are_refused(line: str, setting: str, said: golden.Said) -> None:
    case = _case(line)
    with said.raises(errors.ConfigError, label=line):
        combinations.check(case.config)
    problem = combinations.first_problem(case, rules.Needs.SETTINGS)
    assert problem is not None and problem.settings[0] == setting


@pytest.mark.parametrize("line", POSSIBLE)
def test_settings_that_go_together_are_possible(line: str) -> None:
    combinations.check(_case(line).config)


@pytest.mark.parametrize(("spec", "line", "setting"), REFUSED_BY_ENVIRONMENT, ids=lambda text: text)
def test_settings_that_an_environment_excludes_are_refused(
    spec: str, line: str, setting: str, said: golden.Said
) -> None:
    case = _case(line, spec)
    with said.raises(errors.ConfigError, label=(spec, line)):
        combinations.check_environment(case.config, spec=case.spec)
    problem = combinations.first_problem(case, rules.Needs.SPEC)
    assert problem is not None and problem.settings[0] == setting


@pytest.mark.parametrize(("spec", "line"), PLAYED, ids=lambda text: text)
def test_environments_that_go_with_the_settings_are_possible(spec: str, line: str) -> None:
    combinations.check_environment(_case(line).config, spec=SPECS[spec])


@pytest.mark.parametrize(("line", "expected"), FOUND)
def test_settings_imply_others_and_are_warned_of(line: str, expected: str, said: golden.Said) -> None:
    found = _found(line)
    assert _shown(found) == expected
    if texts := [applied.text for applied in found if applied.text]:
        said("\n".join(texts), line)


@pytest.mark.parametrize(("spec", "line", "expected"), FOUND_BY_ENVIRONMENT)
def test_environments_imply_settings_and_are_warned_of(spec: str, line: str, expected: str, said: golden.Said) -> None:
    found = _found(line, spec)
    assert _shown(found) == expected
    if found:
        said("\n".join(applied.text for applied in found), (spec, line))


@pytest.mark.parametrize(("state", "line", "setting"), REFUSED_BY_DEVICES, ids=lambda text: text)
def test_settings_that_devices_exclude_are_refused(state: str, line: str, setting: str, said: golden.Said) -> None:
    case = dataclasses.replace(_case(line), is_begun=state == "continues")
    with said.raises(errors.ConfigError, label=line):
        combinations.check_devices(case.config, is_begun=case.is_begun)
    problem = combinations.first_problem(case, rules.Needs.DEVICES)
    assert problem is not None and problem.settings[0] == setting


@pytest.mark.parametrize("line", SHARED)
def test_devices_that_go_with_the_settings_are_possible(line: str) -> None:
    combinations.check_devices(_case(line).config)


@pytest.mark.parametrize(("line", "expected"), FOUND_BY_DEVICES)
def test_devices_are_warned_of(line: str, expected: str, said: golden.Said) -> None:
    found = _with_devices(line)
    assert _shown(found) == expected
    if found:
        said("\n".join(applied.text for applied in found), line)


def test_every_rule_has_a_row() -> None:
    firsts = [combinations.first_problem(_case(line), rules.Needs.SETTINGS) for line, _ in REFUSED]
    firsts += [
        combinations.first_problem(_case(line, spec), rules.Needs.SPEC) for spec, line, _ in REFUSED_BY_ENVIRONMENT
    ]
    firsts += [combinations.first_problem(_case(line), rules.Needs.DEVICES) for _, line, _ in REFUSED_BY_DEVICES]
    found = [applied.rule for applied in firsts if applied]
    found += [applied.rule for line, _ in FOUND_BY_DEVICES for applied in _with_devices(line)]
    found += [applied.rule for line, _ in FOUND for applied in _found(line)]
    found += [applied.rule for spec, line, _ in FOUND_BY_ENVIRONMENT for applied in _found(line, spec)]
    assert [rule.about for rule in combinations.RULES if rule not in found] == []
