"""PPO: advantages and gradients against closed forms, updates that repeat themselves, and what it learns."""

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from matrices import BRANCHES, MAX_LENGTH, QUESTIONS, VOCABULARY, WIDTH, random_matrix

from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.envs.rewards import Reward
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import HEADS
from autotts_jax.policies.neural.network import GLOBAL_INPUTS
from autotts_jax.policies.neural.policy import apply_network, initial_parameters
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.training import critic, experience, measure_signals, ppo
from autotts_jax.training.advantages import advantages
from autotts_jax.training.critic import Privileged
from autotts_jax.training.experience import Weights
from autotts_jax.training.ppo import PPO, Batch, PPOSettings

SETTINGS = PPOSettings(
    max_branches=WIDTH,
    num_envs=32,
    num_steps=16,
    epochs=2,
    minibatches=4,
    decay_updates=80,
    learning_rate=1e-2,
    target_kl=10.0,
)
ENVIRONMENT = HEADS["rounds"].environment(WIDTH)
KEY = jax.random.key(0)
ONE_DEVICE = jax.devices()[:1]
STEP_LIMIT = 5
SHARE_OF_COST = Privileged._fields.index("share_of_cost")


def make_params(matrix=None, reward="outcome", **settings):
    """With targets whatever the reward, so that parameters differ in values only; gold ones by default."""
    settings = {"gamma": (1e-3, 1e-1), "max_steps": STEP_LIMIT, "reward": "majority"} | settings
    params = ENVIRONMENT.make_params(random_matrix(0, abstain=0.2) if matrix is None else matrix, **settings)
    if reward != "majority":
        gold = jnp.asarray(params.matrix.gold)[:, None]
        params = params.replace(targets=jnp.broadcast_to(gold, params.targets.shape))
    return params.replace(reward=jnp.int32(Reward[reward.upper()]))


@pytest.fixture(scope="module")
def parameters():
    """Of a policy that seldom answers at first."""
    parameters = initial_parameters(4, KEY)
    bias = parameters["of_episode"]["bias"].at[0].set(-2.0)
    return parameters | {"of_episode": parameters["of_episode"] | {"bias": bias}}


@pytest.fixture(scope="module")
def params():
    return make_params()


@pytest.fixture(scope="module")
def trainer(params, parameters):
    return PPO(SETTINGS, params, parameters, ONE_DEVICE)


@pytest.fixture(scope="module")
def played(trainer, params):
    """The state before the first update, and the rounds that it plays."""
    state = trainer.init(KEY)
    play_key, *_ = jax.random.split(jax.random.wrap_key_data(state.key), 3)
    return state, play(SETTINGS, params, state, play_key)[1]


@jax.jit
def play(settings, params, state, key):
    """The lanes after the steps of an update, and the transitions."""
    return experience.play(state.weights, params, state.lanes, key, settings.max_branches, settings.num_steps)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def assert_close(one, other, **tolerance):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **{"rtol": 1e-3, "atol": 1e-5} | tolerance), one, other
    )


# --- advantages -----------------------------------------------------------------------------------------

T, E = 6, 3
advantage = jax.jit(advantages)


def expected_advantages(reward, value, next_value, terminated, truncated, lam):
    """Episode by episode: the weighted sum of what each later round brought beyond expectation."""
    result = np.zeros((T, E))
    for column in range(E):
        for first in range(T):
            weight = 1.0
            for t in range(first, T):
                future = 0.0 if terminated[t, column] else next_value[t, column]
                result[first, column] += weight * (reward[t, column] + future - value[t, column])
                if terminated[t, column] or truncated[t, column]:
                    break
                weight *= lam
    return result


@examples(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_advantages_are_those_of_the_reference(seed, lam):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, T, E)).astype(np.float32)
    terminated = rng.random((T, E)) < 0.3
    truncated = ~terminated & (rng.random((T, E)) < 0.3)
    rows = (reward, value, next_value, terminated, truncated)
    np.testing.assert_allclose(advantage(*rows, lam), expected_advantages(*rows, lam), rtol=1e-4, atol=1e-5)


