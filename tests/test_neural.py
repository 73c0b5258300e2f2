"""Learned policies: what they see, how they vote, the files they are kept in, their warm start."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrices import WIDTH, random_matrix
from test_leaks import leaks

from autotts_jax.core import pool as branch_pool
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.envs import WidthDepth, WidthDepthRounds, observations
from autotts_jax.errors import InputError
from autotts_jax.policies.cmc import CMC
from autotts_jax.policies.neural import actions as decisions
from autotts_jax.policies.neural import network, policy_file
from autotts_jax.policies.neural.policy import NeuralPolicy, apply_network, decisions_of, initial_parameters
from autotts_jax.policies.players import select
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE
from autotts_jax.training import imitation, teachers, vote_weights
from autotts_jax.training.arena import Arena, draw_prices
from autotts_jax.training.evolution import Evolution, EvolutionSettings

pytestmark = pytest.mark.usefixtures("compile_fast")

HIDDEN = 4
RANGE = (1e-5, 1e-3)


def policy(seed: int = 0, gamma: float = 1e-4, scale: float = 1.0, actions: str = "rounds") -> NeuralPolicy:
    """A policy whose last layers, small at first, are scaled up, so that it does many things."""
    parameters = initial_parameters(HIDDEN, jax.random.key(seed), actions)
    return NeuralPolicy(jax.tree.map(lambda leaf: np.asarray(leaf) * scale, parameters), gamma)


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32).matrix


def orders(rows: int, width: int) -> np.ndarray:
    return np.stack([np.random.default_rng(row).permutation(32)[:width] for row in range(rows)])


def weighing(policy: NeuralPolicy, *coefficients: float) -> NeuralPolicy:
    """The policy with these coefficients of the weights of votes."""
    kernel = np.array(coefficients, np.float32)[:, None]
    return dataclasses.replace(policy, parameters={**policy.parameters, "of_vote": {"kernel": kernel}})


@pytest.mark.parametrize(("actions", "seed"), [("rounds", 0), ("rounds", 3), ("atomic", 9), ("atomic", 12)])
def test_a_policy_sees_only_what_it_revealed(matrix, actions, seed):
    assert not leaks(weighing(policy(seed, scale=3.0, actions=actions), 1, -2, 1), matrix)


def test_it_reads_the_features_that_the_environments_show(matrix):
    env = WidthDepthRounds(16, max_advance=decisions.MAX_ADVANCE)
    params = env.make_params(matrix, gamma=1e-5)
    _, state = env.reset(jax.random.key(0), params)
    action = jnp.concatenate([jnp.array([0, 9]), jnp.zeros(16, int)])
    seen = None
    for _ in range(12):
        seen, state, *_ = env.step_env(jax.random.key(1), state, action, params)
        action = jnp.concatenate([jnp.array([0, 0]), jnp.where(jnp.arange(16) < 9, 3, 0)])
    pool = dataclasses.replace(state.pool, _matrix=matrix)
    recall = network.start_recall(16)._replace(tracker=state.tracker)
    ours = network.look(pool, recall, jnp.float32(1e-5)).view
    names = [feature.name for feature in observations.BRANCH_FEATURES]
    for row, name in zip(ours.branches[:-1], network.BRANCH_INPUTS[:-1], strict=True):
        np.testing.assert_array_equal(row, seen["branches"][:, names.index(name)])
    names = [feature.name for feature in observations.GLOBAL_FEATURES]
    for value, name in zip(ours.episode[:-3], network.GLOBAL_INPUTS[:-3], strict=True):
        shown = seen["globals"][names.index(name)]
        if name in network.COUNTS:
            shown = shown * 16 / network.WIDTH
        expected = 1.0 if name == "gamma" else shown
        np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("atomic", [False, True])
def test_it_remembers_disagreement_and_confidence(matrix, atomic):
    """Round by round as a plain loop over the rounds' own vote has it, or branch by branch."""
    pool = ReplayPool.begin(matrix, 0, jnp.asarray(orders(1, 16)[0])).open(12)
    recall = network.start_recall(16)
    recall = network.turn(recall, pool, pool)._replace(tracker=observations.track(recall.tracker, pool, pool))
    look = jax.jit(lambda pool, recall: network.look(pool, recall, jnp.float32(1e-4), atomic))
    advance = jax.jit(lambda pool, chosen: pool.advance((pool.live & chosen).astype(jnp.int32)))
    turn = jax.jit(lambda *states: network.turn(*states, atomic))
    quick = slow = 0.0
    disagreement = np.zeros(16, int)
    rounds, most = 0, 24
    for step in range(12 * most if atomic else most):
        seen, recall = look(pool, recall)
        vote = pool.vote_finals()
        ids = np.asarray(recall.tracker.ids)
        disagrees = np.asarray(pool.live) & (int(vote.voters) > 0) & (ids != ids[int(vote.leader)])
        passed = not atomic or int(pool.depth.max()) > rounds
        disagreement = np.where(disagrees, disagreement + passed, 0)
        quick += 0.5 * passed * (float(vote.confidence) - quick)
        slow += 0.2 * passed * (float(vote.confidence) - slow)
        np.testing.assert_array_equal(recall.disagreement, disagreement)
        np.testing.assert_allclose(seen.branches[-1], np.minimum(disagreement / 8, 4), rtol=1e-6)
        expected = [rounds / 32, quick, 4 * (quick - slow)]
        np.testing.assert_allclose(seen.episode[-3:], expected, rtol=1e-4, atol=1e-6)
        rounds += passed
        after = advance(pool, (np.arange(16) == step % 12) if atomic else np.ones(16, bool))
        recall, pool = turn(recall, pool, after), after
    assert disagreement.max() > 0
    assert rounds == most + atomic  # the first branch was a round, too


