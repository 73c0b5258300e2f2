"""Warm start: behaviour cloning of code controllers, and dataset aggregation.

Teachers play recorded questions, each at a γ, and a network that is given the γ learns to decide as they did.
Then the network plays, and learns what its teachers would have decided in the states that it reached (DAgger,
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
from autotts_jax.envs import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import HEADS, MAX_ADVANCE, OPENINGS, RoundAction, RoundMask
from autotts_jax.policies.neural.network import Inputs, encode, initial_state, update
from autotts_jax.policies.neural.policy import Parameters, act, apply_network, initial_parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.training import teachers
from autotts_jax.training.arena import Arena, draw_gammas
from autotts_jax.training.settings import Settings
from autotts_jax.training.vote_weights import learn_vote_weights
from autotts_jax.typing import Array

ROUNDS = 96
"""Rounds of an episode that are demonstrated."""

HEAD = HEADS["rounds"]
"""Teachers decide in rounds. A policy of atomic actions does not see how far a round has got."""


class Demonstrations(NamedTuple):
    """What teachers decided, one entry a round; every leaf has a leading axis of length D.

    Attributes:
        inputs: the network's inputs.
        mask: what was admissible.
        action: what the teacher decided.
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
    targets: Int[Array, " E"] | None = None,
    player: Parameters | None = None,
) -> Demonstrations:
    """Plays episodes, and records what a teacher decides in them.

    Args:
        teacher: the teacher.
        gamma: γ, the price of an interval that the network is given.
        matrix: the probe matrix.
        orders: branches of each episode in opening order.
        questions: question of each episode.
        targets: the answer that counts as right in each episode. If they are given, each episode is cut where
            its progress peaks, at the first round in which its answer is worth most, and kept if that answer
            is right (MRT, arXiv 2503.07572, section 6).
        player: parameters of a network that plays in the teacher's place, its most likely decisions, until it
            answers. The teacher is asked what it would decide in each round; it remembers the rounds before
            as if it had played them on the same branches.

    Returns:
        The demonstrations of all episodes, one after the other.
    """
    played, kept = _demonstrate(
        teacher,
        matrix,
        orders,
        questions,
        targets,
        player,
        jnp.float32(gamma),
        kind=kind_of(teacher),
    )
    kept = np.asarray(kept)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], played)


@functools.partial(jax.jit, static_argnames="kind")
def _demonstrate(teacher, matrix, orders, questions, targets, player, gamma, *, kind):  # noqa: ARG001
    play = functools.partial(_play, teacher, matrix, player, gamma)
    played, running, answers, cost = jax.vmap(play)(orders, questions)
    if targets is not None:
        right = (answers == targets[:, None]) & (answers != NONE)
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
    """Plays an episode.

    Returns:
        For each round what was decided, whether the episode had not ended, the answer it had, and its cost.
    """
    empty = ReplayPool.begin(matrix, question, order)
    memory, opened = teacher.start(empty)

    def step(carry, round_):
        memory, pool, state, stop = carry
        inputs, state = encode(pool, state, gamma)
        began = round_ == 0
        later, moved, ending = teacher.round(memory, pool)
        memory_after = _select(began, memory, later)
        after = _select(began, opened, moved)
        answers = (stop != StopReason.RUNNING) & ~began
        answer = winner(pool, teacher.vote(memory, pool))
        mask = HEAD.mask(pool)
        row = (
            Demonstrations(inputs, mask, _action(mask, pool, after, answers)),
            stop != StopReason.EXHAUSTED,
            answer,
            jnp.sum(pool.depth, dtype=jnp.float32),
        )
        ended = answers
        if player is not None:
            after, ended = act(player, inputs, pool)
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
        return (memory_after, after, update(state, pool, after), stop), row

    start = (memory, empty, initial_state(empty.width), jnp.int32(StopReason.RUNNING))
    return jax.lax.scan(step, start, jnp.arange(ROUNDS))[1]


def _select(first, ours, other):
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), ours, other)


def _action(mask: RoundMask, before: ReplayPool, after: ReplayPool, answer: Bool[Array, ""]) -> RoundAction:
    """Finds the admissible action that comes nearest to what led from one pool to the other."""
    count = jnp.array(OPENINGS)
    opened = jnp.where(mask.opening, jnp.abs(count - (after.opened - before.opened)), jnp.max(count) + 1)
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
    """Makes the demonstrated decisions more likely, by Adam on their log-probability.

    Args:
        parameters: the network's parameters.
        demonstrations: the decisions.
        key: the key to draw batches with.
        updates: gradient steps.
        batch: decisions in a gradient step.
        learning_rate: learning rate at first; it decays to zero along a cosine.

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
class WarmStartSettings(Settings):
    """Settings of `warm_start`.

    Attributes:
        fits: times that the teachers' coefficients are fitted by `teachers.tune`; they are averaged.
        generations: generations of each fit.
        population: candidates of each generation.
        dagger_iterations: times that the network learns: first from the teachers' episodes, then from its own
            as well.
        num_gammas: values of γ, drawn anew in each iteration, at which every question is played; see
            `draw_gammas`.
        until_peak: cut episodes where their progress peaks, and keep the right ones; see `demonstrate`.
        updates: gradient steps of each iteration.
        learning_rate: learning rate of the gradient steps; see `clone`.
    """

    fits: int = 1
    generations: int = 150
    population: int = 32
    dagger_iterations: int = 4
    num_gammas: int = 16
    until_peak: bool = False
    updates: int = 5_000
    learning_rate: float = 6e-3

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "until_peak" and not 0 < value < np.inf:
                raise InputError(f"{field.name} is {value}, but it must be positive")


def warm_start(
    settings: WarmStartSettings,
    params: EnvParams,
    max_branches: int,
    hidden: int,
    key: PRNGKeyArray,
    on_generation: Callable[[int, float], None] | None = None,
) -> Parameters:
    """Fits a network to tuned code controllers, and the weights of its votes to how its episodes end.

    Args:
        settings: the settings.
        params: training questions, branch orders, the range of γ, and the targets.
        max_branches: branches that an episode can open.
        hidden: width of the network's layers.
        key: the key that everything is drawn with.
        on_generation: called after every generation of the teachers with its number and its mean objective.

    Returns:
        The network's parameters.
    """
    tuning, start, order, fit, votes = jax.random.split(key, 5)
    arena = Arena(params, max_branches)
    tune = functools.partial(
        teachers.tune,
        arena,
        generations=settings.generations,
        population=settings.population,
        on_generation=on_generation,
    )
    coefficients = np.mean([tune(each) for each in jax.random.split(tuning, settings.fits)], axis=0)
    questions = np.arange(params.matrix.num_questions)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    parameters, parts = initial_parameters(hidden, start), []
    for iteration, draw in enumerate(jax.random.split(fit, settings.dagger_iterations)):
        for gamma in draw_gammas(arena.gamma_range, settings.num_gammas, rng):
            orders, targets = arena.draw(questions, rng)
            parts.append(
                demonstrate(
                    teachers.teacher(coefficients, gamma, arena.gamma_range),
                    gamma,
                    params.matrix,
                    orders,
                    questions,
                    targets if settings.until_peak else None,
                    parameters if iteration else None,
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
    return learn_vote_weights(parameters, arena, votes)
