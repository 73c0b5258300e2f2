"""Learned policies: what they see, how they vote, the files they are kept in."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from last_states import last_states
from matrices import WIDTH, random_matrix, shared_orders

import autotts_jax as at
from autotts_jax.collect import Sampling, SimulatedEngine
from autotts_jax.core import Action, Episodes, ReplayPool, StopReason, rollout
from autotts_jax.core.stepping import apply_action, view_of
from autotts_jax.envs import WidthDepth, WidthDepthRounds, observations
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.policies import NeuralPolicy, SignalInput, neural_family, select
from autotts_jax.policies.neural import actions as heads
from autotts_jax.policies.neural import network, policy_file
from autotts_jax.policies.neural.policy import GAMMAS, NeuralMemory, apply_network, initial_parameters
from autotts_jax.replay import NONE, SYNTHETIC_MODELS, BranchOrders, Scale, synthetic
from autotts_jax.testing import check_controller

HIDDEN = 4


SIGNALS = (SignalInput("conf_low", 12.0, 1.5), SignalInput("eat", 1.5, 0.25))


def policy(
    seed: int = 0,
    gamma: float = 1e-4,
    scale: float = 1.0,
    actions: str = "rounds",
    signal_inputs: tuple[SignalInput, ...] = (),
) -> NeuralPolicy:
    """A policy whose last layers, small at first, are scaled up, so that it does many things."""
    parameters = initial_parameters(HIDDEN, jax.random.key(seed), actions, len(signal_inputs))
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf) * scale, parameters)
    return NeuralPolicy(parameters, gamma, signal_inputs=signal_inputs)


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=True).matrix


def orders(rows: int, width: int) -> np.ndarray:
    return np.stack([np.random.default_rng(row).permutation(32)[:width] for row in range(rows)])


def shared(rows: int, width: int) -> BranchOrders:
    return shared_orders(orders(rows, width), questions=6)


def weighing(policy: NeuralPolicy, *coefficients: float) -> NeuralPolicy:
    """The policy with these coefficients of the weights of votes."""
    kernel = np.array(coefficients, np.float32)[:, None]
    return dataclasses.replace(policy, parameters={**policy.parameters, "of_vote": {"kernel": kernel}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "seed", "width", "signals"),
    [("rounds", 0, 8, ()), ("rounds", 3, 8, SIGNALS), ("atomic", 12, 8, SIGNALS)],
)
def test_a_policy_passes_the_check_of_controllers(matrix, actions, seed, width, signals):
    chosen = policy(seed, scale=3.0, actions=actions, signal_inputs=signals)
    check_controller(weighing(chosen, 1, -2, 1, *[1] * len(signals)), matrix, max_branches=width)


def test_it_reads_the_features_that_the_environments_show(matrix):
    env = WidthDepthRounds(16, max_advance=heads.MAX_ADVANCE)
    params = env.make_params(matrix, gamma=1e-5)
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    step, encode = jax.jit(env.step_env), jax.jit(network.encode)
    action = jnp.concatenate([jnp.array([0, 9]), jnp.zeros(16, int)])
    seen = None
    for _ in range(12):
        seen, state, *_ = step(jax.random.key(1), state, action, params)
        action = jnp.concatenate([jnp.array([0, 0]), jnp.where(jnp.arange(16) < 9, 3, 0)])
    view = view_of(state.pool.with_matrix(params.matrix))
    recurrent = network.initial_state(16)._replace(tracker=state.tracker)
    ours = encode(view, recurrent, jnp.float32(1e-5)).inputs
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


def test_signals_are_standardised(matrix):
    """After the other inputs; 0 where nothing is revealed, or what was recorded is not finite."""

    @jax.jit
    def read(matrix, order):
        pool = ReplayPool.begin(matrix, 0, order).step(Action(open=6, advance=jnp.full(8, 2)))
        view = pool.step(Action(advance=jnp.full(8, 1), probe=jnp.zeros(8, bool))).view()
        state = network.initial_state(8)
        inputs = network.encode(view, state, jnp.float32(1e-4), signal_inputs=SIGNALS).inputs
        return inputs.branches, network.vote_inputs(view, state.tracker, SIGNALS), view.revealed_depth

    recorded = {name: matrix.signals[name].copy() for name in ("conf_low", "eat")}
    recorded["conf_low"][0, 2] = np.nan
    recorded["eat"][0, :4] = [[np.inf], [-np.inf], [100], [-100]]
    shown = dataclasses.replace(matrix, signals=recorded)
    order = np.arange(8)
    branches, votes, depth = map(np.asarray, read(shown, order))
    assert list(depth[6:]) == [0, 0]
    at = np.stack([recorded[name][0, order, np.maximum(depth, 1) - 1].astype(float) for name in recorded])
    expected = np.clip((at - [[12.0], [1.5]]) / [[1.5], [0.25]], -4, 4)
    expected[~np.isfinite(at) | (depth == 0)] = 0
    assert (expected[0, 2], *expected[1, :4]) == (0, 0, 0, 4, -4)
    assert len(branches) == len(network.BRANCH_INPUTS) + 2
    np.testing.assert_allclose(branches[-2:], expected, rtol=1e-5)
    np.testing.assert_array_equal(votes[-2:], branches[-2:])
    # Only what is revealed is read, …
    for values in recorded.values():
        values[0, :8][np.arange(matrix.max_depth) >= depth[:, None]] = 7
    np.testing.assert_array_equal(read(shown, order)[0], branches)
    # … and it moves with its branch.
    order[[0, 3]] = 3, 0
    np.testing.assert_array_equal(read(shown, order)[0][-2:], branches[-2:, order])


def test_a_policy_is_refused_where_its_signals_are_not_recorded():
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=2, branches=4)
    own = policy(signal_inputs=SIGNALS)
    assert own.signals == ("conf_low", "eat")
    for play in (at.evaluate, at.trace):
        with pytest.raises(InputError, match="NeuralPolicy reads the signal conf_low, and the data has none"):
            play(data, own, max_branches=4)


@pytest.mark.slow
@pytest.mark.parametrize("atomic", [False, True])
def test_it_remembers_disagreement_and_confidence(matrix, atomic):
    """Round by round as a plain loop over the rounds' own vote has it, or branch by branch."""
    pool = ReplayPool.begin(matrix, 0, jnp.asarray(orders(1, 16)[0])).step(Action(open=12))
    view, state = view_of(pool), network.initial_state(16)
    # As a view that shows nothing new.
    state = state._replace(tracker=observations.track(state.tracker, observations.Before.of(view), view))
    encode = jax.jit(lambda view, state: network.encode(view, state, jnp.float32(1e-4), atomic))
    track = jax.jit(lambda *given: observations.track(*given, atomic))
    quick = slow = 0.0
    disagreement = np.zeros(16, int)
    rounds, most = 0, 24
    for step in range(12 * most if atomic else most):
        inputs, state = encode(view, state)
        vote = view.vote_finals()
        keys = np.asarray(state.tracker.keys)
        disagrees = np.asarray(view.live) & (int(vote.voters) > 0) & (keys != keys[int(vote.leader)])
        passed = not atomic or int(view.depth.max()) > rounds
        disagreement = np.where(disagrees, disagreement + passed, 0)
        quick += 0.5 * passed * (float(vote.confidence) - quick)
        slow += 0.2 * passed * (float(vote.confidence) - slow)
        np.testing.assert_array_equal(state.disagreement, disagreement)
        np.testing.assert_allclose(inputs.branches[-1], np.minimum(disagreement / 8, 4), rtol=1e-6)
        expected = [rounds / 32, quick, 4 * (quick - slow)]
        np.testing.assert_allclose(inputs.episode[-3:], expected, rtol=1e-4, atol=1e-6)
        rounds += passed
        reads = np.asarray(view.live) & ((np.arange(16) == step % 12) | (not atomic))
        before, pool = observations.Before.of(view), apply_action(pool, Action(advance=reads.astype(int)))
        view = view_of(pool)
        state = state._replace(tracker=track(state.tracker, before, view))
    assert disagreement.max() > 0
    assert rounds == most + atomic  # the first branch was a round, too


