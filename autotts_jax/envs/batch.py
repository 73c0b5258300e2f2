"""WidthDepthBatch, the environment of many questions under one token budget."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Float32, Int, Int32, PRNGKeyArray

from autotts_jax.checks import check_int
from autotts_jax.core import keys
from autotts_jax.core.batch import charge, most_urgent, view_after
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.votes import MOST_BRANCHES
from autotts_jax.envs.environment import Functional, Observation
from autotts_jax.envs.params import Replaceable, draw_orders, register_with_flax
from autotts_jax.envs.spaces import Box, Dict
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array, Scalar

QUESTION_FEATURES = ("branches", "leader", "runner_up", "voters", "tokens")
"""What is observed of each question: branches read, votes of the two leading answers and all votes, as shares
of W; and its tokens as a share of the budget."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BatchParams(Replaceable):
    """The parameters of `WidthDepthBatch`.

    Attributes:
        matrix: the probe matrix.
        sets: the questions of each cell, a row each, then ``NONE`` where others have more. Shape (C, Q).
        orders: branch orders that episodes draw from, of N branches.
        budget: B, tokens of all questions of a set. Shape ().
        max_branches: W of the environment that they were made for (static).
    """

    matrix: ProbeMatrix
    sets: Int32[Array, "C Q"]
    orders: BranchOrders
    budget: Int32[Array, ""]
    max_branches: int = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BatchState(Replaceable):
    """Where a batch stands.

    Attributes:
        row: row of the questions in `BatchParams.sets`. Shape ().
        order: branches of each question in the order in which they are read. Shape (Q, W).
        reads: branches read of each question, W where there is none. Shape (Q,).
        spent: tokens spent. Shape ().
        shown: `QUESTION_FEATURES` of each question. Shape (Q, 5).
        answer: id of what each would answer now, ``NONE`` for none. Shape (Q,).
        time: steps taken. Shape ().
    """

    row: Int32[jax.Array, ""]
    order: Int[jax.Array, "Q W"]
    reads: Int32[jax.Array, " Q"]
    spent: Int32[jax.Array, ""]
    shown: Float32[jax.Array, "Q 5"]
    answer: Int32[jax.Array, " Q"]
    time: Int32[jax.Array, ""]