def test_the_width_of_the_pool_makes_no_difference(matrix):
    """As long as it is not exhausted: it opens what fits."""
    chosen = [policy(seed, scale=3.0) for seed in range(8)]
    episodes = Episodes(*np.array([(q, 0, s) for q in range(6) for s in range(8)]).T)
    table = orders(1, 32)
    wide = rollout(chosen, matrix, table, episodes)
    few = wide.branches < 16
    narrow = rollout(chosen, matrix, table[:, :24], episodes)
    assert few.any()
    for name in ("answer", "tokens", "rounds"):
        np.testing.assert_array_equal(getattr(wide, name)[few], getattr(narrow, name)[few])


def test_every_round_makes_progress(matrix):
    """Whatever the parameters, an episode ends by an answer or by having read everything."""
    policies = [policy(seed, scale=4.0) for seed in range(16)]
    episodes = Episodes(*np.array([(q, 0, s) for q in range(6) for s in range(16)]).T)
    played = rollout(policies, matrix, orders(1, 24), episodes)
    assert set(played.stop_reason) <= {StopReason.DECIDED, StopReason.STEP_LIMIT}
    assert (played.branches >= 1).all()
    assert (played.intervals >= 1).all()


def test_options_before_during_and_after():
    options = decisions.Rounds().options
    pool = ReplayPool.begin(random_matrix(0), 0, np.arange(WIDTH))
    first = options(pool)
    assert not first.answer
    assert first.go_on
    assert not first.opening[0]  # the first round opens
    assert first.choice[0].all()  # nothing to do but to hold
    opened = pool.open(2)
    during = options(opened)
    assert during.answer
    assert during.go_on
    assert during.opening[0]
    np.testing.assert_array_equal(during.choice[0], ~opened.live)
    np.testing.assert_array_equal(during.choice[1], opened.live)
    fits = np.array(decisions.OPENINGS) <= WIDTH - 2
    np.testing.assert_array_equal(during.opening, fits)
    ended = opened.advance(jnp.full(WIDTH, 1000))
    assert options(ended).answer
    assert not options(ended).go_on  # nothing is left to read