@pytest.mark.slow
def test_the_width_of_the_pool_makes_no_difference(matrix):
    """As long as it is not exhausted: it opens what fits."""
    chosen = [policy(seed, scale=3.0) for seed in range(8)]
    episodes = Episodes(*np.array([(q, 0, s) for q in range(6) for s in range(8)]).T)
    table = shared(1, 16)
    wide = rollout(chosen, matrix, table, episodes)
    few = wide.branches < 8
    narrow = rollout(chosen, matrix, table.first(12), episodes)
    assert few.any()
    for name in ("answer", "tokens", "rounds"):
        np.testing.assert_array_equal(getattr(wide, name)[few], getattr(narrow, name)[few])


@pytest.mark.slow
def test_every_round_makes_progress(matrix):
    """Whatever the parameters, an episode ends by an answer or by having read everything."""
    policies = [policy(seed, scale=4.0) for seed in range(16)]
    episodes = Episodes(*np.array([(q, 0, s) for q in range(6) for s in range(16)]).T)
    played = rollout(policies, matrix, shared(1, 12), episodes)
    assert set(played.stop_reason) <= {StopReason.DECIDED, StopReason.STEP_LIMIT}
    assert (played.branches >= 1).all()
    assert (played.intervals >= 1).all()


@pytest.mark.slow
def test_what_is_admissible_before_during_and_after():
    admissible = heads.RoundsHead().mask
    pool = ReplayPool.begin(random_matrix(0), 0, np.arange(WIDTH))
    first = admissible(pool.view())
    assert not first.answer
    assert first.go_on
    assert not first.opening[0]  # the first round opens
    assert first.choice[0].all()  # nothing to do but to hold
    opened = pool.step(Action(open=2))
    during = admissible(opened.view())
    assert during.answer
    assert during.go_on
    assert during.opening[0]
    np.testing.assert_array_equal(during.choice[0], ~opened.live)
    np.testing.assert_array_equal(during.choice[1], opened.live)
    fits = np.array(heads.OPENINGS) <= WIDTH - 2
    np.testing.assert_array_equal(during.opening, fits)
    ended = opened.step(Action(advance=jnp.full(WIDTH, 1000))).view()
    assert admissible(ended).answer
    assert not admissible(ended).go_on  # nothing is left to read


