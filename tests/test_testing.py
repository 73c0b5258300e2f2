"""`check_functional_env` passes the package's environments, and catches whatever breaks a rule."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from matrices import random_matrix

from autotts_jax.envs import WidthDepth, WidthDepthMacro, WidthDepthRounds
from autotts_jax.testing.environments import check_functional_env

WIDTH = 2
FEW = {"episodes": 4, "steps": 24}
"""Episodes and steps that are enough for all that is told apart here."""


@pytest.fixture(scope="module")
def matrix():
    return random_matrix(3, abstain=0.2)


class WithTokens(WidthDepthRounds):
    """A user's environment: one more part of the observation."""

    def observation_space(self, params):
        inside = super().observation_space(params)
        return spaces.Dict({**inside, "tokens": spaces.Box(0, np.inf, (), np.float32)})

    def observe(self, view, *rest):
        return super().observe(view, *rest) | {"tokens": view.tokens.astype(jnp.float32)}


class DoubleReward(WidthDepth):
    def step_env(self, *args):
        obs, state, reward, *rest = super().step_env(*args)
        return obs, state, 2 * reward, *rest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param(WidthDepth(WIDTH), {}, id="atomic"),
        pytest.param(
            WidthDepth(WIDTH, fused=True, obs="history", aggregate="latest"),
            {"kappa_probe": 0.5, "invalid_penalty": 0.25, "gamma": (1e-4, 1e-1), "reward": "majority"},
            marks=pytest.mark.nightly,
            id="fused",
        ),
        pytest.param(
            WidthDepthRounds(WIDTH, obs="flat"),
            {"budget": 100, "reward": "regret", "max_steps": 20},
            id="rounds",
        ),
        pytest.param(WidthDepthMacro(WIDTH), {"budget": 100}, id="macro"),
        pytest.param(
            WithTokens(WIDTH, max_advance=2),
            {"reward": "progress", "gamma": 0.0},
            marks=pytest.mark.nightly,
            id="derived",
        ),
        pytest.param(DoubleReward(WIDTH), {"check_rewards": False}, marks=pytest.mark.nightly, id="rewarded"),
    ],
)
def test_sound_environments_pass(env, settings, matrix):
    check_functional_env(env, matrix, **FEW | settings)


class FourValues(WidthDepth):
    def step(self, *args):
        return super().step(*args)[:4]


class OtherTime(WidthDepth):
    def reset(self, *args, **kwargs):
        obs, state = super().reset(*args, **kwargs)
        return obs, dataclasses.replace(state, time=state.time.astype(jnp.int16))


class OutOfSpace(WidthDepth):
    def observe(self, view, *rest):
        obs = super().observe(view, *rest)
        return obs | {"branches": obs["branches"] + 2.0 * (view.depth[:, None] > 2)}


class EmptyMask(WidthDepth):
    def action_mask(self, view):
        return super().action_mask(view) & (view.opened < WIDTH)


class LaxMask(WidthDepth):
    def decode(self, view, action):
        return WidthDepth(WIDTH).decode(view, action)

    def action_mask(self, view):
        return super().action_mask(view).at[2].set(True)


class NoFlag(WidthDepth):
    def decode(self, view, action):
        return super().decode(view, action)[0], jnp.bool_(False)


class Clamps(WidthDepth):
    def decode(self, view, action):
        inside = jnp.clip(action, 0, self.num_actions - 1)
        decoded, invalid = super().decode(view, inside)
        return decoded, invalid | (inside != action)


class AllOrNothing(WidthDepthRounds):
    def decode(self, view, action):
        decoded, invalid = super().decode(view, action)
        counts = {name: jnp.where(invalid, 0, getattr(decoded, name)) for name in ("open", "advance")}
        return decoded._replace(prune=decoded.prune & ~invalid, **counts), invalid


class FallingCost(WidthDepth):
    def step_env(self, *args):
        *rest, info = super().step_env(*args)
        return *rest, info | {"tokens": -info["tokens"]}


class FreeProbes(WidthDepth):
    def step_env(self, *args):
        *rest, info = super().step_env(*args)
        return *rest, info | {"cost": info["intervals"].astype(jnp.float32)}


class EndlessReward(WidthDepth):
    def step_env(self, *args):
        obs, state, reward, *rest = super().step_env(*args)
        return obs, state, jnp.where(state.time > 2, jnp.inf, reward), *rest


