"""Controllers that decide by what their episodes did not reveal, or lie about what was charged."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax import Controller, Family, StopReason
from autotts_jax.policies import player


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Honest(Controller):
    """Probes three branches and takes the most frequent answer."""

    def start(self, pool):
        return (), pool.open(3)

    def round(self, memory, pool):
        return memory, pool, StopReason.DECIDED

    def voters(self, pool):
        return pool.active

    def vote(self, memory, pool):
        return pool.vote(self.voters(pool))


def _only(pool, key):
    """The branches that answer with a key; all where none does."""
    right = pool.active & (pool.answer_keys == key)
    return jnp.where(jnp.any(right), right, pool.active)


def _most(finals):
    return jnp.argmax(jnp.bincount(finals, length=32))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PrivateFields(Honest):
    """Looks into the matrix behind the pool: at gold, or at the branches that are not open."""

    def voters(self, pool):
        matrix = getattr(pool, "_matrix", None)
        if matrix is None:
            return pool.active
        question = pool._episode.question
        gold = jnp.asarray(matrix.gold)[question]
        finals = jnp.asarray(matrix.answers)[question, :, 1]
        return _only(pool, jnp.where(gold < 0, _most(finals), gold))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OnceInAFamily(Honest):
    """Does at one β something else where there is a matrix behind the pool."""

    beta: float

    def voters(self, pool):
        return pool.active & ~((self.beta == jnp.float32(0.65)) & hasattr(pool, "_matrix"))


once = Family("once", tuple(round(0.05 * n, 2) for n in range(1, 21)), OnceInAFamily, "β")


def _on_host(tokens, first):
    """Looks for a matrix in all frames of the process, and for the question in it whose answers are shown."""
    for frame in sys._current_frames().values():
        while frame is not None:
            matrix = frame.f_locals.get("matrix")
            if hasattr(matrix, "gold"):
                answers, gold = np.asarray(matrix.answers), np.asarray(matrix.gold)
                for question in range(len(answers)):
                    if (np.sort(answers[question, :3, 0]) == np.sort(first)).all():
                        most = np.bincount(answers[question, :, 1]).argmax()
                        return np.int32(most if gold[question] < 0 else gold[question])
            frame = frame.f_back
    return np.int32(-1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PureCallback(Honest):
    """Asks the host, where the matrix is in some frame."""

    def voters(self, pool):
        shape = jax.ShapeDtypeStruct((), np.int32)
        key = jax.pure_callback(_on_host, shape, pool.tokens, pool.answer_keys[:3], vmap_method="sequential")
        return _only(pool, key)


SEEN: dict[tuple[int, ...], int] = {}


def _note(first, finals):
    SEEN[tuple(first.tolist())] = int(np.bincount(finals).argmax())


def _recall(first):
    return np.int32(SEEN.get(tuple(first.tolist()), -1))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DebugCallback(Honest):
    """Has the host note the final answers of each question, and asks it for them at the end."""

    def start(self, pool):
        memory, pool = super().start(pool)
        matrix = getattr(pool, "_matrix", None)
        if matrix is not None:
            finals = jnp.asarray(matrix.answers)[pool._episode.question, :, 1]
            jax.debug.callback(_note, pool.answer_keys[:3], finals, ordered=False)
        return memory, pool

    def voters(self, pool):
        shape, first = jax.ShapeDtypeStruct((), np.int32), pool.answer_keys[:3]
        return _only(pool, jax.pure_callback(_recall, shape, first, vmap_method="sequential"))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LiesAboutTokens(Honest):
    """Replaces the rollout by one that charges little."""

    def __post_init__(self):
        prepared = player.prepare_rollout
        if prepared.__name__ == "prepare_rollout":

            def cheaper(*arguments, **options):
                play = prepared(*arguments, **options)

                def cheaply(on_progress):
                    results = play(on_progress)
                    tokens = results.tokens // 10
                    return results._replace(tokens=tokens, sequential_tokens=tokens)

                return cheaply

            player.prepare_rollout = cheaper