def test_atomic_actions_are_those_of_the_environment(matrix):
    """The rollout's episodes, action by action in the environment, and without limit to their number."""
    seeds, table = (4, 6, 9, 12, 22), orders(1, 24)
    policies = [policy(seed, scale=3.0, actions="atomic") for seed in seeds]
    episodes = Episodes(*np.array([(q, 0, s) for q in range(6) for s in range(len(seeds))]).T)
    played = rollout(policies, matrix, table, episodes)
    assert set(played.stop_reason) == {StopReason.DECIDED}
    assert played.rounds.max() > 2000
    assert len(np.unique(played.branches)) > 3
    env = WidthDepth(24)
    params = env.make_params(matrix, gamma=1e-4)

    @jax.jit
    @jax.vmap
    def by_hand(parameters, question):
        _, state = env.reset(jax.random.key(0), params, question=question, order=jnp.asarray(table[0]))

        def step(carry):
            state, recall, *_ = carry
            pool = branch_pool.attach(state.pool, matrix)
            seen, recall = network.look(pool, recall._replace(tracker=state.tracker), state.gamma, True)
            logits = apply_network(parameters, seen)
            action = jnp.argmax(jnp.where(env.action_mask(pool), logits, -jnp.inf))
            _, state, _, answered, info = env.step_env(jax.random.key(0), state, action, params)
            return state, recall, answered, {name: info[name] for name in COUNTED}

        start = state, network.start_recall(24), jnp.bool_(False), dict.fromkeys(COUNTED, jnp.int32(0))
        state, _, _, info = jax.lax.while_loop(lambda carry: ~carry[2], step, start)
        return info | {"rounds": state.time}

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[chosen.parameters for chosen in policies])
    expected = by_hand(jax.tree.map(lambda leaf: leaf[episodes.setting], stacked), episodes.question)
    for name, column in expected.items():
        np.testing.assert_array_equal(getattr(played, name), column, err_msg=name)


COUNTED = ("answer", "tokens", "intervals", "probes")


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", decisions.KINDS)
def test_a_policy_comes_back_from_its_file(tmp_path, actions):
    kept = policy(5, gamma=3e-5, actions=actions)
    policy_file.save_policy(tmp_path / policy_file.BEST, kept, {"data": "synthetic"})
    for path in (tmp_path, tmp_path / policy_file.BEST):
        loaded, card = policy_file.load_policy(path)
        assert card == {"data": "synthetic"}
        assert loaded.gamma == pytest.approx(3e-5)
        jax.tree.map(np.testing.assert_array_equal, dict(loaded.parameters), dict(kept.parameters))
    assert [file.name for file in tmp_path.iterdir()] == [policy_file.BEST]


def test_controllers_by_checkpoint(tmp_path):
    policy_file.save_policy(tmp_path / "own.npz", policy())
    selection = select(f"neural:{tmp_path / 'own.npz'}@1e-4")
    assert selection.values == (1e-4,)
    assert len(select(f"neural:{tmp_path / 'own.npz'}").controllers) == len(NeuralPolicy.family)
    with pytest.raises(InputError, match="γ is -1"):
        select(f"neural:{tmp_path / 'own.npz'}@-1")
    with pytest.raises(InputError, match="no such file"):
        select(f"neural:{tmp_path / 'other.npz'}")


def test_the_shipped_policy(matrix):
    """It plays, and knows what it was trained on."""
    selection = select("neural")
    assert selection.values == NeuralPolicy.family
    assert policy_file.SHIPPED.stat().st_size < 1_000_000
    _, card = policy_file.load_policy(policy_file.SHIPPED)
    assert set(card["data"]) == {f"Qwen3-{size}/aime24" for size in ("0.6B", "1.7B", "4B", "8B")}
    dear, cheap = selection.controllers[0], selection.controllers[-1]
    episodes = Episodes(*np.array([(q, 0, s) for s in (0, 1) for q in range(6)]).T)
    played = rollout([dear, cheap], matrix, orders(1, 24), episodes)
    assert (played.stop_reason == StopReason.DECIDED).all()
    assert played.intervals[:6].sum() < played.intervals[6:].sum()


