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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from autotts_jax.checks import check_int
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.recording import record
from autotts_jax.core.view import Action, StopReason
from autotts_jax.envs import EnvParams, observations
from autotts_jax.envs.observations import Before
from autotts_jax.errors import InputError
from autotts_jax.policies.cmc import CMC, CMCMemory
from autotts_jax.policies.neural.actions import HEADS, MAX_ADVANCE, OPENINGS, RoundAction, RoundMask
from autotts_jax.policies.neural.network import (
    Inputs,
    RecurrentState,
    SignalInput,
    encode,
    initial_state,
)
from autotts_jax.policies.neural.policy import Parameters, apply_network, decide, initial_parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.training import teachers
from autotts_jax.training.arena import Arena, draw_log_uniform
from autotts_jax.training.settings import MAX_SIZE, Settings
from autotts_jax.training.vote_weights import learn_vote_weights
from autotts_jax.typing import Array, Scalar

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
    teacher: CMC,
    gamma: float,
    matrix: ProbeMatrix,
    orders: BranchOrders,
    rows: Int[np.ndarray, " Q"],
    targets: Int[np.ndarray, " Q"] | None = None,
    player: Parameters | None = None,
    signal_inputs: tuple[SignalInput, ...] = (),
) -> Demonstrations:
    """Plays an episode on every question, and records what a teacher decides in it.

    Args:
        teacher: the teacher.
        gamma: γ, the price of an interval that the network is given.
        matrix: the probe matrix.
        orders: branch orders.
        rows: row of the orders that each question is played with.
        targets: the answer that counts as right in each episode. If they are given, each episode is cut where
            its progress peaks, at the first round in which its answer is worth most, and kept if that answer
            is right (MRT, arXiv 2503.07572, section 6).
        player: parameters of a network that plays in the teacher's place, its most likely actions, until it
            answers. The teacher is asked what it would decide in each round; it remembers the rounds before
            as if it had played them on the same branches.
        signal_inputs: the signals that the network reads.

    Returns:
        The demonstrations of all episodes, one after the other.
    """
    demonstrator = _Demonstrator(teacher, player, jnp.float32(gamma), signal_inputs)
    rounds, running = record(demonstrator, matrix, orders, rows, ROUNDS)
    demonstrations = rounds.demonstration
    if targets is not None:
        demonstrations, running = _until_peak(rounds, running, targets, jnp.float32(gamma))
    kept = np.asarray(running)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], demonstrations)


@jax.jit
def _until_peak(
    rounds: _Round, running: Bool[Array, "Q T"], targets: Int[Array, " Q"], gamma: Float[Array, ""]
) -> tuple[Demonstrations, Bool[Array, "Q T"]]:
    """Cuts episodes where their progress peaks, and keeps those that are right there."""
    right = (rounds.answer == targets[:, None]) & (rounds.answer != NONE)
    worth = jnp.where(running, right - gamma * rounds.cost, -jnp.inf)
    peak = jnp.argmax(worth, axis=1)[:, None]
    time = jnp.arange(running.shape[1])
    kept = running & (time <= peak) & jnp.take_along_axis(right, peak, axis=1)
    played = rounds.demonstration
    ends = played.action.answer | ((time == peak) & played.mask.answer)
    return played._replace(action=played.action._replace(answer=ends)), kept


class _Round(NamedTuple):
    """A round of an episode that is demonstrated.

    Attributes:
        demonstration: what the teacher decided.
        answer: the answer that it would have given before the round. Shape ().
        cost: Σ l_i before the round. Shape ().
    """

    demonstration: Demonstrations
    answer: Int[Array, ""]
    cost: Float[Array, ""]


class _Memory(NamedTuple):
    """What a demonstrator remembers.

    Attributes:
        teacher: what the teacher remembers.
        state: the network's recurrent state.
        before: what was seen at the last look.
        ending: whether the teacher has stopped, and so answers in the next round. Shape ().
    """

    teacher: CMCMemory
    state: RecurrentState
    before: Before
    ending: Bool[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Demonstrator:
    """A teacher whose decisions are recorded, opening and answering included; a player may act in its place.

    Attributes:
        teacher: the teacher.
        player: parameters of the network that acts in its place; None if the teacher acts itself.
        gamma: γ.
        signal_inputs: the signals that the network reads.
    """

    teacher: CMC
    player: Parameters | None
    gamma: Float[Array, ""]
    signal_inputs: tuple[SignalInput, ...] = dataclasses.field(metadata={"static": True})

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that the teacher and the network read."""
        return (*self.teacher.signals, *(signal.name for signal in self.signal_inputs))

    def begin(self, pool: ReplayPool) -> _Memory:
        """Opens nothing: that is the first decision."""
        view = pool.view()
        return _Memory(
            self.teacher.init(view)[0], initial_state(view.width), Before.of(view), jnp.bool_(False)
        )

    def round(self, memory: _Memory, pool: ReplayPool) -> tuple[_Memory, ReplayPool, _Round, Scalar]:
        """Asks the teacher for a decision, and carries it out or the player's own one."""
        view = pool.view()
        tracker = observations.track(memory.state.tracker, memory.before, view)
        state = memory.state._replace(tracker=tracker)
        inputs, state = encode(view, state, self.gamma, signal_inputs=self.signal_inputs)
        mask, first = HEAD.mask(view), view.opened == 0
        opened = pool.step(self.teacher.init(view)[1])
        later, moved, stop = self._round_of_teacher(memory.teacher, pool)
        teacher = _where(first, memory.teacher, later)
        after = _where(first, opened, moved)
        answer = view.answer_key(self.teacher.answer(memory.teacher, view).leader)
        decided = Demonstrations(inputs, mask, _action(mask, pool, after, memory.ending))
        ended = memory.ending
        if self.player is not None:
            action = decide(self.player, inputs, view)
            after, ended = pool.step(action), jnp.asarray(action.stop) != StopReason.RUNNING
        ending = ~first & (stop != StopReason.RUNNING)
        recorded = _Round(decided, answer, pool.intervals.astype(jnp.float32))
        return _Memory(teacher, state, Before.of(view), ending), after, recorded, ended

    def _round_of_teacher(
        self, memory: CMCMemory, pool: ReplayPool
    ) -> tuple[CMCMemory, ReplayPool, Int[Array, ""]]:
        """Plays a round as the paper has it: prunes, reads, votes, and then stops or opens."""
        memory, prune, advance = self.teacher.begin(memory, pool.view())
        pool = pool.step(Action(prune=prune, advance=advance))
        once = jnp.bool_(True), jnp.int32(1)
        memory, stop, opening = self.teacher.conclude(memory, pool.view(), *once)
        return memory, pool.step(Action(open=opening)), stop


def _where(condition: Bool[Array, ""], ours: Any, others: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), ours, others)