def test_advantages_by_hand():
    """Three episodes of two rounds with the same values: one answers, one is cut off, one goes on."""
    reward = np.tile(np.float32([[-0.1], [0.7]]), (1, 3))
    value = np.tile(np.float32([[0.5], [0.4]]), (1, 3))
    next_value = np.tile(np.float32([[0.4], [0.9]]), (1, 3))
    ends = np.zeros((3, 2, 3), bool)
    ends[0, 1, 0] = ends[1, 1, 1] = True
    estimates = np.asarray(advantages(reward, value, next_value, ends[0], ends[1], 0.5))
    last = np.array([0.7 - 0.4, 0.7 + 0.9 - 0.4, 0.7 + 0.9 - 0.4])
    np.testing.assert_allclose(estimates, [-0.1 + 0.4 - 0.5 + 0.5 * last, last], rtol=1e-5)


def test_nothing_leaks_from_one_episode_to_the_one_before():
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, T, 2)).astype(np.float32)
    terminated, truncated = np.zeros((2, T, 2), bool)
    terminated[2, 0] = truncated[2, 1] = True
    before = advantages(reward, value, next_value, terminated, truncated, 0.9)
    reward[3:] += 100
    value[3:] -= 100
    after = advantages(reward, value, next_value, terminated, truncated, 0.9)
    assert_same(before[:3], after[:3])
    assert np.all(np.asarray(after[3:]) > np.asarray(before[3:]) + 50)


# --- playing --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_episode_that_is_cut_off_is_worth_what_the_critic_expects_of_its_last_state(trainer, params):
    """With a critic that expects the price, which an episode keeps and the next one has not."""
    state = trainer.init(KEY)
    critic = jax.tree.map(jnp.zeros_like, state.weights.critic)
    critic["first"]["kernel"] = critic["first"]["kernel"].at[SHARE_OF_COST, 0].set(1.0)
    critic["second"]["kernel"] = critic["second"]["kernel"].at[0, 0].set(1.0)
    critic["last"]["kernel"] = critic["last"]["kernel"].at[0, 0].set(1.0)
    state = state._replace(weights=state.weights._replace(critic=critic))
    # A policy that never answers of itself.
    network = state.weights.network
    network = network | {"of_episode": network["of_episode"] | {"bias": jnp.array([-30.0, 1.0])}}
    state = state._replace(weights=state.weights._replace(network=network))
    (lanes, taken), rounds = play(SETTINGS, params, state, KEY)
    assert np.sum(rounds.truncated) > 5
    np.testing.assert_allclose(
        np.where(rounds.terminated, rounds.value, rounds.next_value), rounds.value, rtol=1e-6
    )
    ended = np.asarray(rounds.terminated | rounds.truncated)[:-1]
    changed = np.diff(rounds.value, axis=0) != 0
    assert np.array_equal(changed, ended)
    time = np.zeros(SETTINGS.num_envs, int)
    for terminated, truncated in zip(rounds.terminated, rounds.truncated, strict=True):
        time += 1
        assert np.array_equal(truncated, ~np.asarray(terminated) & (time == STEP_LIMIT))
        time[np.asarray(terminated | truncated)] = 0
    for count in (lanes.rounds, lanes.body.state.time, lanes.body.recurrent.round):
        assert np.array_equal(count, time)
    assert taken == SETTINGS.num_envs + np.sum(rounds.terminated | rounds.truncated)
    assert len(set(np.asarray(lanes.episode).tolist())) == SETTINGS.num_envs


@pytest.mark.slow
def test_every_episode_begins_alike(played):
    """But for γ; and what a step leads to is what the next one begins with."""
    rounds = jax.tree.map(np.asarray, played[1])
    ended = rounds.terminated | rounds.truncated
    first = np.concatenate([np.ones_like(ended[:1]), ended[:-1]])
    assert first[1:].sum() > 20
    gamma = GLOBAL_INPUTS.index("gamma")
    branches, episode = rounds.inputs.branches[first], np.delete(rounds.inputs.episode[first], gamma, axis=1)
    assert (branches == branches[0]).all()
    assert (episode == episode[0]).all()
    assert len(np.unique(rounds.inputs.episode[first][:, gamma])) == first.sum()
    for name in ("right", "will_be", "is_now", "to_read"):
        assert (getattr(rounds.privileged, name)[first] == 0).all()
    np.testing.assert_array_equal(rounds.next_value[:-1][~first[1:]], rounds.value[1:][~first[1:]])