class WidthDepthBatch(Functional):
    """Many questions under one token budget: `autotts_jax.core.spend`, a round a step.

    **Reset.** An episode draws a cell, whose questions are the Q of its set, and one of the branch orders.
    Where cells differ in size, Q is the largest, and smaller ones have questions without branches at the end.

    **Action**: an index for each of the Q questions, float32 of shape (Q,). The ``at_once`` questions with
    the largest read a branch each, to its end; of equals the earlier is first; ``-inf`` leaves a question,
    and those without a further branch are left anyway. Trainers want a bounded space; as numbers are only
    compared, it is from -10 to 10, where a Gaussian policy is hardly ever clipped, but any other is taken.

    **Observation**: ``{"questions": float32 (Q, 5), "left": float32 (1,), "action_mask": bool (Q,)}``:
    `QUESTION_FEATURES`; the share of the budget that is left; and which questions have a branch to read.

    **Reward**: what the step adds to the share of questions that are answered correctly, so that the rewards
    of an episode sum to its accuracy.

    **End**: the episode terminates with the first read that the budget cannot pay, which is not carried out,
    or when nothing is read or left to read.

    **Info**: ``invalid_action``, whether an index is NaN, which counts as ``-inf``; ``tokens`` spent;
    ``accuracy``, the share of right answers now (for measuring, never for a policy); ``action_mask``. From
    `step` also ``terminated``, ``truncated`` and ``final_observation``.

    Args:
        max_branches: W, branches that a question can read.
        at_once: k, questions that read a branch at a time.
    """

    reset_options = ("question", "order")

    def __init__(self, max_branches: int = 64, *, at_once: int = 1):
        self.max_branches = check_int("max_branches", max_branches, 1, MOST_BRANCHES)
        self.at_once = check_int("at_once", at_once, 1)

    def make_params(self, matrix: ProbeMatrix, *, budget: int | None = None, seed: int = 0) -> BatchParams:
        """Makes the parameters that the environment is played with.

        Args:
            matrix: the probe matrix; every cell is a set. It goes to the default device.
            budget: B, tokens of all questions of a set; when None, those of W / 4 branches for each, in the
                mean over sets.
            seed: the seed of the branch orders, in 0 … 2³² - 1.

        Raises:
            InputError: a value is out of range, the matrix has fewer branches than ``max_branches``, or this
                process is a fork of one that has used JAX.
        """
        branches = self._recorded_branches(matrix)
        cell = np.asarray(matrix.cell)
        of_cells = [np.flatnonzero(cell == one) for one in np.unique(cell)]
        sets = np.full((len(of_cells), max(map(len, of_cells))), NONE, np.int32)
        for row, questions in zip(sets, of_cells, strict=True):
            row[: len(questions)] = questions
        tokens = np.asarray(matrix.tokens)
        most = MAX_TOKENS - min(self.at_once, sets.shape[1]) * int(tokens.max())
        if budget is None:
            mean = tokens.sum(axis=1) / np.maximum((tokens > 0).sum(axis=1), 1)
            budget = min(max(int(mean.sum() / len(sets) * self.max_branches / 4), 1), most)
        matrix = jax.device_put(dataclasses.replace(matrix, signals={}))
        return BatchParams(
            matrix=matrix,
            sets=jnp.asarray(sets),
            orders=draw_orders(matrix, branches, seed),
            budget=jnp.int32(check_int("the token budget", budget, 1, most)),
            max_branches=self.max_branches,
        )

    @property
    def default_data(self) -> str:
        """Name of the embedded data that is played where none is given."""
        return "synthetic"

    @property
    def num_actions(self) -> int:
        """1, the entries of an action for each question."""
        return 1

    def action_space(self, params: BatchParams | None = None) -> Box:
        """Makes the space of actions: a number for each question, from -10 to 10.

        Args:
            params: the parameters; `default_params` when None.
        """
        params = params or self.default_params
        return Box(-10, 10, params.sets.shape[1:], np.float32)

    def observation_space(self, params: BatchParams) -> spaces.Space[Any]:
        """Makes the space of observations.

        Args:
            params: the parameters.
        """
        questions = params.sets.shape[1]
        mask = np.ones(questions, bool)
        return Dict(
            {
                "questions": Box(0, 1, (questions, len(QUESTION_FEATURES)), np.float32),
                "left": Box(0, 1, (1,), np.float32),
                "action_mask": Box(~mask, mask, dtype=mask.dtype.type),
            }
        )

    def reset_env(
        self,
        key: PRNGKeyArray,
        params: BatchParams,
        question: Scalar | None = None,
        order: Int[Array, " W"] | None = None,
    ) -> tuple[Observation, BatchState]:
        """Starts an episode.

        Args:
            key: random key of the episode.
            params: the parameters.
            question: index of a question in the matrix, whose set is played; the set is drawn when None.
            order: branches in the order in which every question reads them; drawn when None.

        Raises:
            InputError: the parameters are of another width, or ``question`` or ``order`` is out of range
                (known when it is not an array of JAX).
        """
        self._check(params, question, order)
        register_with_flax(BatchState)
        word = keys.bits(key, 2)
        if question is None:
            row = word[0] % len(params.sets)
        else:
            row = jnp.argmax(jnp.any(params.sets == question, axis=1))
        questions = params.sets[row]
        if order is None:
            rows = jnp.full_like(questions, word[1] % params.orders.num_rows)
            order = params.orders.of(questions, rows)[:, : self.max_branches]
        state = BatchState(
            row=row.astype(jnp.int32),
            order=jnp.broadcast_to(jnp.asarray(order, jnp.int16), (questions.size, self.max_branches)),
            reads=jnp.where(questions == NONE, jnp.int32(self.max_branches), 0),
            spent=jnp.int32(0),
            shown=jnp.zeros((questions.size, len(QUESTION_FEATURES)), jnp.float32),
            answer=jnp.full(questions.size, NONE, jnp.int32),
            time=jnp.int32(0),
        )
        return self.get_obs(state, params), state

    def step_env(
        self,
        key: PRNGKeyArray,  # noqa: ARG002
        state: BatchState,
        action: Float[Array, " Q"],
        params: BatchParams,
    ) -> tuple[Observation, BatchState, Array, Array, dict[str, Any]]:
        """Takes a step without auto-reset.

        Args:
            key: not used; steps are deterministic.
            state: the state.
            action: the index of each question.
            params: the parameters.

        Returns:
            Observation, state, reward, terminated and info.

        Raises:
            InputError: the parameters are of another width, or the action is of another shape.
        """
        self._check_width(params)
        if (given := jnp.shape(action)) != (shape := params.sets.shape[1:]):
            raise InputError(f"an action must be numbers of shape {shape}, but it is of shape {given}")
        matrix, width = params.matrix, self.max_branches
        questions = params.sets[state.row]
        invalid = jnp.isnan(action)
        index = jnp.where(invalid | (state.reads == width), -jnp.inf, action)
        chosen, wanted = most_urgent(index, min(self.at_once, index.size))
        asked, order, reads = questions[chosen], state.order[chosen], state.reads[chosen]
        branch = jnp.take_along_axis(order, jnp.minimum(reads, width - 1)[:, None], axis=1)[:, 0]
        total, paid = charge(jnp.asarray(matrix.tokens)[asked, branch], wanted, state.spent, params.budget)
        reads += paid
        finals = matrix.finals()

        def look(question: Array, order: Array, reads: Array) -> tuple[Array, Array]:
            view = view_after(matrix, question, order, reads, finals)
            vote = view.vote_finals()
            counts = jnp.stack([reads, vote.top1, vote.top2, vote.voters]) / width
            shown = jnp.append(counts, view.tokens / params.budget).astype(jnp.float32)
            return shown, vote.winner(view.answer_keys).astype(jnp.int32)

        shown, answer = jax.vmap(look)(asked, order, reads)
        changed = jnp.where(paid, chosen, index.size)
        after = dataclasses.replace(
            state,
            reads=state.reads.at[changed].set(reads, mode="drop"),
            spent=jnp.max(jnp.where(paid, total, state.spent)),
            shown=state.shown.at[changed].set(shown, mode="drop"),
            answer=state.answer.at[changed].set(answer, mode="drop"),
            time=state.time + 1,
        )
        accuracy = _accuracy(after, params)
        ended = ~jnp.any(wanted) | jnp.any(wanted != paid) | jnp.all(after.reads == width)
        info = {
            "invalid_action": jnp.any(invalid),
            "tokens": after.spent,
            "accuracy": accuracy,
            "action_mask": after.reads < width,
        }
        return self.get_obs(after, params), after, accuracy - _accuracy(state, params), ended, info

    def get_obs(self, state: BatchState, params: BatchParams) -> Observation:
        """Makes the observation of a state.

        Args:
            state: the state.
            params: the parameters.
        """
        left = (params.budget - state.spent) / params.budget
        mask = state.reads < self.max_branches
        return {"questions": state.shown, "left": left.astype(jnp.float32)[None], "action_mask": mask}

    def first_info(self, state: BatchState, params: BatchParams) -> dict[str, Any]:  # noqa: ARG002
        """Gives the entries of an episode's first ``info`` that are not all 0 or False.

        Args:
            state: the state.
            params: the parameters.
        """
        return {"action_mask": state.reads < self.max_branches}

    def is_truncated(self, state: BatchState, params: BatchParams) -> Bool[Array, ""]:  # noqa: ARG002
        """Returns False: a budget ends every episode.

        Args:
            state: the state.
            params: the parameters.
        """
        return jnp.bool_(False)


def _accuracy(state: BatchState, params: BatchParams) -> Float32[Array, ""]:
    questions = params.sets[state.row]
    right = (state.answer == jnp.asarray(params.matrix.gold)[questions]) & (state.answer != NONE)
    return jnp.mean(right, dtype=jnp.float32, where=questions != NONE)