@pytest.mark.slow
def test_atomic_actions_are_those_of_the_environment(matrix):
    """The rollout's episodes, action by action in the environment, and without limit to their number."""
    seeds, table = (4, 6, 9, 12, 22), jax.device_put(shared(1, 24))
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
        _, state = env.reset(jax.random.key(0), params, question=question, order=table.of(question, 0))

        def step(carry):
            state, recurrent, *_ = carry
            view = state.pool.with_matrix(params.matrix).view()
            recurrent = recurrent._replace(tracker=state.tracker)
            inputs, recurrent = network.encode(view, recurrent, state.gamma, True)
            logits = apply_network(parameters, inputs, jnp.ones(env.num_actions, bool))
            action = jnp.argmax(jnp.where(env.action_mask(view), logits, -jnp.inf))
            _, state, _, answered, info = env.step_env(jax.random.key(0), state, action, params)
            return state, recurrent, answered, {name: info[name] for name in COUNTED}

        recurrent = network.initial_state(24)._replace(tracker=state.tracker)
        start = state, recurrent, jnp.bool_(False), dict.fromkeys(COUNTED, jnp.int32(0))
        state, _, _, info = jax.lax.while_loop(lambda carry: ~carry[2], step, start)
        return info | {"rounds": state.time - 1}  # ANSWER is a step, and no round

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[chosen.parameters for chosen in policies])
    expected = by_hand(jax.tree.map(lambda leaf: leaf[episodes.setting], stacked), episodes.question)
    for name, column in expected.items():
        np.testing.assert_array_equal(getattr(played, name), column, err_msg=name)