def _action(mask: RoundMask, before: ReplayPool, after: ReplayPool, answer: Bool[Array, ""]) -> RoundAction:
    """Finds the admissible action that comes nearest to what led from one state to the other."""
    count = jnp.array(OPENINGS)
    opened = jnp.where(mask.opening, jnp.abs(count - (after.opened - before.opened)), jnp.max(count) + 1)
    read = jnp.clip(after.depth - before.depth, 1, MAX_ADVANCE)
    live = before.active & ~before.finished
    choice = jnp.where(live, jnp.where(after.active, 1 + read, 1), 0)
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
def _clone(
    parameters: Parameters,
    demonstrations: Demonstrations,
    key: PRNGKeyArray,
    *,
    updates: int,
    batch: int,
    rate: float,
) -> tuple[Parameters, Array]:
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, updates))
    count = demonstrations.action.answer.shape[0]

    def loss(parameters: Parameters, rows: Demonstrations) -> Array:
        def of_row(row: Demonstrations) -> Array:
            return -HEAD.log_prob(apply_network(parameters, row.inputs, row.mask), row.action)

        return jnp.mean(jax.vmap(of_row)(rows))

    def update(carry: tuple[Parameters, Any], key: PRNGKeyArray) -> tuple[tuple[Parameters, Any], Array]:
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
            `draw_log_uniform`.
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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "until_peak" and not 0 < value < np.inf:
                raise InputError(f"{field.name} is {value}, but it must be positive")
        for name in ("fits", "population", "num_gammas"):
            check_int(name, getattr(self, name), 1, MAX_SIZE)


def fit_teachers(
    settings: WarmStartSettings,
    arena: Arena,
    key: PRNGKeyArray,
    on_generation: Callable[[int, float], None] | None = None,
) -> teachers.Coefficients:
    """Fits the coefficients of teachers several times.

    Args:
        settings: the settings.
        arena: the training questions.
        key: the key to draw candidates and episodes with.
        on_generation: called after every generation with its number and its mean objective.

    Returns:
        The mean of the fits.
    """
    tune = functools.partial(
        teachers.tune,
        arena,
        generations=settings.generations,
        population=settings.population,
        on_generation=on_generation,
    )
    return np.mean([tune(each) for each in jax.random.split(key, settings.fits)], axis=0)


def warm_start(
    settings: WarmStartSettings,
    params: EnvParams,
    max_branches: int,
    hidden: int,
    key: PRNGKeyArray,
    on_generation: Callable[[int, float], None] | None = None,
    signal_inputs: tuple[SignalInput, ...] = (),
) -> Parameters:
    """Fits a network to tuned code controllers, and the weights of its votes to how its episodes end.

    Args:
        settings: the settings.
        params: training questions, branch orders, the range of γ, and the targets.
        max_branches: branches that an episode can open.
        hidden: width of the network's layers.
        key: the key that everything is drawn with.
        on_generation: called after every generation of the teachers with its number and its mean objective.
        signal_inputs: the signals that the network reads.

    Returns:
        The network's parameters.
    """
    tuning, start, order, fit, votes = jax.random.split(key, 5)
    arena = Arena(params, max_branches)
    coefficients = fit_teachers(settings, arena, tuning, on_generation)
    questions = np.arange(params.matrix.num_questions)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    parameters, parts = initial_parameters(hidden, start, signals=len(signal_inputs)), []
    for iteration, draw in enumerate(jax.random.split(fit, settings.dagger_iterations)):
        for gamma in draw_log_uniform(*arena.gamma_range, settings.num_gammas, rng):
            rows = arena.draw_rows(questions, rng)
            parts.append(
                demonstrate(
                    teachers.teacher(coefficients, gamma, arena.gamma_range),
                    gamma,
                    arena.matrix,
                    arena.orders,
                    rows,
                    arena.targets[questions, rows] if settings.until_peak else None,
                    parameters if iteration else None,
                    signal_inputs,
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
    return learn_vote_weights(parameters, arena, votes, signal_inputs)
