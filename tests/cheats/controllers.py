"""Controllers that decide by what their episodes did not reveal, or lie about what was charged."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax.core import Action, Controller, StopReason
from autotts_jax.policies import player
from autotts_jax.policies.sealed import playing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Honest(Controller):
    """Probes three branches and takes the most frequent answer."""

    def init(self, view):
        return (), Action(open=3)

    def act(self, memory, view):
        return memory, Action(stop=StopReason.DECIDED)

    def voters(self, view):
        return view.active

    def answer(self, memory, view):
        return view.vote(self.voters(view))


def _only(view, key):
    """The branches that answer with a key; all where none does."""
    right = view.active & (view.answer_keys == key)
    return jnp.where(jnp.any(right), right, view.active)


def _hidden(view):
    """The matrix and the episode behind what a view looks up; None where it looks nothing up."""
    if view._lookups is None:
        return None
    key = view._lookups.key
    held = dict(zip(key.__code__.co_freevars, (cell.cell_contents for cell in key.__closure__), strict=True))
    return held["matrix"], held["episode"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PrivateFields(Honest):
    """Looks at the gold answer in the matrix behind the view."""

    def voters(self, view):
        hidden = _hidden(view)
        if hidden is None:
            return view.active
        matrix, episode = hidden
        return _only(view, jnp.asarray(matrix.gold)[episode.question])


def _on_host(tokens, first):
    """Looks for a matrix in all frames of the process, and for the question in it whose answers are shown."""
    for frame in sys._current_frames().values():
        while frame is not None:
            matrix = frame.f_locals.get("matrix")
            if hasattr(matrix, "gold"):
                answers, gold = np.asarray(matrix.answers), np.asarray(matrix.gold)
                for question in range(len(answers)):
                    if (np.sort(answers[question, :3, 0]) == np.sort(first)).all():
                        return np.int32(gold[question])
            frame = frame.f_back
    return np.int32(-1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PureCallback(Honest):
    """Asks the host, where the matrix is in some frame."""

    def voters(self, view):
        shape = jax.ShapeDtypeStruct((), np.int32)
        key = jax.pure_callback(_on_host, shape, view.tokens, view.answer_keys[:3], vmap_method="sequential")
        return _only(view, key)


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Forges(Honest):
    """Answers with branches that it never opened."""

    def __post_init__(self):
        playing.Deciding.answer = _claim

    def init(self, view):
        return ()


def _claim(self, says, arrays):
    self._channel.send({}, {"leader": np.zeros_like(self._setting, np.int32)})