def edit(path, change):
    with np.load(path) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays["header"]))
    change(header, arrays)
    arrays["header"] = np.array(json.dumps(header))
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, _: header.update(version=2), "version 2"),
        (lambda header, _: header.update(format="other"), "format is 'other'"),
        (lambda header, _: header.pop("architecture"), "architecture"),
        (lambda header, _: header["architecture"].update(hidden=7), "another network"),
        (lambda header, _: header["architecture"].update(openings=[1]), "another network"),
        (lambda header, _: header["architecture"].pop("hidden"), "another network"),
        (lambda header, _: header["architecture"].update(actions="atomic"), "another network"),
        (lambda header, _: header["architecture"].update(actions="others"), "another network"),
        (lambda header, _: header["architecture"].pop("vote_inputs"), "another network"),
        (lambda _, arrays: arrays.pop("of_vote/kernel"), "another network"),
        (lambda _, arrays: arrays.pop("trunk/bias"), "another network"),
        (lambda _, arrays: arrays.update({"trunk/bias": np.zeros(3)}), "another network"),
        (lambda _, arrays: arrays["trunk/bias"].fill(np.nan), "not all finite"),
    ],
)
def test_files_for_another_network_are_refused(tmp_path, change, message):
    path = tmp_path / "policy.npz"
    policy_file.save_policy(path, policy())
    edit(path, change)
    with pytest.raises(InputError, match=message) as caught:
        policy_file.load_policy(path)
    assert str(path) in str(caught.value)


def test_parameters_of_the_other_kind_are_refused(tmp_path):
    """Whatever the header says, rounds and atomic actions are not taken for one another."""
    files = {actions: tmp_path / f"{actions}.npz" for actions in decisions.KINDS}
    headers = {}
    for actions, file in files.items():
        policy_file.save_policy(file, policy(actions=actions))
        edit(file, lambda header, _, actions=actions: headers.update({actions: header["architecture"]}))
    for file, other in zip(files.values(), reversed(headers.values()), strict=True):
        edit(file, lambda header, _, other=other: header.update(architecture=other))
        with pytest.raises(InputError, match="another network"):
            policy_file.load_policy(file)


def test_half_a_file_is_refused(tmp_path):
    path = tmp_path / "policy.npz"
    policy_file.save_policy(path, policy())
    whole = path.read_bytes()
    for part in (0, 10, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:part])
        with pytest.raises(InputError, match="not a policy, or damaged"):
            policy_file.load_policy(path)


# --- warm start and evolution ------------------------------------------------------------------------------


def test_demonstrations_are_what_the_teacher_did(matrix):
    teacher, table = CMC.of_beta(0.1), orders(6, 24)
    demos = imitation.demonstrate(teacher, 1e-4, matrix, table, np.arange(6))
    played = rollout([teacher], matrix, table, Episodes(np.arange(6), np.arange(6), np.zeros(6, int)))
    # A decision a round, one to open the first branches, and one to answer.
    assert len(demos.decision.answer) == played.rounds.sum() + 2 * 6
    assert demos.decision.answer.sum() == 6
    goes_on = ~demos.decision.answer
    opened = np.array(decisions.OPENINGS)[demos.decision.opening[goes_on]]
    assert opened.sum() == played.branches.sum()
    allowed = np.take_along_axis(demos.options.choice, demos.decision.choice[:, None], axis=1)
    assert allowed[goes_on].all()


def test_openings_are_demonstrated_as_far_as_there_is_room(matrix):
    # 5 branches at first, and later the other 11 of 16: nearest to that many is 12.
    teacher = dataclasses.replace(CMC.of_beta(0.5), n_init=5, max_use=16, widen=11, trend=1.0, threshold=2.0)
    demos = imitation.demonstrate(teacher, 1e-4, matrix, orders(6, 24)[:, :16], np.arange(6))
    goes_on = ~demos.decision.answer
    opened = np.array(decisions.OPENINGS)[demos.decision.opening[goes_on]]
    assert set(opened) == {0, 4, 8}
    allowed = np.take_along_axis(demos.options.opening, demos.decision.opening[:, None], axis=1)
    assert allowed[goes_on].all()


def test_demonstrations_until_the_peak_end_right(matrix):
    teacher, table = CMC.of_beta(0.5), orders(6, 24)
    whole = imitation.demonstrate(teacher, 1e-4, matrix, table, np.arange(6))
    gold = np.asarray(matrix.gold, np.int32)
    peaked = imitation.demonstrate(teacher, 1e-4, matrix, table, np.arange(6), gold)
    played = rollout([teacher], matrix, table, Episodes(np.arange(6), np.arange(6), np.zeros(6, int)))
    assert played.correct.sum() <= peaked.decision.answer.sum() <= 6
    assert 0 < len(peaked.decision.answer) < len(whole.decision.answer)
    none = imitation.demonstrate(teacher, 1e-4, matrix, table, np.arange(6), np.full(6, -1, np.int32))
    assert len(none.decision.answer) == 0  # nothing is right


