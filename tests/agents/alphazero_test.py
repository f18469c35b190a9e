"""AlphaZero: searches by true rules against solved games, targets against a loop, what is stored, refusals."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import jax_nim
import numpy as np
import pytest
from jax import export

from seedzero.agents import agent_table, alphazero, base
from seedzero.config import configs, presets
from seedzero.core import errors, packing, types
from seedzero.device import acting, batches, meshes, setups, states, steps
from seedzero.envs import pgx_rules
from seedzero.ops import unpacking
from seedzero.replay import ring_store, windowing
from seedzero.search import outcomes

NIM, LUCKY = "jax_nim:NIM", "jax_nim:LUCKY"
_SMALL = {
    "run.agent": "alphazero",
    "network.width": 8,
    "network.head_width": 8,
    "network.channels": 4,
    "network.num_bins": 5,
    "network.support_limit": 1.0,
    "reward.discount": 1.0,
    "search.min_value_range": 1.0,
    "replay.batch_size": 4,
}


def config(name: str = NIM, **settings) -> configs.Config:
    values = {key.replace("__", "."): value for key, value in settings.items()}
    return configs.override(configs.Config(), {**_SMALL, "env.id": f"pgx:{name}", **values})


@functools.cache
def agent(name: str = NIM, **settings) -> base.Agent:
    return agent_table.make(config(name, **settings), pgx_rules.game(name).spec(has_state=True), "cpu")


@functools.cache
def params(name: str = NIM) -> base.Params:
    """Returns first parameters, whose heads say nothing; settings of a search change nothing in them."""
    learner = agent(name)
    return learner.acting(jax.jit(learner.init)(jax.random.key(0)))


def search(learner: base.Agent, given: base.Params, seen: base.Inputs) -> base.Searched:
    """Returns what a search finds, and its tree, as arrays of numpy: tests read single nodes."""
    found = jax.jit(learner.search, static_argnums=4)(given, (), seen, jax.random.key(1), True)
    return jax.tree.map(np.asarray, found)


def inputs(rules: pgx_rules.GameRules, found: pgx_rules.State, mode: np.int8 = types.GREEDY) -> base.Inputs:
    """Returns what acting sees of games [B] in these states."""
    spec, number = rules.spec(has_state=True), len(found.terminated)
    shown = np.asarray(rules.seen(found)).reshape(number, -1).view(np.uint8)
    packed = jnp.asarray(np.concatenate([shown, rules.encode(found)], axis=1))
    return base.Inputs(
        observation=unpacking.unpack(spec.packed, packed),
        reward=jnp.zeros(number),
        first=jnp.zeros(number, bool),
        terminated=jnp.zeros(number, bool),
        action_mask=jnp.asarray(found.legal_action_mask),
        action_mode=jnp.full(number, mode),
        slot=jnp.arange(number),
        num_slots=number,
        task=jnp.zeros(number, jnp.int32),
    )


# Search ------------------------------------------------------------------------------------------------------------


@functools.cache
def piles() -> pgx_rules.State:
    """Returns Nim with each pile from one to the largest."""
    rules = jax_nim.NIM
    state = jax.jit(jax.vmap(rules.init))(jax.random.split(jax.random.key(0), jax_nim.LARGEST))
    pile = jnp.arange(1, jax_nim.LARGEST + 1)
    state = state.replace(pile=pile, legal_action_mask=jnp.arange(3) < pile[:, None])
    return state.replace(observation=jax.vmap(rules.observe)(state))


@pytest.mark.parametrize("number", [256, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_a_search_by_the_rules_finds_the_move_and_the_result_of_every_position(policy: str, number: int) -> None:
    found, rules = piles(), pgx_rules.game(NIM)
    learner = agent(NIM, search__policy=policy, search__num_simulations=number, search__num_considered=3)
    assert learner.search is not None
    searched = jax.jit(learner.search, static_argnums=4)(params(), (), inputs(rules, found), jax.random.key(1), False)
    pile = np.asarray(found.pile)
    is_won = pile % 4 != 0
    assert np.array_equal(np.asarray(searched.action)[is_won] + 1, pile[is_won] % 4)
    best = np.max(np.where(found.legal_action_mask, searched.q_values, -np.inf), axis=1)
    least = 0.8 if number == 1024 else 0.3  # deep piles are searched less far
    assert np.all(best[is_won] > least) and np.all(best[~is_won] < -least)


@pytest.mark.thorough
def test_a_tree_has_no_illegal_move_and_nothing_below_an_end() -> None:
    found, rules = piles(), pgx_rules.game(NIM)
    learner = agent(NIM, search__num_simulations=64, search__num_considered=3)
    random = np.random.default_rng(3)
    loud = jax.tree.map(lambda x: x + 0.5 * random.normal(size=x.shape).astype(x.dtype), params())
    tree = search(learner, loud, inputs(rules, found)).tree
    assert tree is not None
    num_opinions = 0
    for row, pile in enumerate(np.asarray(found.pile).tolist()):
        piles_of: dict[int, int] = {0: pile}
        for node in range(1, tree.parent.shape[1]):
            if tree.num_visits[row, node] == 0:
                continue
            parent, taken = int(tree.parent[row, node]), int(tree.action[row, node]) + 1
            before = piles_of[parent]
            assert taken <= before or before == 0
            piles_of[node] = max(0, before - taken) if before else 0
            has_won = before > 0 and piles_of[node] == 0
            assert tree.reward[row, node] == (1.0 if has_won else 0.0)
            assert tree.discount[row, node] == (-1.0 if piles_of[node] else 0.0)
            if piles_of[node] == 0:
                assert tree.value[row, node] == 0.0
            else:
                num_opinions += tree.value[row, node] != 0.0
        assert len(piles_of) > 2 or pile == 1
    assert num_opinions > 10  # the network's, everywhere else


@pytest.mark.parametrize("number", [4, 16, *(pytest.param(number, marks=pytest.mark.slow) for number in (64, 256))])
def test_a_gambles_value_is_the_expected_one_over_searches(number: int) -> None:
    name, num_rows = "jax_nim:GAMBLE", 1000 if number < 64 else 100
    rules, visits = pgx_rules.game(name), number // 2
    learner = agent(name, search__num_simulations=number, search__num_considered=2, search__rounds=1)
    found = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), num_rows))
    given, seen = params(name), inputs(rules, found)
    look = jax.jit(lambda key: learner.search(given, (), seen, key, False).q_values)
    values = np.concatenate([look(jax.random.key(seed)) for seed in range(1000 // num_rows)])
    assert np.unique(values[:, 0]).size == 1 and values.shape == (1000, 2)
    assert abs(np.mean(values[:, 1]) - 0.1) < 2 * np.std(values[:, 1]) / np.sqrt(1000)
    each = np.bincount(np.arange(visits) % outcomes.num_outcomes(number))  # visits of each outcome
    spread = 0.3 * np.sqrt(np.sum(np.square(each))) / visits  # of means of draws of variance 0.1 x 0.9
    assert np.std(values[:, 1]) == pytest.approx(spread, rel=0.1)


def drawn(rules: pgx_rules.GameRules, state: pgx_rules.State, action: int, code: int, num_searches: int) -> Any:
    """Returns the states behind an outcome of an action in a state, as that many searches draw it."""
    learner = agent(rules.name)
    model = alphazero.recurrent_fn(learner.act.args[0])
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_searches, *leaf.shape)), state)

    @jax.jit
    def behind_code(given: Any, states: pgx_rules.State) -> Any:
        keys = outcomes.root_keys(jax.random.key(7), num_searches)
        _, after = model.decide(given, jnp.full(num_searches, action), alphazero._embedding(rules, states, keys))
        _, (*arrays, behind, _) = model.resolve(given, jnp.full(num_searches, code), after)
        return rules.with_nothing_shown(arrays), behind

    found, behind = behind_code(params(rules.name), states)
    assert len(np.unique(behind, axis=0)) == num_searches  # what lies behind is drawn anew
    return jax.tree.map(np.asarray, found)


def chi_square(counts: Any, probabilities: Any) -> float:
    expected = np.sum(counts) * np.asarray(probabilities)
    return float(np.sum(np.square(counts - expected) / expected))


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 5])
def test_dice_and_tiles_fall_in_searches_as_the_rules_say(code: int) -> None:
    backgammon, powers = pgx_rules.game("backgammon"), pgx_rules.game("2048")
    state, step = jax.jit(backgammon.env.init)(jax.random.key(1)), jax.jit(backgammon.env.step)
    while True:  # to the last move of a turn
        action = int(np.flatnonzero(state.legal_action_mask)[0])
        after = step(state, action, jax.random.key(2))
        if after.current_player != state.current_player:
            break
        state = after
    dice = np.sort(drawn(backgammon, state, action, code, 4000)._dice, axis=1)
    rolls = [np.sum((dice == (low, high)).all(axis=1)) for low in range(6) for high in range(low, 6)]
    chances = [(1 if low == high else 2) / 36 for low in range(6) for high in range(low, 6)]
    assert np.sum(rolls) == 4000 and chi_square(rolls, chances) < 45.3  # 20 degrees of freedom, 0.1 %
    state = jax.jit(powers.env.init)(jax.random.key(3))
    action = int(np.flatnonzero(state.legal_action_mask)[0])
    boards = drawn(powers, state, action, code, 4000)._board.reshape(4000, -1)
    kinds, counts = np.unique(boards, axis=0, return_counts=True)
    is_new = kinds != np.min(kinds, axis=0)
    tiles = np.sum(np.where(is_new, kinds, 0), axis=1)  # the power of each new tile
    cells = len(kinds) // 2
    assert np.all(is_new.sum(axis=1) == 1) and len(kinds) == 2 * cells
    assert chi_square(counts, np.where(tiles == 1, 0.9, 0.1) / cells) < 62.5  # up to 31 degrees of freedom, 0.1 %


@pytest.mark.thorough
def test_a_position_where_a_game_is_cut_off_counts_as_the_network_says() -> None:
    """Also deeper in the tree, and as the root, whose value a target then has."""
    name, random = "jax_nim:CUT", np.random.default_rng(3)
    rules, learner = pgx_rules.game(name), agent(name, search__num_simulations=12, search__num_considered=3)
    loud = jax.tree.map(lambda x: x + 0.5 * random.normal(size=x.shape).astype(x.dtype), params(name))
    found = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), 2))
    behind, _ = jax.jit(rules.step)(found, jnp.zeros(2, jnp.int32))
    searched, cut = (search(learner, loud, inputs(rules, each)) for each in (found, behind))
    assert np.all(np.abs(cut.network_value) > 0.01) and np.all(searched.visit_counts[:, 0] > 1)
    np.testing.assert_allclose(searched.q_values[:, 0], -cut.network_value, atol=1e-5)  # the other player's turn
    np.testing.assert_allclose(cut.value, cut.network_value, atol=1e-5)


@pytest.mark.thorough
def test_a_tree_knows_who_moves_behind_chance() -> None:
    rules, learner = pgx_rules.game(LUCKY), agent(LUCKY, search__num_simulations=60, search__num_considered=3)
    found = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), 2))
    tree = search(learner, params(LUCKY), inputs(rules, found)).tree
    assert tree is not None and tree.is_afterstate is not None
    roots = outcomes.root_keys(jax.random.key(1), 2)

    @jax.jit
    def draw(data: jax.Array, code: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn, behind = outcomes.outcome_keys(data, code[None])
        return jax.random.bernoulli(drawn[0]), behind

    seen = set()
    for row, first_pile in enumerate(np.asarray(found.pile).tolist()):
        piles, keys = {0: first_pile}, {0: roots[row : row + 1]}
        for node in range(1, tree.parent.shape[1]):
            if tree.num_visits[row, node] == 0:
                continue
            parent, action = int(tree.parent[row, node]), int(tree.action[row, node])
            if tree.is_afterstate[row, node]:
                piles[node] = max(0, piles[parent] - action - 1) if piles[parent] else -1
                keys[node] = keys[parent]
                continue
            again, keys[node] = draw(keys[parent], action)
            has_ended = piles[parent] < 0  # the search goes on behind the end
            piles[node] = max(0, piles[parent])
            assert tree.reward[row, node] == (piles[parent] == 0 and not has_ended)
            assert tree.discount[row, node] == (0 if piles[node] == 0 else 1 if again else -1)
            seen.add(float(tree.discount[row, node]))
    assert seen >= {1.0, -1.0}


@pytest.mark.thorough
def test_where_the_turn_does_not_pass_chance_has_one_outcome() -> None:
    name = "jax_nim:TURNS"
    rules, learner = pgx_rules.game(name), agent(name, search__num_simulations=60, search__num_considered=3)
    found = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), 2))
    tree = search(learner, params(name), inputs(rules, found)).tree
    assert tree is not None and tree.is_afterstate is not None
    codes: dict[tuple[int, int], set[int]] = {}  # of afterstates with several visits
    for row in range(2):
        for node in range(1, tree.parent.shape[1]):
            parent = int(tree.parent[row, node])
            if tree.num_visits[row, node] and tree.is_afterstate[row, parent] and tree.num_visits[row, parent] > 3:
                codes.setdefault((row, parent), set()).add(int(tree.action[row, node]))
    moves_again = {place: int(tree.action[place]) == 2 for place in codes}
    assert any(len(found) > 1 for place, found in codes.items() if not moves_again[place])
    assert {tuple(found) for place, found in codes.items() if moves_again[place]} == {(0,)}


@pytest.mark.thorough
def test_the_mover_is_stored_and_returns_follow_it() -> None:
    rules, learner = pgx_rules.game(LUCKY), agent(LUCKY, alphazero__n_step=4)
    found = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), 8))
    _, outputs = jax.jit(learner.act)(params(LUCKY), (), inputs(rules, found), jax.random.key(0))
    assert outputs.stored.keys() == learner.stored.keys() >= {"mover"}
    assert (
        np.array_equal(outputs.stored["mover"], found.current_player) and len(set(found.current_player.tolist())) == 2
    )
    made = windows(learner)
    mover = np.random.default_rng(0).integers(0, 2, made.valid.shape).astype(np.int8)
    made = made._replace(stored={**made.stored, "mover": jnp.asarray(mover)})
    expected = []
    for row in range(4):
        last = int(np.flatnonzero(made.valid[row])[-1])
        m, total = min(4, last), 0.0
        sign = np.where(mover[row] == mover[row, 0], 1.0, -1.0)
        for step in range(1, m + 1):
            total += sign[step - 1] * float(made.reward[row, step])  # whoever moved got it
        expected.append(total + sign[m] * float(made.stored["value"][row, m]) * (not bool(made.terminated[row, m])))
    targets = jax.jit(functools.partial(alphazero._targets, learner.update.args[0]))(made)
    np.testing.assert_allclose(targets.value[:, 0], expected, atol=1e-6)


@pytest.mark.thorough
def test_acting_takes_legal_moves_and_stores_no_state() -> None:
    found, rules, learner = piles(), pgx_rules.game(NIM), agent()
    act = jax.jit(learner.act)
    for seed in range(3):
        _, outputs = act(params(), (), inputs(rules, found, types.EXPLORE), jax.random.key(seed))
        mask = np.asarray(found.legal_action_mask)
        assert mask[np.arange(len(mask)), np.asarray(outputs.action)].all()
        assert not np.asarray(outputs.stored["policy"])[~mask].any()
        assert outputs.stored.keys() == learner.stored.keys() == {"action", "policy", "value"}


def test_rings_hold_what_was_seen_and_no_states() -> None:
    spec, settings = pgx_rules.game(NIM).spec(has_state=True), {"replay.num_slots": 4, "batcher.max_batch": 4}
    given = configs.override(config(), {**settings, "training.num_devices": 1, "replay.capacity": 64})
    actor = states.abstract_actor(setups.make(given, spec, meshes.make(1)))
    assert actor.rings.observation.shape[2:] == spec.kept.observation_shape
    assert spec.kept.observation_bytes < spec.observation_bytes
    layout, _ = batches.plan(given, 1)
    assert batches.padding(spec, layout, 4).observation.shape == (4, spec.observation_bytes)


def test_acting_writes_the_first_bytes_of_what_it_saw() -> None:
    rules, settings = pgx_rules.game(NIM), {"replay.num_slots": 9, "batcher.max_batch": 9, "training.num_devices": 1}
    spec, found = rules.spec(has_state=True), piles()
    setup = setups.make(configs.override(config(), settings), spec, meshes.make(1))
    number = len(found.terminated)
    shown = np.asarray(found.observation).astype(rules.observation.dtype)
    values = {types.OBSERVATION: shown, rules.state_name: rules.encode(found)}
    layout, _ = batches.plan(configs.override(config(), settings), 1)
    batch = batches.padding(spec, layout, number)._replace(observation=packing.pack(spec.packed, values))
    stored = {name: np.zeros((number, *each.shape), each.dtype) for name, each in setup.agent.stored.items()}
    row = acting._row(setup, batch, base.Outputs(jnp.zeros(number, jnp.int32), stored), steps.counters(0, 0, 0))
    assert np.array_equal(row.observation, shown.reshape(number, -1).view(np.uint8))


@pytest.mark.thorough
def test_acting_is_exported_for_any_number_of_rows() -> None:
    learner, rules, given = agent(NIM, search__num_simulations=4), pgx_rules.game(NIM), params()
    seen = inputs(rules, piles())
    (rows,) = export.symbolic_shape("rows")
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype), (seen.observation, seen.action_mask)
    )

    def act(observation: dict[str, jax.Array], mask: jax.Array) -> jax.Array:
        whole = seen._replace(
            observation=observation, action_mask=mask, action_mode=jnp.zeros(mask.shape[0], jnp.int8)
        )
        return learner.act(given, (), whole, jax.random.key(0))[1].action

    exported = export.export(jax.jit(act))(*shapes)
    expected = jax.jit(act)(seen.observation, seen.action_mask)
    assert np.array_equal(exported.call(seen.observation, seen.action_mask), expected)


# Learning ----------------------------------------------------------------------------------------------------------


def windows(learner: base.Agent, seed: int = 0) -> windowing.Windows:
    """Returns windows of four games of random results, ended or not, of different lengths."""
    generator, length = np.random.default_rng(seed), learner.data.length
    ends = np.array([2, 3, length - 1, length - 1])
    positions = np.arange(length)
    terminated = (positions == ends[:, None]) & np.array([[True], [True], [True], [False]])
    policy = generator.dirichlet(np.ones(3), (4, length)).astype(np.float32)
    seen = np.eye(jax_nim.LARGEST + 1, dtype=np.uint8)[generator.integers(0, 9, (4, 1))]
    return windowing.Windows(
        observation={types.OBSERVATION: jnp.asarray(seen)},
        places=jnp.zeros((4, 1, 1), jnp.int32),
        reward=jnp.asarray(np.where(terminated, [[1.0], [-1.0], [1.0], [0.0]], 0.0), jnp.float32),
        terminated=jnp.asarray(terminated),
        truncated=jnp.zeros((4, length), bool),
        first=jnp.zeros((4, length), bool),
        stored={
            "action": jnp.zeros((4, length), jnp.int32),
            "policy": jnp.asarray(policy),
            "value": jnp.asarray(generator.uniform(-1, 1, (4, length)), jnp.float32),
            "version": jnp.zeros((4, length), jnp.int32),
        },
        valid=jnp.asarray(positions <= ends[:, None]),
        weight=jnp.ones(4),
        slot=jnp.arange(4),
        time=jnp.zeros(4, jnp.int32),
    )


@pytest.mark.thorough
def test_targets_are_the_movers_results_or_search_values_of_unfinished_games() -> None:
    learner = agent(NIM, alphazero__n_step=4)
    found = windows(learner)
    _, _, metrics = jax.jit(lambda w: learner.update(learner.init(jax.random.key(0)), w, jax.random.key(1), None))(
        found
    )
    expected = []
    for row in range(4):
        last = int(np.flatnonzero(found.valid[row])[-1])
        m, sign, total = min(4, last), 1.0, 0.0
        for step in range(1, m + 1):
            total += sign * float(found.reward[row, step])
            sign = -sign
        total += sign * float(found.stored["value"][row, m]) * (not bool(found.terminated[row, m]))
        expected.append(total)
    assert expected[:3] == [-1.0, -1.0, -1.0]  # a win of the other one, a loss of this one, a win of the other one
    assert metrics["value_target_mean"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_means_are_of_the_learners_own_moves() -> None:
    learner = agent(NIM, alphazero__n_step=4)
    found = windows(learner)
    stored = {**found.stored, ring_store.OWN: jnp.zeros(found.valid.shape, bool).at[:3].set(True)}
    state, key = learner.init(jax.random.key(0)), jax.random.key(1)
    _, _, metrics = jax.jit(lambda w: learner.update(state, w, key, None))(found._replace(stored=stored))
    assert metrics["value_target_mean"] == pytest.approx(-1.0)  # as above; the last game is another player's


@pytest.mark.thorough
@pytest.mark.parametrize("has_results", [False, True])
def test_updates_learn_the_stored_policy_and_the_result(has_results: bool) -> None:
    learner = agent(NIM, optimizer__learning_rate=0.01, alphazero__win_draw_loss=has_results)
    found, state = windows(learner), jax.jit(learner.init)(jax.random.key(0))
    update = jax.jit(learner.update, static_argnums=3)
    losses = []
    for number in range(200):
        state, priority, metrics = update(state, found, jax.random.key(number), None)
        losses.append((float(metrics["loss_policy"]), float(metrics["loss_value"])))
    policy = np.asarray(found.stored["policy"])[:, 0]
    entropy = float(np.mean(-np.sum(policy * np.log(policy), axis=1)))
    assert losses[-1][0] < entropy + 0.1 < losses[0][0] and losses[-1][1] < 0.6 < losses[0][1]
    assert priority is not None and priority.shape == (4,)
    chances = [float(metrics[f"{name}_probability"]) for name in ("loss", "draw", "win") if has_results]
    assert not chances or sum(chances) == pytest.approx(1.0)
    assert float(metrics["value_mean"]) == pytest.approx(float(metrics["value_target_mean"]), abs=0.05)
    assert not chances or chances[2] - chances[0] == pytest.approx(float(metrics["value_mean"]))
    assert (3 if has_results else 5) in {leaf.shape[-1] for leaf in jax.tree.leaves(state.params["value_head"])}


@pytest.mark.thorough
def test_values_of_results_are_wins_less_losses() -> None:
    parts = agent(NIM, alphazero__win_draw_loss=True).update.args[0]
    logits = jnp.log(jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.25, 0.5, 0.25]]))
    np.testing.assert_allclose(alphazero._decode(parts, logits), [0.3, -0.5, 0.0], atol=1e-6)
    expected = [[0, 0.75, 0.25], [1, 0, 0], [0, 1, 0], [0.5, 0.5, 0], [0, 0, 1]]
    values = jnp.array([0.25, -1.0, 0.0, -0.5, 1.5])
    np.testing.assert_allclose(alphazero._encode(parts, values), expected)
    assert alphazero._exceeds(parts, values).tolist() == [False] * 4 + [True]
    plain = agent(NIM).update.args[0]
    assert alphazero._encode(plain, values).shape == (5, 5)


def test_windows_are_turned_with_their_policies() -> None:
    name = "tic_tac_toe"
    learner, rules = agent(name), pgx_rules.game(name)
    assert learner.data.length > 9 and len(pgx_rules.symmetries(name)) == 8
    parts = learner.update.args[0]
    board = jnp.zeros((64, 1, 3, 3, 2), jnp.uint8).at[:, 0, 0, 1, 0].set(1)
    policy = jnp.zeros((64, 1, rules.num_actions)).at[:, 0, 1].set(1.0)
    base_windows = windows(agent())._replace(observation={types.OBSERVATION: board}, stored={"policy": policy})
    seen, turned = jax.jit(functools.partial(alphazero._turned, parts))(base_windows, jax.random.key(0))
    places = np.asarray(seen)[..., 0].reshape(64, 9)
    assert np.array_equal(places, np.asarray(turned)) and {1, 3, 5, 7} == set(np.argmax(places, axis=1).tolist())


# Settings ----------------------------------------------------------------------------------------------------------


def test_environments_without_rules_to_search_by_are_refused_by_name() -> None:
    wrong = configs.override(config(), {"env.id": "pgx:kuhn_poker"})
    with pytest.raises(errors.ConfigError, match=r"--env=pgx:kuhn_poker.*'kuhn_poker'"):
        agent_table.make(wrong, types.EnvSpec((3,), "float32", 4), "cpu")


@pytest.mark.parametrize("name", ["jax_nim:HALF", "jax_nim:DICE"])
def test_results_but_wins_draws_and_losses_are_refused_by_name(name: str) -> None:
    spec = pgx_rules.game(name).spec(has_state=True)
    with pytest.raises(errors.ConfigError, match=f"win_draw_loss.*{name}"):
        agent_table.make(config(name, alphazero__win_draw_loss=True), spec, "cpu")


def test_environments_that_show_no_state_or_another_layout_are_refused_by_name() -> None:
    other = pgx_rules.game("tic_tac_toe").spec(has_state=True)  # as of rules of another version
    facts = rf"{re.escape(pgx_rules.game(NIM).state_name)}.*same version of pgx.*--env\.game_state"
    for spec in (pgx_rules.game(NIM).spec(has_state=False), other):
        with pytest.raises(errors.ConfigError, match=facts):
            agent_table.make(config(), spec, "cpu")


@pytest.mark.thorough
def test_every_preset_of_a_board_game_is_an_alphazero_s() -> None:
    for name in ("pgx", "hex", "othello", "go9"):
        assert presets.get(name).run.agent == "alphazero" and presets.get(name).env.id.startswith("pgx:")
    assert presets.get("connect_four", "alphazero").env.id == "pgx:connect_four"
    assert presets.choose("pgx:othello", None) == ("othello", "") and presets.choose("pgx:chess", None)[0] == "pgx"