COUNTED = ("answer", "tokens", "intervals", "probes")


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signals", [(), SIGNALS])
@pytest.mark.parametrize("actions", heads.HEADS)
def test_a_policy_comes_back_from_its_file(tmp_path, actions, signals):
    kept = policy(5, gamma=3e-5, actions=actions, signal_inputs=signals)
    policy_file.save_policy(tmp_path / policy_file.BEST, kept, {"data": "synthetic"})
    for path in (tmp_path, tmp_path / policy_file.BEST):
        loaded, card = policy_file.load_policy(path)
        assert card == {"data": "synthetic"}
        assert loaded.gamma == pytest.approx(3e-5)
        assert loaded.signal_inputs == signals
        jax.tree.map(np.testing.assert_array_equal, dict(loaded.parameters), dict(kept.parameters))
    assert [file.name for file in tmp_path.iterdir()] == [policy_file.BEST]


def test_controllers_by_checkpoint(tmp_path):
    policy_file.save_policy(tmp_path / "own.npz", policy())
    selection = select(f"neural:{tmp_path / 'own.npz'}@1e-4")
    assert selection.values == (1e-4,)
    assert len(select(f"neural:{tmp_path / 'own.npz'}").controllers) == len(GAMMAS)
    with pytest.raises(InputError, match="γ is -1"):
        select(f"neural:{tmp_path / 'own.npz'}@-1")
    with pytest.raises(InputError, match="no such file"):
        select(f"neural:{tmp_path / 'other.npz'}")