def test_demonstrations_where_a_player_came_to_are_its_own_episodes(matrix):
    teacher, player, table = CMC.of_beta(0.3), policy(), orders(6, 24)
    episodes = Episodes(np.arange(6), np.arange(6), np.zeros(6, int))
    played = rollout([player], matrix, table, episodes)
    assert 0 < played.rounds.min() <= played.rounds.max() < imitation.ROUNDS
    demos = imitation.demonstrate(
        teacher, player.gamma, matrix, table, np.arange(6), player=player.parameters
    )
    # The states are the player's, from the first to the one it answers in, …
    opened = network.GLOBAL_INPUTS.index("opened")
    first = np.flatnonzero(demos.view.episode[:, opened] == 0)
    last = np.append(first[1:], len(demos.view.episode)) - 1
    assert len(first) == 6
    np.testing.assert_array_equal(last - first + 1, played.rounds)
    np.testing.assert_allclose(demos.view.episode[last, opened] * network.WIDTH, played.branches, rtol=1e-5)
    # … and the decisions the teacher's, who would have begun otherwise.
    began = np.array(decisions.OPENINGS)[demos.decision.opening[first]]
    assert (began == CMC.of_beta(0.3).n_init).all()
    assert (demos.view.episode[first + 1, opened] * network.WIDTH != began).any()


def test_a_clone_decides_as_its_teacher(matrix):
    demos = imitation.demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(6, 24), np.arange(6))
    start = initial_parameters(HIDDEN, jax.random.key(0))
    _, before = imitation.clone(start, demos, jax.random.key(1), updates=2, batch=64, learning_rate=0.0)
    clone, after = imitation.clone(start, demos, jax.random.key(1), updates=800, batch=64, learning_rate=1e-2)
    assert float(after) < 0.3 * float(before)
    heads = jax.vmap(lambda view: apply_network(clone, view))(demos.view)
    first = demos.view.episode[:, 0] == 0
    best = np.array(decisions.OPENINGS)[np.argmax(heads.opening[first], axis=1)]
    np.testing.assert_allclose(best, CMC.of_beta(0.1).n_init, atol=1)


@pytest.mark.slow
def test_a_warm_start_is_made_of_parameters(matrix, monkeypatch):
    params = WidthDepthRounds(16).make_params(matrix, gamma=RANGE, reward="majority")
    settings = imitation.CloningSettings(
        generations=1, population=4, turns=2, prices=2, updates=5, until_peak=True
    )
    told, voted = [], []

    def learn_votes(*args):
        voted.append(vote_weights.learn_votes(*args))
        return voted[-1]

    monkeypatch.setattr(imitation, "learn_votes", learn_votes)
    parameters = imitation.warm_start(
        settings, params, 16, HIDDEN, jax.random.key(0), lambda *figures: told.append(figures)
    )
    start = initial_parameters(HIDDEN, jax.random.key(0))
    assert jax.tree.map(jnp.shape, parameters) == jax.tree.map(jnp.shape, start)
    assert len(told) == 1
    assert voted == [parameters]


# --- weights of votes --------------------------------------------------------------------------------------


def thorough() -> NeuralPolicy:
    """A policy that prunes nothing, and answers when there is nothing left to read."""
    parameters = policy(3, scale=3.0).parameters
    never = {"of_episode": [-50, 1], "of_branch": [0, -50, 0, 0]}
    patient = {name: {**parameters[name], "bias": np.array(bias, np.float32)} for name, bias in never.items()}
    return NeuralPolicy({**parameters, **patient}, 1e-4)


