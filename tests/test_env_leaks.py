"""No observation, mask or flag depends on what was not revealed: scrambling it changes none of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotts_jax.core.scrambling import Revealed, scramble
from autotts_jax.envs import WidthDepth, WidthDepthRounds
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE

QUESTIONS, BRANCHES, WIDTH, TRIALS = 6, 32, 3, 12
SEEN = ("invalid_action", "tokens", "intervals", "probes", "cost", "interval", "question", "action_mask")


@pytest.fixture(scope="module")
def matrix():
    model = SYNTHETIC_MODELS[1:2]
    return synthetic(seed=1, models=model, questions=QUESTIONS, branches=BRANCHES, signals=True).matrix


def atomic_actions(rng, fused=False):
    """Draws actions that mostly read branch 0, so that it comes to its end."""
    last = 2 + (2 if fused else 3) * WIDTH
    read = [2] if fused else [2, 2 + WIDTH]
    actions = np.where(rng.random(150) < 0.8, rng.choice(read, 150), rng.integers(-1, last + 1, 150))
    actions[actions == 1] = 0
    actions[0] = 0
    return actions


def fused_actions(rng):
    return atomic_actions(rng, fused=True)


def round_actions(rng):
    actions = rng.choice([0, 2, 3, 5, 1, 6, -1], (20, 2 + WIDTH), p=[0.2, 0.2, 0.2, 0.36, 0.02, 0.01, 0.01])
    actions[:, 0] = 0
    actions[0, 1] = 2
    return actions


def leaking(env, draw, matrix) -> set[str]:
    """Names of what depends on what was not revealed, of all that is seen and the answers."""

    @jax.jit
    def play(params, question, order, actions):
        """Plays actions: all that is seen meanwhile, the answers, and what was revealed."""

        def one(state, action):
            obs, state, _, terminated, info = env.step_env(None, state, action, params)
            seen = obs, {"terminated": terminated} | {name: info[name] for name in SEEN}
            return state, (seen, info["answer"])

        obs, state = env.reset_env(jax.random.key(0), params, question, order)
        state, (seen, answer) = jax.lax.scan(one, state, actions)
        view = state.pool.with_matrix(params.matrix).view(detached=True)
        return (obs, seen), answer, Revealed.of(view)

    rng = np.random.default_rng(0)
    params = env.make_params(matrix)
    found = set()
    for trial in range(TRIALS):
        question, order = trial % QUESTIONS, rng.permutation(BRANCHES)[:WIDTH]
        actions = jnp.asarray(draw(rng), jnp.int32)
        seen, answer, kept = play(params, question, order, actions)
        other, ids = scramble(matrix, question, order, kept, rng)
        again, other_answer, _ = play(params.replace(matrix=jax.device_put(other)), question, order, actions)
        for (path, one), two in zip(
            jax.tree_util.tree_leaves_with_path(seen), jax.tree.leaves(again), strict=True
        ):
            if not np.array_equal(one, two):
                found.add(jax.tree_util.keystr(path[-1:], simple=True))
        if not np.array_equal(np.where(answer == NONE, NONE, ids[answer]), other_answer):
            found.add("answer")
    return found


# History holds all that the other observations are made from; tests/test_env.py says that they are.
ATOMIC = WidthDepth(WIDTH, obs="history")
FUSED = WidthDepth(WIDTH, obs="history", fused=True)
ROUNDS = WidthDepthRounds(WIDTH, obs="history")
SIGNALS = ("conf_low", "probe_hedge")
SURE = WidthDepth(WIDTH, obs="history", signals=SIGNALS)


@pytest.mark.parametrize(
    ("env", "draw"),
    [
        pytest.param(ATOMIC, atomic_actions, marks=pytest.mark.slow, id="atomic"),
        pytest.param(FUSED, fused_actions, marks=pytest.mark.slow, id="fused"),
        pytest.param(ROUNDS, round_actions, id="rounds"),
        pytest.param(SURE, atomic_actions, id="signals"),
    ],
)
def test_nothing_unrevealed_is_seen(env, draw, matrix):
    assert leaking(env, draw, matrix) == set()


def deeper(pool, values):
    return values.reshape(-1)[pool.hidden.start[0] + pool.depth[0]]


PEEKS = {
    "gold": lambda pool, matrix: matrix.gold[pool.hidden.question],
    "length": lambda pool, _: pool.hidden.length[-1],
    "deeper": lambda pool, matrix: deeper(pool, matrix.answers),
    "deeper signal": lambda pool, matrix: deeper(pool, matrix.signals["conf_low"]),
    "answer id": lambda pool, matrix: pool.with_matrix(matrix).answer_keys[0],
}


class Cheats(WidthDepthRounds):
    """Shows what nobody may see, and a mask that depends on the number of an answer."""

    def get_obs(self, state, params):
        peeks = {name: peek(state.pool, params.matrix) for name, peek in PEEKS.items()}
        return super().get_obs(state, params) | peeks

    def action_mask(self, view):
        return super().action_mask(view).at[-1].min(view.answer_keys[0] % 2 == 0)


def even(view, _):
    return view.vote(view.active & (view.answer_keys % 2 == 0))


def test_each_cheat_of_an_environment_is_caught(matrix):
    cheats = Cheats(WIDTH, obs="history", signals=SIGNALS, aggregate=even)
    assert leaking(cheats, round_actions, matrix) == {*PEEKS, "action_mask", "answer"}
