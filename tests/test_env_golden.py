"""Golden episodes, decided by controllers, played through the atomic environments one action at a time."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotts_jax  # noqa: F401  # registers the environments
from autotts_jax.core import pool as branch_pool
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.envs import WidthDepth
from autotts_jax.experiments.trace import _RecordingPool
from autotts_jax.policies.players import select
from autotts_jax.replay import read_files
from autotts_jax.replay.orders import repo100_orders

CELL, SEEDS, WIDTH = "Qwen3-8B/aime24", 5, 64
ROUNDS = 120
"""More than any of the episodes has."""
BRANCH, ANSWER, CONTINUE, PROBE, PRUNE = 0, 1, 2, 2 + WIDTH, 2 + 2 * WIDTH
"""Atomic actions; the last three are those of branch 0."""
GOLDEN = {
    "cmc_beta0.5": ("cmc@0.5", "majority"),
    "cmc_beta1.0": ("cmc@1", "majority"),
    "asc64": ("asc@64", "majority"),
    "parallel_probe64": ("parallel-probe@64", "latest"),
}
"""By golden name: the controller, and the aggregation that answers as it does."""


@pytest.fixture(scope="module")
def file(replay_dir):
    return replay_dir.joinpath(*CELL.split("/")).with_suffix(".json")


@pytest.fixture(scope="module")
def matrix(file):
    return jax.device_put(read_files([file]).matrix)


@pytest.fixture(scope="module")
def episodes(matrix):
    """Question and branch order of every episode, seed after seed."""
    seed, question = (axis.reshape(-1) for axis in np.indices((SEEDS, matrix.num_questions)))
    orders = repo100_orders(matrix.num_branches, range(SEEDS))[:, :WIDTH].astype(np.int32)
    return question.astype(np.int32), orders[seed]


@pytest.fixture(scope="module")
def actions(matrix, episodes):
    """Every episode's atomic actions, by golden name. Shape (E, T); ANSWER fills up to the longest."""
    found = {}
    for name, (spec, _) in GOLDEN.items():
        (controller,) = select(spec).controllers
        depth, active, stop = jax.device_get(decide(controller, matrix, *episodes))
        assert (stop != StopReason.RUNNING).all()
        found[name] = [atomic_actions(*episode) for episode in zip(depth, active, strict=True)]
    longest = max(len(sequence) for sequences in found.values() for sequence in sequences)
    return {
        name: np.array(
            [sequence + [ANSWER] * (longest + 1 - len(sequence)) for sequence in sequences], np.int32
        )
        for name, sequences in found.items()
    }


@pytest.fixture(scope="module")
def golden(golden_dir):
    """``correct`` or ``tokens`` of every episode, seed after seed."""
    arrays = np.load(golden_dir / "episodes" / f"{CELL.replace('/', '_')}.npz")
    return lambda name, what: arrays[f"{name}/{what}"][:SEEDS].reshape(-1)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, None, 0, 0))
def decide(controller, matrix, question, order):
    """A controller's episode: depth and active branches before its first operation and after each. (S, W)."""
    log = []
    replay = ReplayPool.begin(matrix, question, order, revealed=False)
    memory, pool = controller.start(_RecordingPool(replay, log, set()))
    opening = jnp.stack([shown(pool) for pool in (replay, *(after for _, after in log))])

    def play_round(carry, _):
        memory, replay, stop = carry
        log = []
        pool = _RecordingPool(branch_pool.attach(replay, matrix), log, set())
        moved, pool, reason = controller.round(memory, pool)
        running = stop == StopReason.RUNNING
        stepped = moved, branch_pool.detach(pool.replay), jnp.int32(reason)
        carry = jax.tree.map(lambda new, old: jnp.where(running, new, old), stepped, carry)
        return carry, jnp.stack([jnp.where(running, shown(after), shown(replay)) for _, after in log])

    start = memory, branch_pool.detach(pool.replay), jnp.int32(StopReason.RUNNING)
    (_, _, stop), rounds = jax.lax.scan(play_round, start, length=ROUNDS)
    seen = jnp.concatenate([opening, rounds.reshape(-1, *rounds.shape[2:])])
    return seen[:, 0], seen[:, 1] == 1, stop