def last_states(policy, matrix, table, questions):
    """The pool and the memory that an episode on each question ends with."""
    matrix = jax.tree.map(jnp.asarray, matrix)

    @jax.jit
    def play(order, question):
        def go_on(carry):
            return policy.round(*carry[:2])

        empty = ReplayPool.begin(matrix, question, order)
        start = (*policy.start(empty), jnp.int32(StopReason.RUNNING))
        memory, pool, _ = jax.lax.while_loop(lambda carry: carry[2] == StopReason.RUNNING, go_on, start)
        return memory, pool

    return [play(order, question) for order, question in zip(table, questions, strict=True)]


def test_equal_weights_are_the_majority_of_the_environment(matrix):
    plain, environment = thorough(), WidthDepthRounds(24)
    for memory, pool in last_states(plain, matrix, orders(6, 24), np.arange(6)):
        ours, theirs = plain.vote(memory, pool), environment.aggregate(pool, memory.tracker)
        assert jax.tree.map(int, ours) == jax.tree.map(int, theirs)


def test_weights_decide_the_answer(matrix):
    """If only the shallowest final counts, its answer wins; if only the deepest does, that one's."""
    plain = thorough()
    differ = 0
    for memory, pool in last_states(plain, matrix, orders(6, 24), np.arange(6)):
        final = np.flatnonzero(observations.standing(pool, memory.tracker).final)
        ids, depth = np.asarray(memory.tracker.ids)[final], np.asarray(pool.depth)[final]
        for sign, end in ((-60, depth.min()), (60, depth.max())):
            leader = int(weighing(plain, sign, 0, 0).vote(memory, pool).leader)
            counts = np.bincount(ids[depth == end])
            assert counts[memory.tracker.ids[leader]] == counts.max()
        differ += ids[depth.argmin()] != ids[depth.argmax()]
    assert differ


def test_what_a_weight_is_read_from(matrix):
    [(memory, pool), *_] = last_states(thorough(), matrix, orders(1, 24), [0])
    depth, streak = np.asarray(pool.depth), np.asarray(memory.tracker.streak)
    assert depth.min() > 0
    assert len(set(streak)) > 1
    expected = {"depth": depth / 10, "log_depth": np.log(depth), "streak": streak / 10}
    read = network.vote_columns(pool, memory.tracker)
    np.testing.assert_allclose(read, [expected[name] for name in network.VOTE_INPUTS], rtol=1e-6)


def test_only_finals_of_active_branches_have_weight(matrix):
    """Whatever a pruned branch, an unfinished one, or one without an answer would weigh."""
    heavy = weighing(policy(), 100, 0, 0)
    empty = ReplayPool.begin(jax.tree.map(jnp.asarray, matrix), 0, orders(1, 4)[0])
    memory, _ = heavy.start(empty)
    assert int(heavy.vote(memory, empty).leader) == NONE
    pool, tracker = empty.open(4), memory.tracker
    tracker = observations.track(tracker, empty, pool)
    for branch in range(3):
        further = pool.advance(100 * (np.arange(4) == branch))
        tracker = observations.track(tracker, pool, further)
        pool = further
        vote = heavy.vote(memory._replace(tracker=tracker), pool)
        assert bool(pool.finished[vote.leader])
    deepest = int(np.argmax(pool.depth))
    assert int(heavy.vote(memory._replace(tracker=tracker), pool).leader) == deepest
    pruned = pool.prune(np.arange(4) == deepest)
    assert int(heavy.vote(memory._replace(tracker=tracker), pruned).leader) != deepest


def test_without_finals_the_latest_answers_vote(matrix):
    heavy = weighing(policy(), 100, 0, 0)
    empty = ReplayPool.begin(jax.tree.map(jnp.asarray, matrix), 0, orders(1, 24)[0])
    memory, _ = heavy.start(empty)
    pool = empty.open(24)
    tracker = observations.track(memory.tracker, empty, pool)
    stand = observations.standing(pool, tracker)
    assert not stand.final.any()
    assert stand.latest.voters > 0
    assert jax.tree.map(int, heavy.vote(memory._replace(tracker=tracker), pool)) == jax.tree.map(
        int, stand.latest
    )