@pytest.mark.slow
def test_an_episode_is_worth_the_sum_of_its_rewards(played):
    rounds = jax.tree.map(np.asarray, played[1])
    total = np.zeros(SETTINGS.num_envs)
    for t in range(SETTINGS.num_steps):
        total += rounds.reward[t]
        answered = rounds.terminated[t]
        unit = 1 / (1 - rounds.privileged.share_of_cost[t])
        np.testing.assert_allclose((unit * total)[answered], rounds.objective[t][answered], atol=1e-5)
        total[answered | rounds.truncated[t]] = 0
    assert np.sum(rounds.terminated) > 20


def test_shares_of_finals_and_privileged_features(params):
    """By counting, and in states of the rollout: the critic knows what is right and what is yet to come."""
    matrix = random_matrix(0, abstain=0.2)
    finals_of = critic.shares_of_finals(matrix)
    shares = np.asarray(finals_of.share)
    for question in range(matrix.num_questions):
        finals = matrix.answers[question, np.arange(BRANCHES), matrix.lengths[question]].tolist()
        count = Counter(answer for answer in finals if answer != NONE)
        expected = [count[answer] / count.total() for answer in range(matrix.vocabulary)]
        np.testing.assert_allclose(shares[question], expected, rtol=1e-6)
    order = np.array([3, 1, 0, 5], np.int32)

    @jax.jit
    def after_two_rounds():
        _, state = ENVIRONMENT.reset_env(KEY, params, 1, order)
        for action in ([0, 3, 0, 0, 0, 0], [0, 0, 2, 1, 3, 0]):
            _, state, *_ = ENVIRONMENT.step_env(KEY, state, jnp.array(action), params)
        return state, critic.privileged_features(
            state, state.pool.with_matrix(params.matrix), params.matrix, finals_of
        )

    state, features = after_two_rounds()
    target, length = int(state.target), matrix.lengths[1][order]
    active, depth = np.array([1, 0, 1, 0], bool), np.minimum([2, 1, 3, 0], length + 1)
    finals = matrix.answers[1, order, length]
    latest = matrix.answers[1, order, np.maximum(depth - 1, 0)]
    to_read = np.sum((length + 1 - depth)[active]) / (16 * WIDTH)
    share_of_cost = 16 * WIDTH * float(state.gamma) / (1 + 16 * WIDTH * float(state.gamma))
    expected = Privileged(
        right=float(int(state.answer) == target != NONE),
        share=shares[1][target],
        rival=np.delete(shares[1], target).max(),
        will_be=np.sum((finals == target) & active) / 2,
        is_now=np.sum((latest == target) & active) / 2,
        to_read=to_read,
        share_of_cost=share_of_cost,
        bill=share_of_cost * to_read,
    )
    np.testing.assert_allclose(features, expected, rtol=1e-5)


# --- learning -------------------------------------------------------------------------------------------

loss_and_gradient = jax.jit(jax.value_and_grad(ppo.loss, argnums=1, has_aux=True))


@pytest.fixture(scope="module")
def batch(played):
    """What was played, with advantages and targets drawn at random."""
    return batch_of(played[1])


def batch_of(rounds):
    rounds = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rounds)
    rng = np.random.default_rng(0)
    advantage, target = rng.normal(size=(2, rounds.reward.size)).astype(np.float32)
    return Batch(rounds, advantage, target)


def likelier(batch, nats):
    """The steps, with actions that have become so much likelier since."""
    return batch.step._replace(log_prob=batch.step.log_prob - nats)


def logits_of(weights, batch):
    def of_step(inputs, mask):
        return apply_network(weights.network, inputs, mask)

    return jax.jit(jax.vmap(of_step))(batch.step.inputs, batch.step.mask)


