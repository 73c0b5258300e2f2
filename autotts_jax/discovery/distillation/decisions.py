"""What a learned policy decides, beside what a program would see at the same time."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.recording import record
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.discovery.programs.interpreter import DecisionList
from autotts_jax.discovery.programs.rules import BRANCH_FEATURES, POOL_FEATURES
from autotts_jax.envs import observations
from autotts_jax.envs.observations import Before
from autotts_jax.policies.neural.actions import HEADS, OPENINGS
from autotts_jax.policies.neural.network import Inputs, RecurrentState, encode, initial_state
from autotts_jax.policies.neural.policy import NeuralPolicy, apply_network, decide
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
        policy: the policy's recurrent state.
        before: what was seen at the last look.
    """

    rules: RuleMemory
    concludes: Bool[Array, ""]
    policy: RecurrentState
    before: Before


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelledPlay:
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

    @property
    def signals(self) -> tuple[str, ...]:
        """It reads no signals."""
        return ()

    def begin(self, pool: ReplayPool) -> _Watching:
        """Opens nothing: that is the first decision."""
        view = pool.view()
        rules, _ = self.rules.init(view)
        return _Watching(rules, jnp.bool_(False), initial_state(view.width), Before.of(view))

    def round(self, memory: _Watching, pool: ReplayPool) -> tuple[_Watching, ReplayPool, Decisions, Array]:
        """Asks the policy for a decision, and carries it out or the program's own one."""
        concludes, view, rules = memory.concludes, pool.view(), memory.rules
        at_end = self.rules.see(rules, view)
        stop, opening = self.rules.conclude(rules, view)
        stop = jnp.where(concludes, stop, StopReason.RUNNING)
        rules = rules._replace(round=rules.round + concludes)
        tracker = observations.track(memory.policy.tracker, memory.before, view)
        policy = memory.policy._replace(tracker=tracker)
        inputs, policy = encode(view, policy, jnp.asarray(self.policy.gamma))
        if self.by_policy:
            action = decide(self.policy.parameters, inputs, view)
            after = pool.step(action)
            counted, _ = self.rules.look(rules, view)
            # A program opens before it reads.
            _, at_start = self.rules.look(rules, pool.step(Action(open=action.open)).view())
            counted = counted._replace(depth=view.depth, finished=view.finished, idle=jnp.bool_(False))
            rules = self.rules.poll(counted, after.view())
            # A program has not polled the branches that it has just opened.
            rules = rules._replace(keys=jnp.where(view.depth > 0, rules.keys, NONE))
            stop = jnp.where(action.stop != StopReason.RUNNING, StopReason.DECIDED, StopReason.RUNNING)
            read = view.opened > 0
        else:
            first = pool.step(self.rules.init(view)[1]).opened
            opening = jnp.where(view.opened > 0, jnp.where(concludes, opening, 0), first)
            opened = pool.step(Action(open=opening))
            _, at_start = self.rules.look(rules, opened.view())
            begun, prune, advance = self.rules.begin(rules, opened.view())
            after = opened.step(Action(prune=prune, advance=advance))
            # A program that stops reads no more.
            rules, after = jax.tree.map(
                functools.partial(jnp.where, stop == StopReason.RUNNING),
                (self.rules.poll(begun, after.view()), after),
                (memory.rules, opened),
            )
            read = jnp.bool_(True)
        decisions = self._decisions(inputs, view, at_end, at_start, concludes)
        following = _Watching(rules, read, policy, Before.of(view))
        return following, after, decisions, stop != StopReason.RUNNING

    def _decisions(
        self,
        inputs: Inputs,
        view: View,
        at_end: Seen,
        at_start: Seen,
        concludes: Bool[Array, ""],
    ) -> Any:
        """What the policy decides at a look."""
        logits = apply_network(self.policy.parameters, inputs, HEAD.mask(view))
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
            live=view.live,
            answers=action.answer,
            answer_margin=jnp.abs(logits.answer),
            opening=jnp.array(OPENINGS)[action.opening],
            choice=action.choice,
            prune_margin=jnp.abs(prune - first),
            read_margin=first - second,
        )


def _stack(seen: Seen, names: Any) -> Float[Array, "F ..."]:
    return jnp.stack([jnp.asarray(getattr(seen, name), jnp.float32) for name in names])


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

    Returns:
        The decisions in all rounds of all episodes.
    """
    records, played = record(LabelledPlay(rules, policy, beta, by_policy), matrix, orders, rows, ROUNDS)
    kept = np.asarray(played)
    decisions: Decisions = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], records)
    return decisions