def test_what_votes_weigh_is_the_most_likely():
    """Two votes against one are right twice as often, so a power of 1; and a vote that came ten intervals
    earlier than the other three times as often, so a coefficient of -log 3."""
    inputs = len(network.VOTE_INPUTS)
    known, answers, labels = np.zeros((70, inputs, 3), np.float32), np.full((70, 3), -1), np.zeros(70, int)
    answers[:30] = 0, 0, 1
    labels[:30] = np.repeat([0, 1], (20, 10))
    answers[30:, :2] = 0, 1
    known[30:, 0, 1] = 1
    labels[30:] = np.repeat([0, 1], (30, 10))
    silent = known[:5] + 7, np.zeros((5, 3), int), np.arange(5) % 2  # all agree: these say nothing
    fitted = vote_weights.fit(
        *(np.concatenate(parts) for parts in zip((known, answers, labels), silent, strict=True))
    )
    np.testing.assert_allclose(fitted, [-np.log(3), 0, 0], atol=0.07)  # less the price of a coefficient
    assert not vote_weights.fit(*silent).any()


def test_votes_that_speak_against_their_answer_weigh_the_same():
    """Two votes against one are wrong five times in six: no weights make the heaviest answer likely."""
    inputs = len(network.VOTE_INPUTS)
    known, answers = np.zeros((90, inputs, 3), np.float32), np.full((90, 3), -1)
    answers[:60] = 0, 0, 1
    answers[60:, :2] = 0, 1
    known[60:, 0, 1] = 1
    labels = np.repeat([0, 1, 0, 1], (10, 50, 22, 8))
    assert not vote_weights.fit(known, answers, labels).any()


def test_votes_are_learned_from_episodes_of_the_policy(matrix, monkeypatch):
    plain = thorough()
    arena = Arena(WidthDepthRounds(24).make_params(matrix, gamma=RANGE), 24)
    fitted, drawn, fit, draw = [], [], vote_weights.fit, arena.draw

    def note(store, function):
        def noted(*args):
            store.append((args, function(*args)))
            return store[-1][1]

        return noted

    monkeypatch.setattr(vote_weights, "fit", note(fitted, fit))
    monkeypatch.setattr(arena, "draw", note(drawn, draw))
    learned = vote_weights.learn_votes(plain.parameters, arena, jax.random.key(0))
    again = vote_weights.learn_votes(plain.parameters, arena, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, learned, again)
    [((columns, answers, labels), _), _] = fitted
    assert len(labels) == vote_weights.PRICES * vote_weights.ORDERS * 6
    (questions, _), (order, expected) = drawn[0]
    np.testing.assert_array_equal(expected, matrix.gold[questions])
    np.testing.assert_array_equal(labels[: len(expected)], expected)
    prices = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.key(0))))
    gamma = float(draw_prices(RANGE, vote_weights.PRICES, prices)[0])
    states = last_states(plain.at(gamma), matrix, order[::7], questions[::7])
    for (memory, pool), read, answered in zip(states, columns[::7], answers[::7], strict=False):
        np.testing.assert_array_equal(read, network.vote_columns(pool, memory.tracker))
        stand = observations.standing(pool, memory.tracker)
        np.testing.assert_array_equal(answered, np.where(stand.final, stand.ids, NONE))
    kernel = learned["of_vote"]["kernel"]
    assert kernel.shape == plain.parameters["of_vote"]["kernel"].shape
    assert np.isfinite(kernel).all()
    assert kernel.any()
    others = {name: leaf for name, leaf in learned.items() if name != "of_vote"}
    jax.tree.map(np.testing.assert_array_equal, others, {name: plain.parameters[name] for name in others})


# --- teachers ----------------------------------------------------------------------------------------------


def test_links_are_inverse_within_their_ranges():
    for name, link in teachers.LINKS.items():
        for share in (0.1, 0.5, 0.9):
            value = link.to(float(np.log(share / (1 - share))))
            assert link.low <= value <= link.high, name
            assert link.to(link.back(value)) == pytest.approx(value), name


def test_the_published_constants_are_where_tuning_starts():
    coefficients = teachers.published()
    dear, cheap = (teachers.teacher(coefficients, gamma, RANGE) for gamma in reversed(RANGE))
    assert (cheap.n_init, cheap.patience, cheap.min_complete) == (8, 12, 5)
    assert (dear.n_init, dear.patience) == (3, 4)
    assert dear.max_use < cheap.max_use