@pytest.mark.slow
def test_the_first_gradient_is_the_policy_gradient(played, batch):
    """The ratio is 1; the gradient of each bias of the head is known in closed form."""
    weights = played[0].weights
    settings = dataclasses.replace(SETTINGS, entropy_weight=0.0)
    (_, metrics), gradient = loss_and_gradient(settings, weights, batch)
    assert metrics["policy_loss"] == pytest.approx(-batch.advantage.mean(), abs=1e-5)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0
    logits, advantage = jax.tree.map(np.asarray, logits_of(weights, batch)), batch.advantage
    answered = np.asarray(batch.step.action.answer)
    p = scipy.special.expit(logits.answer)
    bias = gradient.network["of_episode"]["bias"]
    assert bias[0] == pytest.approx(-np.mean(advantage * (answered - p)), abs=1e-5)
    choice = scipy.special.softmax(logits.choice, axis=1)
    chosen = np.arange(choice.shape[1])[:, None] == np.asarray(batch.step.action.choice)[:, None]
    each = np.sum((chosen - choice) * np.asarray(batch.step.mask.choice), axis=2)
    expected = -np.mean((advantage * ~answered)[:, None] * each, axis=0)
    np.testing.assert_allclose(gradient.network["of_branch"]["bias"][: len(expected)], expected, atol=1e-5)


@pytest.mark.slow
def test_the_clip_stops_what_has_gone_far_enough(played, batch):
    """A decision that is e times as likely as it was: a good one brings no more, a bad one counts in full."""
    weights = played[0].weights
    settings = dataclasses.replace(SETTINGS, entropy_weight=0.0)

    ones = np.ones_like(batch.advantage)
    for shift, sign, bound in ((1, 1, 1.2), (1, -1, np.e), (-1, 1, 1 / np.e), (-1, -1, 0.8)):
        moved = batch._replace(step=likelier(batch, shift), advantage=sign * ones)
        (_, metrics), gradient = loss_and_gradient(settings, weights, moved)
        steepest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient.network))
        assert metrics["policy_loss"] == pytest.approx(-sign * bound, rel=1e-4)
        assert (steepest > 0) == (bound in (np.e, 1 / np.e))
        assert metrics["clip_fraction"] == 1
        assert metrics["kl"] == pytest.approx(np.exp(shift) - 1 - shift, rel=1e-4)
    # So far off that the ratio is not a number, the gradient still is one.
    far = batch._replace(step=likelier(batch, 500), advantage=ones)
    (total, _), gradient = loss_and_gradient(settings, weights, far)
    assert np.isfinite(total)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_the_critic_is_drawn_to_the_target_and_the_entropy_up(played, batch):
    weights = played[0].weights
    still = batch._replace(advantage=np.zeros_like(batch.advantage))
    settings = dataclasses.replace(SETTINGS, entropy_weight=0.1)
    (total, metrics), gradient = loss_and_gradient(settings, weights, still)
    critic = jax.jit(jax.vmap(ppo.apply_critic, (None, 0, 0)))
    value = np.asarray(critic(weights.critic, batch.step.privileged, batch.step.inputs))
    assert metrics["value_loss"] == pytest.approx(np.mean((value - batch.target) ** 2), rel=1e-5)
    # Its two outputs are weighed by the price.
    weight, slope = np.asarray(batch.step.privileged.share_of_cost), 2 * (value - batch.target)
    expected = [np.mean((1 - weight) * slope), -np.mean(weight * slope)]
    np.testing.assert_allclose(gradient.critic["last"]["bias"], expected, rtol=1e-3, atol=1e-6)
    entropy = jnp.mean(jax.jit(jax.vmap(HEADS["rounds"].entropy))(logits_of(weights, batch)))
    assert metrics["entropy"] == pytest.approx(float(entropy), rel=1e-5)
    parts = metrics["value_loss"] - settings.entropy_weight * entropy
    assert total == pytest.approx(float(parts), rel=1e-5)


# --- updates --------------------------------------------------------------------------------------------