def shown(pool):
    return jnp.stack([pool.depth, pool.active.astype(jnp.int32)])


def atomic_actions(depth, active):
    """The atomic actions that lead from each of an episode's states to the next; ANSWER is left out."""
    found = []
    differ = (np.diff(depth, axis=0) != 0).any(axis=1) | (active[1:] != active[:-1]).any(axis=1)
    for step in np.flatnonzero(differ):
        read = depth[step + 1] - depth[step]
        found += (PRUNE + np.flatnonzero(active[step] & ~active[step + 1])).tolist()
        # The branch that was probed most comes first: the order of completion breaks ties in the vote.
        for branch in np.argsort(-depth[step], kind="stable").tolist():
            if depth[step, branch] > 0:
                found += [CONTINUE + branch, PROBE + branch] * read[branch]
            elif read[branch]:  # opened, or read in full and then revealed
                found += [BRANCH, *[CONTINUE + branch] * (read[branch] - 1), PROBE + branch]
    return found


@functools.partial(jax.jit, static_argnums=0)
def play(env, params, question, order, actions):
    """Plays E sequences of actions, (E, T), and gives the last step's info, and whether any was invalid."""
    key = jax.random.key(0)
    _, states = jax.vmap(lambda question, order: env.reset_env(key, params, question, order))(question, order)

    def step(states, actions):
        _, states, _, answered, info = jax.vmap(lambda s, a: env.step_env(key, s, a, params))(states, actions)
        return states, (answered, info["invalid_action"], info["tokens"], info["correct"])

    states, (answered, invalid, tokens, correct) = jax.lax.scan(step, states, actions.T)
    return answered[-1], invalid.any(axis=0), tokens[-1], correct[-1], states.pool.opened


@pytest.mark.parametrize("name", GOLDEN)
def test_atomic_actions_reproduce_the_golden_episodes(matrix, episodes, actions, golden, name):
    question, order = episodes
    env = WidthDepth(WIDTH, obs="features", aggregate=GOLDEN[name][1])
    params = env.make_params(matrix)
    assert actions[name].shape[1] <= env.default_max_steps(matrix.max_depth)
    answered, invalid, tokens, correct, opened = play(env, params, question, order, actions[name])
    assert np.all(answered)
    assert not np.any(invalid)
    np.testing.assert_array_equal(correct, golden(name, "correct"))
    stepwise = 0
    if name == "asc64":
        beyond = matrix.interval[question, None] * matrix.lengths[question[:, None], order]
        beyond = np.maximum(beyond - matrix.tokens[question[:, None], order], 0)
        stepwise = np.sum(beyond * (np.arange(WIDTH) < opened[:, None]), axis=1)
        assert stepwise.any()
    np.testing.assert_array_equal(tokens, golden(name, "tokens") + stepwise)


def test_gymnasium_gives_the_same(file, matrix, actions, golden):
    env = gymnasium.make("WidthDepth-v0", data=str(file), max_branches=WIDTH)
    for name in ("cmc_beta0.5", "cmc_beta1.0", "asc64"):
        shortest = np.argsort((actions[name] != ANSWER).sum(axis=1))[:2]
        for episode in shortest.tolist():
            seed, question = divmod(episode, matrix.num_questions)
            env.reset(options={"question": question, "order": seed})
            for action in actions[name][episode]:
                _, _, terminated, truncated, info = env.step(action)
                assert not info["invalid_action"]
                assert not truncated
                if terminated:
                    break
            assert terminated
            assert info["correct"] == golden(name, "correct")[episode]
            assert info["tokens"] == golden(name, "tokens")[episode] or name == "asc64"
    env.close()