@pytest.mark.slow
def test_the_shipped_policy(matrix):
    """It plays, and knows what it was trained on."""
    selection = select("neural")
    assert selection.values == neural_family(policy()).values == GAMMAS
    assert policy_file.SHIPPED.stat().st_size < 1_000_000
    _, card = policy_file.load_policy(policy_file.SHIPPED)
    assert set(card["data"]) == {f"Qwen3-{size}/aime24" for size in ("0.6B", "1.7B", "4B", "8B")}
    assert selection.trained_on == Scale(500, 500, 81)
    dear, cheap = selection.controllers[0], selection.controllers[-1]
    episodes = Episodes(*np.array([(q, 0, s) for s in (0, 1) for q in range(6)]).T)
    played = rollout([dear, cheap], matrix, shared(1, 12), episodes)
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
        (lambda header, _: header.update(gamma="1e-4"), "γ is '1e-4'"),
        (lambda header, _: header.update(gamma=float("nan")), "γ is nan"),
        (lambda header, _: header.update(gamma=-1), "γ is -1, but it must be a finite number of at least 0"),
        (lambda header, _: header.update(gamma=True), "γ is True"),
        (lambda header, _: header.update(version=True), "version is True"),
        (lambda header, _: header.update(version=1.0), "version is 1.0"),
        (lambda header, _: header["architecture"].update(max_advance=True), "another network"),
        (
            lambda header, _: header["architecture"].update(
                openings=[float(n) for n in header["architecture"]["openings"]]
            ),
            "another network",
        ),
        (lambda header, _: header.update(card=[]), "its card is not an object"),
        (lambda header, _: header.update(architecture="wide"), "architecture or its card is not an object"),
        *[
            (lambda header, _, hidden=hidden: header["architecture"].update(hidden=hidden), "another network")
            for hidden in (0, -1, 4.0, True, "4", 10**30)
        ],
        *[
            (
                lambda _, arrays, kind=kind: arrays.update({"trunk/bias": arrays["trunk/bias"].astype(kind)}),
                "another network",
            )
            for kind in (int, bool, str, complex, np.float64)
        ],
    ],
)
def test_files_for_another_network_are_refused(tmp_path, change, message):
    path = tmp_path / "policy.npz"
    policy_file.save_policy(path, policy())
    edit(path, change)
    with pytest.raises(InputError, match=message) as caught:
        policy_file.load_policy(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (None, "TypeError"),
        ("eat", "TypeError"),
        ([{"name": "eat", "mean": 1.0}], "TypeError"),
        ([["eat", 1.0, 1.0]], "TypeError"),
        ([{"name": "eat", "mean": 1.0, "std": 1.0, "unit": "nats"}], "TypeError"),
        ([{"name": "EAT", "mean": 1.0, "std": 1.0}], "a signal cannot be named 'EAT'"),
        ([{"name": ["eat"], "mean": 1.0, "std": 1.0}], "a signal cannot be named"),
        ([{"name": "eat", "mean": 1.0, "std": 1.0}] * 2, "name each signal once"),
        ([{"name": "eat", "mean": "1", "std": 1.0}], "the mean of eat is '1', but it must be a finite"),
        ([{"name": "eat", "mean": float("nan"), "std": 1.0}], "the mean of eat is nan"),
        ([{"name": "eat", "mean": 1.0, "std": True}], "the std of eat is True"),
        ([{"name": "eat", "mean": 1.0, "std": 0.0}], "the std of eat is 0.0, but it must be .* above 0"),
        ([{"name": "eat", "mean": 1.0, "std": float("inf")}], "the std of eat is inf"),
        ([], "another network"),
        ([{"name": "eat", "mean": 1.0, "std": 1.0}], "another network"),  # it has parameters for two
    ],
)
def test_files_whose_signals_are_wrong_are_refused(tmp_path, signals, message):
    path = tmp_path / "policy.npz"
    policy_file.save_policy(path, policy(signal_inputs=SIGNALS))
    edit(path, lambda header, _: header["architecture"].update(signals=signals))
    with pytest.raises(InputError, match=message) as caught:
        policy_file.load_policy(path)
    assert str(path) in str(caught.value)


def test_parameters_of_the_other_kind_are_refused(tmp_path):
    """Whatever the header says, rounds and atomic actions are not taken for one another."""
    files = {actions: tmp_path / f"{actions}.npz" for actions in heads.HEADS}
    headers = {}
    for actions, file in files.items():
        policy_file.save_policy(file, policy(actions=actions))
        edit(file, lambda header, _, actions=actions: headers.update({actions: header["architecture"]}))
    for file, other in zip(files.values(), reversed(headers.values()), strict=True):
        edit(file, lambda header, _, other=other: header.update(architecture=other))
        with pytest.raises(InputError, match="another network"):
            policy_file.load_policy(file)


def test_a_file_says_what_the_policy_was_trained_on(tmp_path):
    known = Scale(8, 20, 40)
    policy_file.save_policy(tmp_path / "known.npz", dataclasses.replace(policy(), trained_on=known))
    policy_file.save_policy(tmp_path / "unknown.npz", policy())
    assert select(f"neural:{tmp_path / 'known.npz'}").trained_on == known
    assert select(f"neural:{tmp_path / 'unknown.npz'}@1e-4").trained_on is None
    edit(tmp_path / "unknown.npz", lambda header, _: header.pop("trained_on"))  # as older files
    assert select(f"neural:{tmp_path / 'unknown.npz'}@1e-4").trained_on is None
    for wrong in ("x", {"depth": 1}, {"least_interval": 0, "most_interval": 1, "depth": 2}, [1, 2, 3]):
        edit(tmp_path / "known.npz", lambda header, _, wrong=wrong: header.update(trained_on=wrong))
        with pytest.raises(InputError, match="not a policy, or damaged"):
            policy_file.load_policy(tmp_path / "known.npz")