def test_updates_repeat_themselves_and_compile_once(trainer, params, parameters):
    """Bit for bit, through a copy on the host too; other rates and values of γ compile nothing anew."""
    first = trainer.init(KEY)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(first))
    assert first.key.dtype == np.uint32
    stored = jax.tree.map(np.asarray, first)
    state, metrics = trainer.update(first)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    key = np.array(state.key)
    third, after = trainer.update(state)
    other = dataclasses.replace(SETTINGS, learning_rate=1e-2, clip=0.3, gae_lambda=0.5)
    dear = params.replace(gamma_low=jnp.float32(1.0), gamma_high=jnp.float32(2.0))
    changed, _ = PPO(other, dear, parameters, ONE_DEVICE).update(
        PPO(other, dear, parameters, ONE_DEVICE).init(KEY)
    )
    again, repeated = trainer.update(jax.device_put(stored, jax.tree.map(lambda leaf: leaf.sharding, third)))
    assert not compiled
    jax.jit(lambda x: x + 41)(1.0)
    assert compiled  # or it would not have been noticed
    assert_same(repeated, metrics)
    resumed, repeated = trainer.update(again)
    assert_same((resumed, repeated), (third, after))
    assert int(third.step) == 2
    assert len({stored.key.tobytes(), key.tobytes(), np.asarray(third.key).tobytes()}) == 3
    weights_of_votes = trainer.policy(third).parameters["of_vote"]
    assert_same(weights_of_votes, parameters["of_vote"])  # rewards are the environment's, who does not weigh
    # It learned, and something else from something else.
    kernel = third.weights.network["trunk"]["kernel"]
    assert not np.array_equal(kernel, stored.weights.network["trunk"]["kernel"])
    assert not np.array_equal(changed.weights.network["trunk"]["kernel"], kernel)
    # The parameters that it was given are still there.
    assert_same(trainer.init(KEY).weights.network, stored.weights.network)


@pytest.mark.slow
def test_metrics_of_an_update(trainer, played):
    rounds = jax.tree.map(np.asarray, played[1])
    _, metrics = trainer.update(trainer.init(KEY))
    ended = rounds.terminated | rounds.truncated
    assert metrics["episodes"] == ended.sum() > 0
    for name, column in (("accuracy", "correct"), ("tokens", "tokens"), ("objective", "objective")):
        assert metrics[name] == pytest.approx(getattr(rounds, column)[ended].mean(), rel=1e-5)
    estimate = np.asarray(
        advantage(*(getattr(rounds, name) for name in ADVANTAGE), np.float32(SETTINGS.gae_lambda))
    )
    explained = 1 - estimate.var() / (estimate + rounds.value).var()
    assert metrics["explained_variance"] == pytest.approx(explained, rel=1e-3)
    assert metrics["learned"] == 1
    assert np.isfinite(metrics["loss"])


ADVANTAGE = ("reward", "value", "next_value", "terminated", "truncated")


def test_an_update_stops_learning_once_it_has_gone_too_far(params, parameters):
    """The second step is the first to find another policy than played; those after it are left out."""
    careful = dataclasses.replace(SETTINGS, target_kl=1e-6)
    trainer = PPO(careful, params, parameters, ONE_DEVICE)
    state, metrics = trainer.update(trainer.init(KEY))
    assert metrics["learned"] == 0.25
    assert metrics["kl"] > 5e-6
    assert int(state.optimiser.inner_states["network"].inner_state[1][0].count) == 2


@pytest.mark.parametrize(("step", "expected"), [(0, -1e-2), (40, -5e-3), (80, 0), (200, 0)])
def test_the_learning_rate_falls_to_zero(step, expected):
    """Adam's first step is the learning rate, whatever the gradient."""
    optimiser = ppo.make_optimiser(SETTINGS, jnp.int32(step))
    weights, gradient = Weights(jnp.float32(0), jnp.float32(0)), Weights(jnp.float32(0.3), jnp.float32(-1e6))
    change, _ = optimiser.update(gradient, optimiser.init(weights))
    assert change.network == pytest.approx(expected, rel=1e-4)
    assert change.critic == pytest.approx(-expected * SETTINGS.critic_rate / SETTINGS.learning_rate, rel=1e-4)


@pytest.mark.slow
def test_agents_train_side_by_side(params, parameters):
    """Two seeds with two learning rates in one call, as one by one."""
    rates = dataclasses.replace(SETTINGS, learning_rate=jnp.array([1e-2, 3e-3]), clip=jnp.array([0.2, 0.1]))
    keys = jax.random.split(KEY, 2)
    axes = dataclasses.replace(SETTINGS, **dict.fromkeys(RATES) | {"learning_rate": 0, "clip": 0})
    states = jax.jit(jax.vmap(ppo.init, (None, None, None, 0)))(SETTINGS, params, parameters, keys)
    both, metrics = jax.jit(jax.vmap(ppo.update, (axes, None, 0)))(rates, params, states)
    for agent, key in enumerate(keys):
        alone = dataclasses.replace(
            SETTINGS, learning_rate=float(rates.learning_rate[agent]), clip=float(rates.clip[agent])
        )
        one = PPO(alone, params, parameters, ONE_DEVICE)
        state, expected = one.update(one.init(key))
        ours = jax.tree.map(lambda leaf, agent=agent: leaf[agent], (both, metrics))
        assert_close(ours[0].weights, state.weights)
        assert_same(ours[0].lanes, state.lanes)
        assert_close(ours[1], expected)