class NeverCorrect(WidthDepth):
    def step_env(self, *args):
        *rest, info = super().step_env(*args)
        return *rest, info | {"correct": jnp.bool_(False)}


class NoEnd(WidthDepth):
    def is_truncated(self, *_):
        return jnp.bool_(False)


class BothEnds(WidthDepth):
    def step(self, *args):
        *rest, terminated, truncated, info = super().step(*args)
        return *rest, terminated, truncated | terminated, info


class NoReset(WidthDepth):
    def step(self, key, state, action, params=None):
        obs, _, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, self.step_env(key, state, action, params)[1], reward, terminated, truncated, info


class FirstAsFinal(WidthDepth):
    def step(self, *args):
        obs, *rest, info = super().step(*args)
        return obs, *rest, info | {"final_observation": obs}


class OneEpisode(WidthDepth):
    def reset_env(self, key, *rest):  # noqa: ARG002
        return super().reset_env(jax.random.key(0), *rest)


class OwnOrder(WidthDepth):
    def reset_env(self, key, params, question=None, order=None, gamma=None):  # noqa: ARG002
        return super().reset_env(key, params, question, gamma=gamma)


class SeesLength(WidthDepth):
    def get_obs(self, state, params):
        obs, pool = super().get_obs(state, params), state.pool
        length = jnp.where(pool.opened > 0, pool.hidden.length[0] / 100, 0)
        return obs | {"globals": obs["globals"].at[0].set(length)}


class MaskSeesKeys(WidthDepth):
    def decode(self, view, action):
        number = jnp.clip(action, 0, self.num_actions - 1)
        return super().decode(view, jnp.where(self.action_mask(view)[number], action, -1))

    def action_mask(self, view):
        return super().action_mask(view).at[-WIDTH:].min(view.answer_keys % 2 == 0)


def even(view, _):
    """An aggregation that does more with keys than to compare them for equality."""
    return view.vote(view.active & (view.answer_keys % 2 == 0))


BROKEN = [
    (FourValues(WIDTH), "six values"),
    (OtherTime(WIDTH), "state of step differs from that of reset"),
    (OutOfSpace(WIDTH), r"observations\['branches'\] lie outside"),
    (EmptyMask(WIDTH), "nothing to choose"),
    (LaxMask(WIDTH), "the mask admits is flagged"),
    (NoFlag(WIDTH), "the mask forbids is not flagged"),
    (Clamps(WIDTH), "changes more of the state than its time"),
    (AllOrNothing(WIDTH), "has an effect"),
    (FallingCost(WIDTH), r"info\['tokens'\] falls"),
    (FreeProbes(WIDTH), r"intervals \+ kappa_probe"),
    (EndlessReward(WIDTH), "a reward is not finite"),
    (NeverCorrect(WIDTH), r"info\['correct'\] is not whether"),
    (DoubleReward(WIDTH), "do not sum to .* check_rewards=False"),
    (NoEnd(WIDTH), "is_truncated must say so"),
    (BothEnds(WIDTH), "both terminated and truncated"),
    (NoReset(WIDTH), "not that of get_obs"),
    (FirstAsFinal(WIDTH), "before any auto-reset"),
    (OneEpisode(WIDTH), "same episode for different keys"),
    (OwnOrder(WIDTH), "the order that it is given"),
    (SeesLength(WIDTH), "observation/globals changes"),
    (MaskSeesKeys(WIDTH), "action_mask changes"),
    (WidthDepth(WIDTH, aggregate=even), "the aggregation may compare keys for equality only"),
]
MARKS = dict.fromkeys((AllOrNothing, DoubleReward, LaxMask, NoReset, OwnOrder, SeesLength), pytest.mark.slow)
MARKS[FourValues] = ()
"""Those of each part of the check that landing needs; the others are caught nightly."""


@pytest.mark.parametrize(
    ("env", "message"),
    [
        pytest.param(env, message, marks=MARKS.get(type(env), pytest.mark.nightly), id=type(env).__name__)
        for env, message in BROKEN
    ],
)
def test_what_breaks_a_rule_is_caught(env, message, matrix):
    with pytest.raises(AssertionError, match=message):
        check_functional_env(env, matrix, kappa_probe=0.5, **FEW)