def test_tuning_raises_the_objective(matrix):
    dear = (1e-3, 1e-2)  # CMC reads more than pays here
    arena = Arena(WidthDepthRounds(16).make_params(matrix, gamma=dear), 16)
    told = []
    coefficients = teachers.tune(
        arena,
        jax.random.key(0),
        generations=12,
        population=12,
        on_progress=lambda *figures: told.append(figures),
    )
    assert [generation for generation, _ in told] == list(range(1, 13))

    def objective(coefficients):
        scores = arena.play(
            lambda _, gamma: teachers.teacher(coefficients, gamma, dear), 1, 64, jax.random.key(7)
        )
        return float(scores.objective[0])

    assert objective(coefficients) > objective(teachers.published())


def test_all_members_of_an_arena_play_the_same_episodes(matrix):
    arena = Arena(WidthDepthRounds(16).make_params(matrix, gamma=RANGE), 16)
    scores = arena.play(lambda *_: CMC.of_beta(0.3), 3, 4, jax.random.key(0))
    assert scores.right.shape == (3, 4, 6)
    for column in (scores.right, scores.intervals, scores.tokens):
        np.testing.assert_array_equal(column, column[:1].repeat(3, axis=0))
    assert (np.diff(scores.gammas) > 0).all()
    assert RANGE[0] <= scores.gammas[0] <= scores.gammas[-1] <= RANGE[1]
    worth = scores.right - scores.gammas[:, None] * scores.intervals
    np.testing.assert_allclose(scores.objective, worth.mean(axis=(1, 2)))


# --- evolution ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evolution(matrix):
    params = WidthDepthRounds(16).make_params(matrix, gamma=(1e-4, 1e-2))
    settings = EvolutionSettings(population=8, std=0.3, learning_rate=0.1, prices=2, max_branches=16)
    return Evolution(settings, params, initial_parameters(HIDDEN, jax.random.key(0)))


def test_evolution_raises_its_objective(evolution):
    state = evolution.init(jax.random.key(0))
    objectives = []
    for _ in range(15):
        state, metrics = evolution.update(state)
        objectives.append(float(metrics["objective"]))
    assert np.mean(objectives[-3:]) > np.mean(objectives[:3]) + 0.05
    evolved = evolution.policy(state)
    assert evolved.gamma == pytest.approx(1e-3, rel=1e-4)
    assert np.all(evolved.parameters["of_vote"]["kernel"] != 0)


def test_evolution_repeats_itself_from_a_state(evolution):
    state, _ = evolution.update(evolution.init(jax.random.key(1)))
    once, twice = evolution.update(state), evolution.update(jax.tree.map(np.asarray, state))
    jax.tree.map(np.testing.assert_array_equal, once, twice)


def test_evolution_of_a_policy_of_atomic_actions(matrix):
    params = WidthDepth(4).make_params(matrix, gamma=1e-3)
    settings = EvolutionSettings(population=4, std=0.3, prices=1, max_branches=4)
    start = initial_parameters(HIDDEN, jax.random.key(0), "atomic")
    trainer = Evolution(settings, params, start)
    state, metrics = trainer.update(trainer.init(jax.random.key(0)))
    assert metrics["objective_spread"] > 0
    parameters = trainer.policy(state).parameters
    assert decisions_of(parameters) is decisions.KINDS["atomic"]
    assert not np.array_equal(parameters["trunk"]["kernel"], start["trunk"]["kernel"])


def test_majority_labels_need_no_gold(matrix):
    env = WidthDepthRounds(16)
    settings = EvolutionSettings(population=2, prices=1, max_branches=16)
    start = initial_parameters(HIDDEN, jax.random.key(0))
    figures = []
    for gold in (matrix.gold, np.zeros_like(matrix.gold)):
        params = env.make_params(dataclasses.replace(matrix, gold=gold), gamma=1e-4, reward="majority")
        trainer = Evolution(settings, params, start)
        figures.append(trainer.update(trainer.init(jax.random.key(0)))[1])
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"population": 3}, "even number"), ({"std": 0.0}, "positive"), ({"prices": -1}, "positive")],
)
def test_settings_of_evolution_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        EvolutionSettings(**settings)