RATES = [field.name for field in dataclasses.fields(PPOSettings) if not field.metadata]


@pytest.mark.slow
def test_two_devices_do_what_one_does(params, parameters, trainer):
    two = PPO(SETTINGS, params, parameters, jax.devices()[:2])
    shared, alone = two.init(KEY), trainer.init(KEY)
    for _ in range(2):
        shared, ours = two.update(shared)
        alone, theirs = trainer.update(alone)
        assert_close(ours, theirs)
    assert_close(shared.weights, alone.weights)
    assert_same(shared.lanes, alone.lanes)
    assert shared.lanes.lane.body.state.time.sharding.shard_shape((SETTINGS.num_envs,)) == (16,)
    assert len(shared.weights.network["trunk"]["kernel"].sharding.device_set) == 2


@pytest.mark.parametrize("reward", [mode.name.lower() for mode in Reward])
def test_every_reward_can_be_learned_from(reward, parameters):
    trainer = PPO(SETTINGS, make_params(reward=reward), parameters, ONE_DEVICE)
    state, metrics = trainer.update(trainer.init(KEY))
    assert np.isfinite(metrics["loss"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.weights))


@pytest.mark.nightly
def test_an_update_of_a_policy_that_reads_a_signal():
    """It is shown the signal, and learns what to make of it."""
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=2, branches=4, signals=True)
    params = HEADS["rounds"].environment(WIDTH, ("eat",)).make_params(data.matrix, gamma=1e-3, max_steps=8)
    settings = dataclasses.replace(SETTINGS, num_envs=4, num_steps=8, epochs=1, minibatches=1)
    start, signals = initial_parameters(4, KEY, signals=1), measure_signals(data.matrix, ["eat"])
    trainer = PPO(settings, params, start, ONE_DEVICE, signals)
    state, metrics = trainer.update(trainer.init(KEY))
    assert np.isfinite(metrics["loss"])
    learned = trainer.policy(state)
    assert learned.signals == ("eat",)
    for layer in ("embed", "look"):
        weights = learned.parameters[layer]["kernel"][-1]
        assert np.isfinite(weights).all()
        assert not np.array_equal(weights, start[layer]["kernel"][-1])


# --- atomic actions -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def atomic():
    """The trainer of a policy of atomic actions, and what it plays."""
    environment = HEADS["atomic"].environment(WIDTH)
    params = environment.make_params(random_matrix(0, abstain=0.2), gamma=(1e-3, 1e-1))
    return PPO(SETTINGS, params, initial_parameters(4, KEY, "atomic"), ONE_DEVICE), params


@pytest.mark.slow
def test_an_update_by_atomic_actions(atomic):
    trainer, _ = atomic
    first = trainer.init(KEY)
    kernel = np.array(first.weights.network["trunk"]["kernel"])
    state, metrics = trainer.update(first)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.weights, metrics)))
    assert metrics["episodes"] > 20
    assert not np.array_equal(state.weights.network["trunk"]["kernel"], kernel)
    # The policy remembers rounds, of which there are fewer than actions.
    env_state, recurrent = state.lanes.lane.body
    deepest = np.max(env_state.pool.depth, axis=1)
    assert np.all((recurrent.round == deepest) | (recurrent.round == deepest - 1))
    assert np.sum(recurrent.round) < np.sum(env_state.time)


@pytest.mark.slow
def test_the_first_gradient_by_atomic_actions_is_the_policy_gradient(atomic):
    """As in rounds."""
    trainer, params = atomic
    state = trainer.init(KEY)
    batch = batch_of(play(SETTINGS, params, state, KEY)[1])
    weights = state.weights
    (_, metrics), gradient = loss_and_gradient(SETTINGS, weights, batch)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    p = scipy.special.softmax(logits_of(weights, batch), axis=1)
    chosen = np.arange(p.shape[1]) == np.asarray(batch.step.action)[:, None]
    each = -np.mean(batch.advantage[:, None] * (chosen - p), axis=0)
    np.testing.assert_allclose(gradient.network["of_episode"]["bias"], each[:2], atol=1e-5)
    of_branches = each[2:].reshape(3, WIDTH).sum(axis=1)
    np.testing.assert_allclose(gradient.network["of_branch"]["bias"], of_branches, atol=1e-5)
    assert np.abs(of_branches).min() > 1e-4


