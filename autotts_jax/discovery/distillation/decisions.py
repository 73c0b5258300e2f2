"""What a learned policy decides, beside what a program would see at the same time."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core.controller import Controller, Memory
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.rollout import Episodes, Hooks, rollout
from autotts_jax.core.votes import Vote
from autotts_jax.discovery.programs.interpreter import DecisionList
from autotts_jax.discovery.programs.rules import BRANCH_FEATURES, POOL_FEATURES
from autotts_jax.policies.neural.actions import HEADS, OPENINGS
from autotts_jax.policies.neural.network import Inputs, RecurrentState, encode, initial_state, update
from autotts_jax.policies.neural.policy import NeuralPolicy, act, apply_network
from autotts_jax.policies.rule_controller import RuleMemory, Seen
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array

ROUNDS = 96
"""Rounds of an episode that are watched."""

HEAD = HEADS["rounds"]

PRUNE = 1
"""What a policy chooses for a branch to prune it; 1 + k stands for reading k intervals."""


class Decisions(NamedTuple):
    """What a policy decides in N rounds, and what a program sees.

    Attributes:
        beta: β of the program. Shape (N,).
        at_end: features of the pool at the end of the round before, when a program answers or opens.
            Shape (N, Fp).
        at_start: features of the pool at the start of the round, when a program prunes and reads.
            Shape (N, Fp).
        branches: features of the branches at that time. Shape (N, Fb, W).
        concludes: whether a round of the program's is over, so that it answers or opens. Shape (N,).
        live: which branches are live. Shape (N, W).
        answers: whether the policy answers. Shape (N,).
        answer_margin: how sure it is of that, in nats. Shape (N,).
        opening: how many branches it opens. Shape (N,).
        choice: what it does with each branch, as in `RoundAction`. Shape (N, W).
        prune_margin: how sure it is whether to prune each branch, in nats. Shape (N, W).
        read_margin: how sure it is of how far to read it, if not pruned, in nats. Shape (N, W).
    """

    beta: Float[np.ndarray, " N"]
    at_end: Float[np.ndarray, "N Fp"]
    at_start: Float[np.ndarray, "N Fp"]
    branches: Float[np.ndarray, "N Fb W"]
    concludes: Bool[np.ndarray, " N"]
    live: Bool[np.ndarray, "N W"]
    answers: Bool[np.ndarray, " N"]
    answer_margin: Float[np.ndarray, " N"]
    opening: Int32[np.ndarray, " N"]
    choice: Int32[np.ndarray, "N W"]
    prune_margin: Float[np.ndarray, "N W"]
    read_margin: Float[np.ndarray, "N W"]


class _Watching(NamedTuple):
    """What is remembered.

    Attributes:
        rules: the program's memory.
        concludes: whether a round of the program's is over, so that it answers or opens. Shape ().
        idle: whether nothing can be read any more. Shape ().
        policy: the policy's recurrent state.
        last: the last round.
    """

    rules: RuleMemory
    concludes: Bool[Array, ""]
    idle: Bool[Array, ""]
    policy: RecurrentState
    last: Decisions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelledPlay(Controller):
    """Plays a program or a policy, and records what the policy would decide in every round.

    A round of the policy begins where one of the program's has read its branches: what the program then
    concludes, and how it reads on, is one decision of the policy.

    Attributes:
        rules: the program.
        policy: the policy.
        beta: β of the program.
        by_policy: whether the policy plays, and the program looks on.
    """

    rules: DecisionList
    policy: NeuralPolicy
    beta: float
    by_policy: bool = dataclasses.field(metadata={"static": True})

    def start(self, pool: Pool) -> tuple[_Watching, Pool]:
        """Opens nothing: that is the first decision."""
        rules, _ = self.rules.start(pool)
        no = jnp.bool_(False)
        memory = _Watching(rules, no, no, initial_state(pool.width), cast(Any, None))
        blank = jax.eval_shape(lambda: self.round(memory, pool)[0].last)
        return memory._replace(last=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank)), pool

    def round(self, memory: _Watching, pool: Pool) -> tuple[_Watching, Pool, Array]:
        """Asks the policy for a decision, and carries it out or the program's own one."""
        concludes, before, rules = memory.concludes, pool, memory.rules
        at_end = self.rules.see(rules, pool)
        stop, opening = self.rules.conclude(rules, pool, memory.idle)
        stop = jnp.where(concludes, stop, StopReason.RUNNING)
        rules = rules._replace(round=rules.round + concludes)
        inputs, state = encode(pool, memory.policy, jnp.asarray(self.policy.gamma))
        if self.by_policy:
            after, answered = act(self.policy.parameters, inputs, pool)
            counted, _ = self.rules.look(rules, pool)
            # A program opens before it reads, the policy afterwards.
            _, at_start = self.rules.look(rules, pool.open(after.opened - pool.opened))
            rules, idle = self.rules.poll(counted, pool, after), jnp.bool_(False)
            # A program has not polled the branches that it has just opened either.
            rules = rules._replace(keys=jnp.where(before.depth > 0, rules.keys, NONE))
            stop = jnp.where(answered, StopReason.DECIDED, StopReason.RUNNING)
            read = before.opened > 0
        else:
            _, first = self.rules.start(pool)
            pool = pool.open(jnp.where(pool.opened > 0, jnp.where(concludes, opening, 0), first.opened))
            _, at_start = self.rules.look(rules, pool)
            # A program that stops reads no more.
            keep = functools.partial(jnp.where, stop == StopReason.RUNNING)
            read_on = self.rules.read_on(rules, pool)
            rules, after, idle = jax.tree.map(keep, read_on, (memory.rules, pool, memory.idle))
            read = jnp.bool_(True)
        decisions = self._decisions(inputs, before, at_end, at_start, concludes)
        following = _Watching(rules, read, idle, update(state, before, after), decisions)
        return following, after, stop

    def vote(self, memory: _Watching, pool: BranchPool) -> Vote:
        """Holds the program's vote."""
        return self.rules.vote(memory.rules, pool)

    def _decisions(
        self,
        inputs: Inputs,
        pool: BranchPool,
        at_end: Seen,
        at_start: Seen,
        concludes: Bool[Array, ""],
    ) -> Any:
        """What the policy decides in a pool."""
        logits = apply_network(self.policy.parameters, inputs, HEAD.mask(pool))
        action = HEAD.greedy(logits)
        prune, *reads = logits.choice[PRUNE:]
        *_, second, first = jnp.sort(jnp.stack(reads), axis=0)
        decisions: Any = Decisions  # of traced arrays here
        return decisions(
            beta=jnp.float32(self.beta),
            at_end=_stack(at_end, POOL_FEATURES),
            at_start=_stack(at_start, POOL_FEATURES),
            branches=_stack(at_start, BRANCH_FEATURES),
            concludes=concludes,
            live=pool.live,
            answers=action.answer,
            answer_margin=jnp.abs(logits.answer),
            opening=jnp.array(OPENINGS)[action.opening],
            choice=action.choice,
            prune_margin=jnp.abs(prune - first),
            read_margin=first - second,
        )


