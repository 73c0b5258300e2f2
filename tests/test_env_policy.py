"""Policies of environments in rollouts and on the host."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrices import BRANCHES, QUESTIONS, WIDTH, random_matrix, shared_orders

from autotts_jax.core import CostModel, Episodes, StopReason, rollout
from autotts_jax.envs import WidthDepth, WidthDepthRounds, cost_of_models
from autotts_jax.errors import InputError
from autotts_jax.policies import EnvPolicy, HostPlayer, as_controller, host_policy
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.testing import check_controller
from autotts_jax.training.arena import costs_of, hooks_of

GAMMA = 1e-3
LEAK_BRANCHES, LEAK_WIDTH = 16, 8
ORDERS = shared_orders([np.random.default_rng(s).permutation(BRANCHES)[:WIDTH] for s in range(8)])
EPISODES = Episodes(*(a.reshape(-1) for a in np.indices((QUESTIONS, ORDERS.num_rows))), np.zeros(16, int))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Drawn(EnvPolicy):
    """Draws admissible actions; all that it sees decides which."""

    weight: jax.Array
    env: WidthDepth | WidthDepthRounds = dataclasses.field(metadata={"static": True})

    def start(self):
        return jnp.uint32(0)

    def act(self, observation, memory):
        # Whole numbers: a sum of floats is another number in another compilation.
        seen = [jnp.round(997 * leaf).astype(jnp.uint32).reshape(-1) for leaf in jax.tree.leaves(observation)]
        seen = jnp.concatenate(seen)
        memory = jnp.sum(seen * (2 * jnp.arange(seen.size, dtype=jnp.uint32) + self.weight)) + 31 * memory
        width, atomic = self.env.max_branches, isinstance(self.env, WidthDepth)
        sizes = [self.env.num_actions] if atomic else self.env.action_space().nvec
        first = np.cumsum(sizes) - sizes
        score = memory + jnp.arange(sum(sizes), dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
        score = (score ^ (score >> 15)) * jnp.uint32(0x85EBCA6B)
        score = (score ^ (score >> 13)) * jnp.uint32(0xC2B2AE35) >> 1
        # To answer and to prune are seldom drawn, so that episodes get somewhere.
        seldom = np.r_[1, sum(sizes) - width : sum(sizes)] if atomic else first + 1
        score = score.at[seldom].set(score[seldom] >> 3).astype(jnp.int32)
        score = jnp.where(observation["action_mask"], score, -1) if isinstance(observation, dict) else score
        action = [jnp.argmax(part).astype(jnp.int32) for part in jnp.split(score, first[1:])]
        return action[0] if atomic else jnp.stack(action), memory


def drawn(env, weight=7):
    return Drawn(jnp.uint32(weight), env)


class Host:
    """The same on the host, as Stable-Baselines3 would ask for it."""

    def __init__(self, policy):
        self.env = policy.env
        self._start = policy.start
        self._act = jax.jit(jax.vmap(policy.act))

    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        assert deterministic
        if self.env.obs != "flat":
            observation = observation | {"action_mask": action_masks}
        first = np.broadcast_to(self._start(), len(episode_start))
        state = first if state is None else np.where(episode_start, first, state)
        return jax.device_get(self._act(observation, state))


ATOMIC = WidthDepth(WIDTH)
FUSED = WidthDepth(WIDTH, fused=True, obs="flat", aggregate="latest")
ROUNDS = WidthDepthRounds(WIDTH, obs="history")


@pytest.fixture(scope="module")
def matrix():
    return random_matrix(5)


def name(env):
    return f"{env.name}-{env.obs}"


def step_through(policy, params, question, order):
    """An episode of the functional environment: answer, right, tokens, steps, terminated, sum of rewards."""
    env, key = policy.env, jax.random.key(0)

    def goes_on(carry):
        _, state, _, terminated, _, _ = carry
        return ~terminated & ~env.is_truncated(state, params)

    def step(carry):
        observation, state, memory, _, total, _ = carry
        action, memory = policy.act(observation, memory)
        observation, state, reward, terminated, info = env.step_env(key, state, action, params)
        return observation, state, memory, terminated, total + reward, (info["correct"], info["tokens"])

    observation, state = env.reset_env(key, params, question, order)
    start = (
        observation,
        state,
        policy.start(),
        jnp.bool_(False),
        jnp.float32(0),
        (jnp.bool_(False), jnp.int32(0)),
    )
    _, state, _, terminated, total, (correct, tokens) = jax.lax.while_loop(goes_on, step, start)
    return state.answer, correct, tokens, state.time, terminated, total


@pytest.mark.slow
@pytest.mark.parametrize("env", [ATOMIC, ROUNDS], ids=name)
def test_a_rollout_plays_what_stepping_the_environment_does(matrix, env):
    policy = drawn(env)
    played = rollout([as_controller(policy, GAMMA)], matrix, ORDERS, EPISODES)
    params = env.make_params(matrix, gamma=GAMMA)
    step = jax.jit(jax.vmap(lambda q, o: step_through(policy, params, q, o)))
    answer, correct, tokens, time, answered, total = jax.device_get(
        step(EPISODES.question, ORDERS.of(EPISODES.question, EPISODES.row))
    )
    np.testing.assert_array_equal(played.answer, answer)
    np.testing.assert_array_equal(played.correct, correct)
    np.testing.assert_array_equal(played.tokens, tokens)
    np.testing.assert_array_equal(played.stop_reason == StopReason.DECIDED, answered)
    np.testing.assert_array_equal(played.rounds, time - answered)  # ANSWER is a step, and no round
    np.testing.assert_allclose(total, (correct & answered) - GAMMA * played.intervals, atol=1e-6)
    assert len(set(tokens)) > 8


@pytest.mark.slow
@pytest.mark.parametrize(("env", "kind"), [(ATOMIC, "latency"), (ROUNDS, "kv")])
def test_rewards_charge_what_a_rollout_costs(matrix, env, kind):
    policy = drawn(env)
    cost = cost_of_models(CostModel(kind, prompt_tokens=7), ["Qwen3-8B"])
    params = env.make_params(matrix, gamma=GAMMA, cost=cost)
    step = jax.jit(jax.vmap(lambda q, o: step_through(policy, params, q, o)))
    *_, answered, total = step(EPISODES.question, ORDERS.of(EPISODES.question, EPISODES.row))
    played = rollout([as_controller(policy, GAMMA)], matrix, ORDERS, EPISODES, hooks=hooks_of(params))
    charged = costs_of(params, played, EPISODES.question)
    np.testing.assert_allclose(total, (played.correct & answered) - GAMMA * charged, rtol=1e-4, atol=1e-6)
    assert not np.allclose(charged, played.intervals, rtol=0.01)


@pytest.mark.parametrize(
    ("budget", "end"),
    [(None, StopReason.STEP_LIMIT), pytest.param(60, StopReason.BUDGET, marks=pytest.mark.slow)],
)
def test_a_policy_on_the_host_plays_what_it_does_in_jax(matrix, budget, end):
    policy = drawn(FUSED)
    played = HostPlayer(Host(policy), GAMMA).rollout(matrix, ORDERS, EPISODES, budget=budget)
    assert end in played.stop_reason
    assert_same(played, rollout([as_controller(policy, GAMMA)], matrix, ORDERS, EPISODES, budget=budget))


@pytest.mark.slow
def test_a_policy_on_the_host_is_given_masks_its_state_and_further_episodes(matrix, monkeypatch):
    monkeypatch.setattr(host_policy, "LANES", 6)
    policy, reports = drawn(ROUNDS), []
    host = HostPlayer(Host(policy), GAMMA)
    played = host.rollout(matrix, ORDERS, EPISODES, on_progress=reports.append)
    assert reports == sorted(reports)
    assert reports[-1] == len(EPISODES.question)
    assert_same(played, rollout([as_controller(policy, GAMMA)], matrix, ORDERS, EPISODES))


def assert_same(results, others):
    for column, ours, theirs in zip(results._fields, results, others, strict=True):
        if np.ndim(ours):
            np.testing.assert_array_equal(ours, theirs, err_msg=column)


class Acting:
    """What returns the same actions always."""

    env = FUSED

    def __init__(self, actions):
        self.actions = actions

    def predict(self, observation, state=None, episode_start=None, deterministic=False):  # noqa: ARG002
        return self.actions, state


OPENING = np.zeros(len(EPISODES.question), int)


@pytest.mark.parametrize(
    ("actions", "given"),
    [
        (OPENING * np.nan, "float64[16]"),
        (OPENING > 0, "bool[16]"),
        (OPENING[:3], "int64[3]"),
        (OPENING.astype("<U1"), "<U1[16]"),
        (None, "object[]"),
    ],
)
def test_what_is_no_action_is_refused_by_the_name_of_the_player(matrix, actions, given):
    player = HostPlayer(Acting(actions), GAMMA, "mine")
    with pytest.raises(
        InputError, match=re.escape(f"policy mine: its action is {given}, but it must be int")
    ):
        player.rollout(matrix, ORDERS, EPISODES)


def test_numbers_that_int32_does_not_hold_are_out_of_range(matrix):
    """2³² + 1 is not ANSWER, as it is none in Gymnasium."""
    actions = np.resize([2**32 + 1, 2**31, -1, 1 - 2**32], len(OPENING))
    played = HostPlayer(Acting(actions), GAMMA).rollout(matrix, ORDERS, EPISODES)
    assert set(played.stop_reason.tolist()) == {StopReason.STEP_LIMIT}


@pytest.mark.slow
def test_policies_that_differ_in_arrays_or_in_gamma_share_a_compilation(matrix):
    class Counting(Drawn):
        traces = 0

        def act(self, observation, memory):
            Counting.traces += 1
            return super().act(observation, memory)

    jax.tree_util.register_dataclass(Counting, ["weight"], ["env"])
    tokens = set()
    for weight, gamma in ((7, 1e-3), (8, 1e-3), (8, 1e-7)):
        controller = as_controller(Counting(jnp.uint32(weight), ATOMIC), gamma)
        tokens.add(tuple(rollout([controller], matrix, ORDERS, EPISODES).tokens))
        traces = Counting.traces if len(tokens) == 1 else traces
    assert len(tokens) == 3
    # Each rollout tries first whether every read is probed, which is not cached where one is not.
    assert Counting.traces == traces + 2
    both = [dataclasses.replace(controller, gamma=1e-3), controller]
    again = rollout(both, matrix, ORDERS, EPISODES._replace(setting=np.arange(16) % 2))
    assert tuple(again.tokens[1::2]) in {one[1::2] for one in tokens}


# --- leaks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leak_matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=LEAK_BRANCHES).matrix


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(WidthDepth(WIDTH), marks=pytest.mark.slow, id="WidthDepth"),
        pytest.param(
            WidthDepthRounds(LEAK_WIDTH, obs="history"), marks=pytest.mark.slow, id="WidthDepthRounds"
        ),
    ],
)
def test_policies_pass_the_check_of_controllers(env, leak_matrix):
    check_controller(as_controller(drawn(env), GAMMA), leak_matrix, max_branches=env.max_branches)


def test_a_leaf_that_is_no_number_is_refused():
    with pytest.raises(InputError, match=r"policy Drawn is a pytree whose leaf \.weight is str"):
        as_controller(Drawn("much", ATOMIC), GAMMA)


def test_a_random_key_in_memory_is_refused():
    class Sampling:
        env = ATOMIC

        def start(self):
            return jax.random.key(0)

        def act(self, observation, memory):  # noqa: ARG002
            return jnp.int32(1), memory

    with pytest.raises(InputError, match="key_data"):
        as_controller(Sampling(), GAMMA)