# --- what it learns -------------------------------------------------------------------------------------

LENGTH, KNOWN_AT = 30, 5


def simple_matrix() -> ProbeMatrix:
    """Branches that show wrong answers at first, and the right one from `KNOWN_AT` to their end."""
    shape = (QUESTIONS, BRANCHES)
    answers = np.full((*shape, MAX_LENGTH + 1), NONE, np.int16)
    answers[..., : LENGTH + 1] = 0
    answers[..., : KNOWN_AT - 1] = 1 + np.arange(BRANCHES)[:, None] % (VOCABULARY - 1)
    return ProbeMatrix(
        answers=answers,
        lengths=np.full(shape, LENGTH, np.int32),
        tokens=np.full(shape, 10 * LENGTH, np.int32),
        gold=np.zeros(QUESTIONS, np.int16),
        interval=np.full(QUESTIONS, 10, np.int32),
        cell=np.zeros(QUESTIONS, np.int32),
        vocabulary=VOCABULARY,
    )


@pytest.fixture
def solved(parameters):
    """Gives the episodes after training at a price."""
    matrix = simple_matrix()

    def train(gamma):
        trainer = PPO(SETTINGS, make_params(matrix, gamma=gamma, max_steps=100), parameters, ONE_DEVICE)
        state = trainer.init(KEY)
        for _ in range(SETTINGS.decay_updates):
            state, _ = trainer.update(state)
        zeros = np.zeros(QUESTIONS, int)
        orders = BranchOrders(np.arange(WIDTH)[None, None], zeros)
        episodes = Episodes(np.arange(QUESTIONS), zeros, zeros)
        return rollout([trainer.policy(state)], matrix, orders, episodes)

    return train


@pytest.mark.slow
def test_it_solves_a_simple_task(solved):
    """One branch, up to where its answer is right; to the end would cost 31, and all four branches 124."""
    played = solved(0.01)
    assert np.all(played.correct)
    assert np.all(played.intervals < LENGTH / 2)


@pytest.mark.nightly
def test_for_nothing_it_reads_until_it_is_right(solved):
    played = solved(0.0)
    assert np.all(played.correct)
    assert np.all(played.intervals >= KNOWN_AT)


@pytest.mark.nightly
def test_where_reading_is_too_dear_it_answers_at_once(solved):
    """No answer is worth what an interval costs."""
    played = solved(10.0)
    assert np.all(played.intervals == 1)
    assert not np.any(played.correct)


# --- what it refuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0, but it must be in 1 … 16384"),
        ({"epochs": -1}, "epochs is -1, but it must be at least 1"),
        ({"learning_rate": -1e-3}, "learning_rate is -0.001, but it must be at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan, but it must be at least 0"),
        ({"clip": 1.5}, "clip is 1.5, but it must be in 0 … 1"),
        ({"gae_lambda": 2}, "gae_lambda is 2, but it must be in 0 … 1"),
        ({"target_kl": -0.1}, "target_kl is -0.1, but it must be at least 0"),
        (
            {"num_envs": 3, "num_steps": 5, "minibatches": 4},
            "minibatches is 4, but it must divide num_envs x n",
        ),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        PPOSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "devices", "message"),
    [
        ({"max_branches": BRANCHES + 1}, 1, "max_branches is 7, but the data has 6 branches"),
        ({"num_envs": 15, "minibatches": 1}, 2, "2 devices cannot share 15 environments evenly"),
        ({"num_envs": 2, "num_steps": 3, "minibatches": 2}, 2, "2 devices cannot share 3 steps of a min"),
    ],
)
def test_what_does_not_fit_together_is_refused(params, parameters, settings, devices, message):
    with pytest.raises(InputError, match=message):
        PPO(dataclasses.replace(SETTINGS, **settings), params, parameters, jax.devices()[:devices])