def _stack(seen: Seen, names: Any) -> Float[Array, "F ..."]:
    return jnp.stack([jnp.asarray(getattr(seen, name), jnp.float32) for name in names])


def _last(controller: Controller, memory: Memory, pool: BranchPool) -> Decisions:  # noqa: ARG001
    last: Decisions = memory.last
    return last


def watch(
    rules: DecisionList,
    policy: NeuralPolicy,
    beta: float,
    matrix: ProbeMatrix,
    orders: BranchOrders,
    rows: Int32[np.ndarray, " Q"],
    by_policy: bool,
) -> Decisions:
    """Plays an episode on every question, and records what a policy decides in it.

    Args:
        rules: a program at β.
        policy: the policy, at its γ.
        beta: β.
        matrix: the questions.
        orders: branch orders.
        rows: the row of the orders that each question is played in.
        by_policy: whether the policy plays; otherwise the program does.

    Returns:
        The decisions in all rounds of all episodes.
    """
    questions = np.arange(matrix.num_questions)
    played = rollout(
        [LabelledPlay(rules, policy, beta, by_policy)],
        matrix,
        orders,
        Episodes(questions, rows, np.zeros_like(questions)),
        hooks=Hooks(after_round=_last, rounds=ROUNDS),
    )
    decisions: Decisions = jax.tree.map(lambda leaf: np.asarray(leaf)[played.recorded], played.records)
    return decisions
