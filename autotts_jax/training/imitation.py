"""Warm start: behaviour cloning of code controllers, and dataset aggregation.

Teachers play recorded questions, each at a price, and a network that is told the price learns to decide as
they did. Then the network plays, and learns what its teachers would have decided where it came to (DAgger,
Ross et al., arXiv 1011.0686): a clone that has only seen its teachers' episodes does not know how to go on
after a mistake of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from autotts_jax.core.controller import Controller
from autotts_jax.core.pool import ReplayPool, StopReason, winner
from autotts_jax.core.rollout import kind_of
from autotts_jax.envs.params import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import HEADS, MAX_ADVANCE, OPENINGS, RoundAction, RoundMask
from autotts_jax.policies.neural.network import Inputs, encode, initial_state, update
from autotts_jax.policies.neural.policy import Parameters, act, apply_network, initial_parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.training import teachers
from autotts_jax.training.arena import Arena, draw_prices
from autotts_jax.training.vote_weights import learn_votes
from autotts_jax.typing import Array

ROUNDS = 96
"""Rounds of an episode that are imitated."""

HEAD = HEADS["rounds"]
"""Teachers decide in rounds. A policy of atomic actions sees nothing of how far a round has got."""


class Demonstrations(NamedTuple):
    """What teachers did, one entry a round; every leaf has a leading axis of length D.

    Attributes:
        inputs: what the network reads.
        mask: what was admissible.
        action: what the teacher did.
    """

    inputs: Inputs
    mask: RoundMask
    action: RoundAction


def demonstrate(
    teacher: Controller,
    gamma: float,
    matrix: ProbeMatrix,
    orders: Int[Array, "E W"],
    questions: Int[Array, " E"],
    labels: Int[Array, " E"] | None = None,
    player: Parameters | None = None,
) -> Demonstrations:
    """What a teacher does in E episodes, or would do in those of a player.

    Args:
        teacher: the teacher.
        gamma: γ, the price of an interval that the network is told it plays for.
        matrix: the probe matrix.
        orders: branches of each episode in opening order.
        questions: question of each episode.
        labels: what counts as right in each episode. If it is given, each episode is cut where its progress
            peaks, at the first round in which its answer is worth most, and kept if that answer is right
            (MRT, arXiv 2503.07572, section 6).
        player: parameters of a network that plays in the teacher's place, its most likely decisions, until it
            answers. The teacher, which remembers the rounds before as if it had played them on the same
            branches, says what it would do.
    """
    played, kept = _demonstrate(
        teacher,
        matrix,
        orders,
        questions,
        labels,
        player,
        jnp.float32(gamma),
        kind=kind_of(teacher),
    )
    kept = np.asarray(kept)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], played)


@functools.partial(jax.jit, static_argnames="kind")
def _demonstrate(teacher, matrix, orders, questions, labels, player, gamma, *, kind):  # noqa: ARG001
    play = functools.partial(_play, teacher, matrix, player, gamma)
    played, running, answers, cost = jax.vmap(play)(orders, questions)
    if labels is not None:
        right = (answers == labels[:, None]) & (answers != NONE)
        worth = jnp.where(running, right - gamma * cost, -jnp.inf)
        peak = jnp.argmax(worth, axis=1)[:, None]
        time = jnp.arange(running.shape[1])
        running &= (time <= peak) & jnp.take_along_axis(right, peak, axis=1)
        ends = played.action.answer | ((time == peak) & played.mask.answer)
        played = played._replace(action=played.action._replace(answer=ends))
    return played, running


def _play(
    teacher: Controller,
    matrix: ProbeMatrix,
    player: Parameters | None,
    gamma: Float[Array, ""],
    order: Int[Array, " W"],
    question: Int[Array, ""],
) -> tuple[Demonstrations, Bool[Array, " T"], Int[Array, " T"], Float[Array, " T"]]:
    """An episode round by round: what was done, whether it had not ended, the answer it had, and its cost."""
    empty = ReplayPool.begin(matrix, question, order)
    memory, opened = teacher.start(empty)

    def step(carry, round_):
        memory, pool, recall, stop = carry
        seen, recall = encode(pool, recall, gamma)
        began = round_ == 0
        later, moved, ending = teacher.round(memory, pool)
        memory_after = _select(began, memory, later)
        after = _select(began, opened, moved)
        answers = (stop != StopReason.RUNNING) & ~began
        answer = winner(pool, teacher.vote(memory, pool))
        allowed = HEAD.mask(pool)
        row = (
            Demonstrations(seen, allowed, _decision(allowed, pool, after, answers)),
            stop != StopReason.EXHAUSTED,
            answer,
            jnp.sum(pool.depth, dtype=jnp.float32),
        )
        ended = answers
        if player is not None:
            after, ended = act(player, seen, pool)
        # `EXHAUSTED` here marks what lies beyond the answer.
        stop = jnp.where(
            ended | (stop == StopReason.EXHAUSTED),
            StopReason.EXHAUSTED,
            jnp.where(
                began | (ending == StopReason.RUNNING),
                StopReason.RUNNING,
                StopReason.DECIDED,
            ),
        )
        return (memory_after, after, update(recall, pool, after), stop), row

    start = (memory, empty, initial_state(empty.width), jnp.int32(StopReason.RUNNING))
    return jax.lax.scan(step, start, jnp.arange(ROUNDS))[1]


def _select(first, ours, other):
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), ours, other)


def _decision(
    allowed: RoundMask, before: ReplayPool, after: ReplayPool, answer: Bool[Array, ""]
) -> RoundAction:
    """The admissible decision that comes nearest to what led from one pool to the other."""
    count = jnp.array(OPENINGS)
    opened = jnp.where(allowed.opening, jnp.abs(count - (after.opened - before.opened)), jnp.max(count) + 1)
    read = jnp.clip(after.depth - before.depth, 1, MAX_ADVANCE)
    choice = jnp.where(before.live, jnp.where(after.active, 1 + read, 1), 0)
    return RoundAction(answer, jnp.argmin(opened).astype(jnp.int32), choice.astype(jnp.int32))


def clone(
    parameters: Parameters,
    demonstrations: Demonstrations,
    key: PRNGKeyArray,
    *,
    updates: int,
    batch: int = 512,
    learning_rate: float = 3e-3,
) -> tuple[Parameters, Float[Array, ""]]:
    """Makes decisions like the teachers' more likely, by Adam on their log-probability.

    Returns:
        The parameters, and the mean negative log-probability in the last tenth of the updates.
    """
    fitted, losses = _clone(
        parameters,
        demonstrations,
        key,
        updates=updates,
        batch=batch,
        rate=learning_rate,
    )
    return fitted, jnp.mean(losses[-max(1, updates // 10) :])


@functools.partial(jax.jit, static_argnames=("updates", "batch"))
def _clone(parameters, demonstrations, key, *, updates: int, batch: int, rate: float):
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, updates))
    count = demonstrations.action.answer.shape[0]

    def loss(parameters, rows):
        def of_row(row):
            return -HEAD.log_prob(apply_network(parameters, row.inputs, row.mask), row.action)

        return jnp.mean(jax.vmap(of_row)(rows))

    def update(carry, key):
        parameters, state = carry
        drawn = jax.random.randint(key, (batch,), 0, count)
        rows = jax.tree.map(lambda leaf: leaf[drawn], demonstrations)
        value, gradient = jax.value_and_grad(loss)(parameters, rows)
        change, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, change), state), value

    start = parameters, optimiser.init(parameters)
    (parameters, _), losses = jax.lax.scan(update, start, jax.random.split(key, updates))
    return parameters, losses


@dataclasses.dataclass(frozen=True)
class CloningSettings:
    """Settings of `warm_start`.

    Attributes:
        fits: times that `teachers.tune` is called; the teachers have the mean of its coefficients.
        generations: of `teachers.tune`.
        population: of `teachers.tune`.
        turns: times that the network learns: first from the teachers' episodes, then from its own, too.
        prices: values of γ, drawn for each turn, at which every question is played; see `draw_prices`.
        until_peak: cut episodes where their progress peaks, and keep the right ones; see `demonstrate`.
        updates: of `clone`, in each turn.
        learning_rate: of `clone`.
    """

    fits: int = 1
    generations: int = 150
    population: int = 32
    turns: int = 4
    prices: int = 16
    until_peak: bool = False
    updates: int = 5_000
    learning_rate: float = 6e-3

    def __post_init__(self):
        for name in ("fits", "generations", "population", "turns", "prices", "updates", "learning_rate"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)}, but it must be positive")


def warm_start(
    settings: CloningSettings,
    params: EnvParams,
    max_branches: int,
    hidden: int,
    key: PRNGKeyArray,
    on_progress: Callable[[int, float], None] | None = None,
) -> Parameters:
    """Parameters that play as tuned code controllers do, with weights of votes fitted to how episodes end.

    Args:
        settings: its settings.
        params: training questions, branch orders, the range of γ, and what counts as right.
        max_branches: branches that an episode can open.
        hidden: width of the network's layers.
        key: what everything is drawn with.
        on_progress: told of every generation of the teachers and its mean objective.
    """
    tuning, start, order, fit, votes = jax.random.split(key, 5)
    arena = Arena(params, max_branches)
    tune = functools.partial(
        teachers.tune,
        arena,
        generations=settings.generations,
        population=settings.population,
        on_progress=on_progress,
    )
    coefficients = np.mean([tune(each) for each in jax.random.split(tuning, settings.fits)], axis=0)
    questions = np.arange(params.matrix.num_questions)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    parameters, parts = initial_parameters(hidden, start), []
    for learnt, draw in enumerate(jax.random.split(fit, settings.turns)):
        for gamma in draw_prices(arena.gamma_range, settings.prices, rng):
            orders, labels = arena.draw(questions, rng)
            parts.append(
                demonstrate(
                    teachers.teacher(coefficients, gamma, arena.gamma_range),
                    gamma,
                    params.matrix,
                    orders,
                    questions,
                    labels if settings.until_peak else None,
                    parameters if learnt else None,
                )
            )
        # Joined once and for all: twice in memory would be gigabytes more.
        parts = [jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)]
        parameters, _ = clone(
            parameters,
            parts[0],
            draw,
            updates=settings.updates,
            learning_rate=settings.learning_rate,
        )
    return learn_votes(parameters, arena, votes)