@pytest.mark.parametrize(
    ("here", "far"),
    [
        (Scale(50, 100, 10), None),
        (Scale(25, 200, 10), None),
        (Scale(24, 100, 10), "50 to 100 tokens between two probes, and here there are 24 to 100$"),
        (Scale(201, 201, 10), "50 to 100 tokens between two probes, and here there are 201$"),
        (Scale(50, 50, 11), "^branches of up to 10 intervals, and here they have up to 11$"),
        (Scale(9, 9, 11), "here there are 9; and on branches of up to 10 intervals"),
    ],
)
def test_what_is_far_from_training(here, far):
    said = here.beyond(Scale(50, 100, 10))
    assert said is None if far is None else re.search(far, said)


def test_a_policy_far_from_its_training_is_warned_of():
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=2, branches=4)
    scale = Scale.of(data.matrix)
    assert (scale.least_interval, scale.most_interval) == (500, 500)
    own = dataclasses.replace(policy(), trained_on=Scale(90, 90, scale.depth))
    sampling = Sampling(interval=200, max_tokens=600)
    for here, play in (  # each warns before it plays, and a warning is an error here
        (500, lambda: at.evaluate(data, own, seeds=1, max_branches=4)),
        (500, lambda: at.trace(data, own, max_branches=4)),
        (200, lambda: at.answer(SimulatedEngine(), "What is 3 + 4?", own, sampling=sampling)),
    ):
        said = f"NeuralPolicy was trained on 90 tokens between two probes, and here there are {here}; measure"
        with pytest.raises(InputWarning, match=said):
            play()


def test_half_a_file_is_refused(tmp_path):
    path = tmp_path / "policy.npz"
    policy_file.save_policy(path, policy())
    whole = path.read_bytes()
    for part in (0, 10, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:part])
        with pytest.raises(InputError, match=r"not a complete \.npz archive"):
            policy_file.load_policy(path)


# --- weights of votes --------------------------------------------------------------------------------------


def thorough() -> NeuralPolicy:
    """A policy that prunes nothing, and answers when there is nothing left to read."""
    parameters = policy(3, scale=3.0).parameters
    never = {"of_episode": [-50, 1], "of_branch": [0, -50, 0, 0]}
    patient = {name: {**parameters[name], "bias": np.array(bias, np.float32)} for name, bias in never.items()}
    return NeuralPolicy({**parameters, **patient}, 1e-4)


def seen(memory, view):
    """The memory once the policy has taken notice of a view."""
    tracker = observations.track(memory.state.tracker, memory.before, view)
    return NeuralMemory(memory.state._replace(tracker=tracker), observations.Before.of(view))


@pytest.mark.slow
def test_equal_weights_are_the_majority_of_the_environment(matrix):
    plain, environment = thorough(), WidthDepthRounds(8)
    for memory, view in last_states(plain, matrix, orders(6, 8), np.arange(6)):
        ours, theirs = plain.answer(memory, view), environment.aggregate(view, memory.state.tracker)
        assert jax.tree.map(int, ours) == jax.tree.map(int, theirs)


@pytest.mark.slow
def test_weights_decide_the_answer(matrix):
    """If only the shallowest final counts, its answer wins; if only the deepest does, that one's."""
    plain = thorough()
    differ = 0
    for memory, view in last_states(plain, matrix, orders(6, 8), np.arange(6)):
        tracker = memory.state.tracker
        final = np.flatnonzero(observations.vote_counts(view, tracker).final)
        keys, depth = np.asarray(tracker.keys)[final], np.asarray(view.depth)[final]
        for sign, end in ((-60, depth.min()), (60, depth.max())):
            leader = int(weighing(plain, sign, 0, 0).answer(memory, view).leader)
            counts = np.bincount(keys[depth == end])
            assert counts[tracker.keys[leader]] == counts.max()
        differ += keys[depth.argmin()] != keys[depth.argmax()]
    assert differ


def test_signals_weigh_votes(matrix):
    """If only the final with the highest signal counts, its answer wins; or that of the lowest."""

    @jax.jit
    def end(policy):
        empty = ReplayPool.begin(jax.tree.map(jnp.asarray, matrix), 0, orders(1, 8)[0])
        view = empty.step(Action(open=8, advance=jnp.full(8, 100))).view()
        memory = seen(policy.init(empty.view()), view)
        tracker = memory.state.tracker
        final = observations.vote_counts(view, tracker).final
        return policy.answer(memory, view).leader, final, tracker.keys, view.signal("conf_low")

    reader = policy(signal_inputs=(SignalInput("conf_low", 12.0, 4.0),))
    chosen = []
    for sign, best in ((-60, np.argmin), (60, np.argmax)):
        leader, final, keys, values = map(np.asarray, end(weighing(reader, 0, 0, 0, sign)))
        chosen.append(keys[leader])
        assert keys[leader] == keys[final][best(values[final])]
    assert chosen[0] != chosen[1]


@jax.jit
def begun(policy, matrix, order):
    """What the policy remembers before the first branch, and the pool."""
    empty = ReplayPool.begin(matrix, 0, order)
    return policy.init(empty.view()), empty


@jax.jit
def after(policy, memory, pool, opened, advance, prune):
    """Memory, pool and view once the policy has taken notice of an action, and its answer then."""
    pool = pool.step(Action(open=opened, advance=advance, prune=prune))
    view = pool.view()
    memory = seen(memory, view)
    return memory, pool, view, policy.answer(memory, view)


def act(policy, memory, pool, opened=0, advance=(), prune=()):
    """As `after`, with branches to advance by 100 and to prune."""
    advance, prune = (np.isin(np.arange(8), branches) for branches in (advance, prune))
    return after(policy, memory, pool, opened, 100 * advance, prune)


def test_what_a_weight_is_read_from(matrix):
    plain = policy()
    memory, pool = begun(plain, matrix, orders(1, 8)[0])
    for step in range(8):  # opened one after another, and read on side by side
        memory, pool, view, _ = after(plain, memory, pool, 1, np.arange(8) < step, np.zeros(8, bool))
    depth, streak = np.asarray(view.depth), np.asarray(memory.state.tracker.streak)
    assert depth.min() > 0
    assert len(set(depth)) > 1
    assert len(set(streak)) > 1
    expected = {"depth": depth / 10, "log_depth": np.log(depth), "streak": streak / 10}
    read = jax.jit(network.vote_inputs)(view, memory.state.tracker)
    np.testing.assert_allclose(read, [expected[name] for name in network.VOTE_INPUTS], rtol=1e-6)


def test_only_finals_of_active_branches_have_weight(matrix):
    """Whatever a pruned branch, an unfinished one, or one without an answer would weigh."""
    heavy = weighing(policy(), 100, 0, 0)
    memory, pool = begun(heavy, matrix, orders(1, 8)[0])
    memory, pool, _, vote = act(heavy, memory, pool)
    assert int(vote.leader) == NONE
    memory, pool, *_ = act(heavy, memory, pool, opened=4)
    for branch in range(3):
        memory, pool, _, vote = act(heavy, memory, pool, advance=[branch])
        assert bool(pool.finished[vote.leader])
    deepest = int(np.argmax(pool.depth))
    assert int(vote.leader) == deepest
    *_, vote = act(heavy, memory, pool, prune=[deepest])
    assert int(vote.leader) != deepest


def test_without_finals_the_latest_answers_vote(matrix):
    heavy = weighing(policy(), 100, 0, 0)
    memory, _, view, vote = act(heavy, *begun(heavy, matrix, orders(1, 8)[0]), opened=8)
    counts = jax.jit(observations.vote_counts)(view, memory.state.tracker)
    assert not counts.final.any()
    assert counts.latest.voters > 0
    assert jax.tree.map(int, vote) == jax.tree.map(int, counts.latest)
