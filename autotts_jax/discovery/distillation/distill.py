"""Distillation of a learned policy into a program.

What a network has learned may be simpler than the network. It labels the states of many episodes with its
decisions, and short rules are fitted to these labels, slot by slot. First the policy plays; then the program
does, and the policy says what it would have done, so that the program also learns how to go on after what it
does differently (DAgger, arXiv 1011.0686; VIPER, arXiv 1805.08328, does so for decision trees).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

import autotts_jax
from autotts_jax.checks import check_float, check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.core.controller import Family
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.discovery.distillation.decisions import PRUNE, Decisions, watch
from autotts_jax.discovery.distillation.fitting import Examples, fit
from autotts_jax.discovery.judging.judge import DIFFICULTY_STD, SEARCH_ORDERS
from autotts_jax.discovery.programs.interpreter import BETAS, DecisionList, decision_list
from autotts_jax.discovery.programs.published import cmc
from autotts_jax.discovery.programs.rules import (
    BRANCH_FEATURES,
    DECIMALS,
    HYPERPARAMETERS,
    POOL_FEATURES,
    Line,
    Program,
)
from autotts_jax.discovery.programs.source import commented, source_of
from autotts_jax.envs.difficulty import varied_orders
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import widest
from autotts_jax.policies.neural.network import QUICK, VOTE_INPUTS, VOTE_SCALE
from autotts_jax.policies.neural.policy import GAMMAS, NeuralPolicy, head_of
from autotts_jax.policies.neural.policy_file import SHIPPED, load_policy
from autotts_jax.policies.players import NEURAL
from autotts_jax.policies.rule_controller import Seen
from autotts_jax.replay import ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.terminal import printable
from autotts_jax.typing import Array

ITERATIONS = 5
"""Times that rules are fitted: first to what the policy does in its own episodes, then in the program's."""

NUM_BETAS = 8
"""Values of β at which every question is played in an iteration, one from each of as many parts of [0, 1]."""

NUM_GAMMAS = 25
"""Values of γ at which it is measured what the policy spends."""

GAMMA_LIMITS = 1e-9, None, 1.0
"""The least γ that can be distilled, no bound to exceed, and the largest: an interval for a whole answer."""

GENERATIONS = 250
"""Generations in which the clauses of a slot evolve in an iteration."""

EXAMPLES = 16_000
"""Examples that the clauses of a slot are fitted to."""

SURE = 4.0
"""Nats beyond which a decision matters no more, however sure it is."""

WINDOW = 4
"""Rounds over which momentum is measured."""

FITTED = ("stop", "open", "prune", "read")
"""The slots that are fitted. While it decides, the policy counts one vote for each finished branch."""


class VoteWeights(NamedTuple):
    """How much votes of finished branches count in the answer; the logarithm of a weight is linear.

    Attributes:
        depth: coefficient of the intervals that were read of the branch.
        log_depth: coefficient of their logarithm.
        streak: coefficient of the rounds since the branch's answer last changed.
    """

    depth: float
    log_depth: float
    streak: float

    @classmethod
    def of(cls, policy: NeuralPolicy) -> VoteWeights:
        """Returns the weights of a policy.

        Args:
            policy: the policy.
        """
        kernel = np.asarray(policy.parameters["of_vote"]["kernel"], float)[:, 0]
        of = dict(zip(VOTE_INPUTS, kernel, strict=True))
        scaled = of["depth"] / VOTE_SCALE, of["log_depth"], of["streak"] / VOTE_SCALE
        return cls(*(round(float(coefficient), DECIMALS) for coefficient in scaled))

    def method(self) -> str:
        """Writes the rule as a method."""
        terms = {
            "jnp.log(seen.depth)": self.log_depth,
            "seen.depth": self.depth,
            "seen.streak": self.streak,
        }
        total = " + ".join(f"{coefficient} * {of}" for of, coefficient in terms.items())
        return f'''    def weigh_answer(self, seen: Seen) -> jax.Array:
        """How much each branch's vote counts in the answer, as a share of the heaviest."""
        log = {total.replace("+ -", "- ")}
        return jnp.where(seen.ended, jnp.exp(log - jnp.max(log, where=seen.ended, initial=-jnp.inf)), 0)'''


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeighedList(DecisionList):
    """Plays a program, and weighs the votes in its answer.

    Attributes:
        votes: the weights.
    """

    votes: VoteWeights

    def weigh_answer(self, seen: Seen) -> Float[Array, " W"]:
        """How much each branch's vote counts in the answer, as `VoteWeights.method` writes it."""
        of = self.votes
        log = of.log_depth * jnp.log(seen.depth) + of.depth * seen.depth + of.streak * seen.streak
        return jnp.where(seen.ended, jnp.exp(log - jnp.max(log, where=seen.ended, initial=-jnp.inf)), 0)


@dataclasses.dataclass(frozen=True)
class Distilled:
    """What a policy was distilled into.

    Attributes:
        program: the rules, by which it decides.
        votes: how much votes count in the answer.
        gamma: γ that β = 1 and β = 0 stand for.
        origin: what it was made from, as lines of text.
    """

    program: Program
    votes: VoteWeights
    gamma: tuple[float, float]
    origin: tuple[str, ...]

    def controller(self, beta: float) -> WeighedList:
        """Makes the controller at β.

        Args:
            beta: β in [0, 1].

        Raises:
            InputError: β is out of range.
        """
        rules = decision_list(self.program, beta)
        fields = {field.name: getattr(rules, field.name) for field in dataclasses.fields(rules)}
        return WeighedList(**fields, votes=self.votes)

    def family(self, name: str = "rules") -> Family:
        """Makes the family of controllers over β.

        Args:
            name: its name in results.
        """
        return Family(name, BETAS, self.controller, "β")

    def source(self, name: str = "Rules") -> str:
        """Writes it as the source of a controller, which plays the same episodes.

        Args:
            name: the class's name.

        Raises:
            InputError: the name is not one of a class, or taken.
        """
        low, high = self.gamma
        stands = f"β = 0 stands for γ = {high:g}, β = 1 for γ = {low:g}; in between tokens grow evenly."
        doc = "A learned policy as rules."
        source = source_of(self.program, name, doc, [self.votes.method()])
        return f"{commented(*self.origin, stands)}\n{source}"


def distill(
    policy: NeuralPolicy | str | Path,
    data: ProbeDataset | str | Path | Sequence[str | Path] = "synthetic",
    *,
    gamma: tuple[float, float] | None = None,
    seed: int = 0,
    max_branches: int | None = None,
    iterations: int = ITERATIONS,
    on_iteration: Callable[[int], None] | None = None,
) -> Distilled:
    """Finds a program that decides as a learned policy does.

    The program at β = 0 stands for the policy at the largest γ, at β = 1 for that at the smallest. In between
    it stands for the γ at which the policy spends as much: its tokens grow evenly with β, as CMC's do. Gold
    answers serve to vary how difficult questions are, and nothing else.

    Args:
        policy: the policy, its file, the folder of a training run, or ``neural``, the policy that comes with
            the package.
        data: questions to play, best those that the policy was trained on: a dataset, or what
            `autotts_jax.load` takes.
        gamma: least and largest γ; None for those that the policy was trained for, by its card, or for 4e-6
            and 2e-4 where it has none.
        seed: seed of branch orders and of the search for rules.
        max_branches: W, as in `autotts_jax.evaluate`.
        iterations: times that rules are fitted.
        on_iteration: called after each with its number, from 1 on.

    Returns:
        The program with its vote weights, as ``controller(beta)``, ``family()`` or ``source()``.

    Raises:
        InputError: the policy cannot be read, reads signals, or takes atomic actions; or a number is out of
            range.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.discovery import distill
        >>> distilled = distill("neural", "smollm2", max_branches=8, iterations=1)
        >>> found = at.evaluate("smollm2", ["cmc", distilled.family()], max_branches=8, seeds=2)
    """
    refuse_forks()
    learned, card = (policy, {}) if isinstance(policy, NeuralPolicy) else _read(policy)
    if head_of(learned.parameters).environment(1).atomic:
        raise InputError(
            "the policy takes atomic actions, but a program decides in rounds; give a policy of rounds"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learned.parameters)):
        raise InputError("the policy's parameters are not all finite; train it again")
    if learned.signals:
        raise InputError(
            f"the policy reads the signals {', '.join(learned.signals)}, but a program reads none; give one "
            "that was trained without signals"
        )
    low, high = _trained_range(card) if gamma is None else _checked(gamma)
    iterations = check_int("iterations", iterations, 1)
    rng, data = np.random.default_rng(check_int("seed", seed, 0)), loaded(data)
    max_branches = widest(data, max_branches)
    data.check_probes("distill watches a policy that decides by")
    orders = varied_orders(data.matrix, SEARCH_ORDERS, DIFFICULTY_STD, seed).first(max_branches)

    gamma_of = even_spending(learned, data.matrix, orders, (low, high))

    def watched(program: Program, by_policy: bool) -> Iterator[Decisions]:
        for place in range(NUM_BETAS):
            beta = (place + rng.random()) / NUM_BETAS
            at = dataclasses.replace(learned, gamma=gamma_of(beta))
            rows = rng.integers(orders.num_rows, size=data.matrix.num_questions)
            yield watch(decision_list(program, beta), at, beta, data.matrix, orders, rows, by_policy)

    program, parts = _first_program(max_branches), list[Decisions]()
    best = {slot: [program.slot(slot)] for slot in FITTED}
    for iteration in range(iterations):
        # The joined arrays alone are kept: with the parts they would take gigabytes more.
        parts = [_joined([*parts, *watched(program, by_policy=iteration == 0)])]
        for slot, examples in examples_of(parts[0], rng).items():
            best[slot] = fit(examples, best[slot], GENERATIONS, rng)
        rules: dict[str, Any] = {slot: clauses[0] for slot, clauses in best.items()}
        hyperparameters = {**program.hyperparameters, "initial": _initial(parts[0], max_branches)}
        program = dataclasses.replace(program, hyperparameters=hyperparameters, **rules)
        if on_iteration:
            on_iteration(iteration + 1)
    cells = ", ".join(f"{cell.model}/{cell.benchmark}" for cell in data.cells)
    origin = (
        f"Distilled by autotts_jax {autotts_jax.__version__} from {_name(policy)}, seed {seed}, at most "
        f"{max_branches} branches.",
        f"Data: {printable(cells)}.",
    )
    return Distilled(program, VoteWeights.of(learned), (gamma_of(1.0), gamma_of(0.0)), origin)


def _name(policy: NeuralPolicy | str | Path) -> str:
    """What a source says that it comes from."""
    return "a policy in memory" if isinstance(policy, NeuralPolicy) else printable(str(policy))


def _read(policy: str | Path) -> tuple[NeuralPolicy, dict[str, Any]]:
    """Reads a policy by the name that `evaluate` knows it by, or from its path."""
    name = str(policy)
    return load_policy(SHIPPED if name == NEURAL else name.removeprefix(f"{NEURAL}:"))


def _trained_range(card: Mapping[str, Any]) -> tuple[float, float]:
    """The range of γ that a policy was trained for, where its card says it, or the package's own."""
    try:
        trained: Sequence[float] = card["config"]["objective"]["gamma"]
    except (KeyError, TypeError):  # a card can hold anything
        trained = GAMMAS[-1], GAMMAS[0]
    return _checked(trained)


def _checked(gamma: Sequence[float]) -> tuple[float, float]:
    """A range of γ."""
    if not isinstance(gamma, Sequence) or len(gamma) != 2:
        raise InputError(f"gamma is {gamma!r:.60}, but it must be two numbers, the least and the largest γ")
    ends = zip(("least", "largest"), gamma, strict=True)
    low, high = (check_float(f"the {end} γ", value, *GAMMA_LIMITS) for end, value in ends)
    if low >= high:
        raise InputError(f"gamma is {low:g} and {high:g}, but the first γ must be below the second")
    return low, high


def even_spending(
    policy: NeuralPolicy, matrix: ProbeMatrix, orders: BranchOrders, gamma: tuple[float, float]
) -> Callable[[float], float]:
    """Finds γ for each β, so that a policy's mean tokens grow evenly from the largest γ to the smallest.

    Returns:
        A function from β to γ.
    """
    low, high = gamma
    gammas = np.geomspace(high, low, NUM_GAMMAS)
    setting, question = (axis.reshape(-1) for axis in np.indices((NUM_GAMMAS, matrix.num_questions)))
    policies = [dataclasses.replace(policy, gamma=float(each)) for each in gammas]
    episodes = Episodes(question, question % orders.num_rows, setting)
    tokens = rollout(policies, matrix, orders, episodes).tokens.reshape(NUM_GAMMAS, -1).mean(axis=1)
    # Of the values of γ at which it spends as much, the largest counts.
    spent, at = np.unique(np.maximum.accumulate(tokens), return_index=True)
    share = (spent - spent[0]) / max(spent[-1] - spent[0], 1)
    return lambda beta: float(np.exp(np.interp(beta, share, np.log(gammas[at]))))


def _joined(parts: Iterable[Decisions]) -> Decisions:
    joined: Decisions = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return joined


def _first_program(max_branches: int) -> Program:
    """CMC's rules, with a moving average like the network's."""
    start = cmc()
    hyperparameters = {
        "max_branches": Line(min(max_branches, int(HYPERPARAMETERS["max_branches"].high))),
        "warm_up": Line(0),
        "alpha": Line(QUICK),
        "window": Line(WINDOW),
    }
    return dataclasses.replace(start, hyperparameters={**start.hyperparameters, **hyperparameters})


def _initial(seen: Decisions, max_branches: int) -> Line:
    """The line that comes nearest to how many branches the policy opens first."""
    first = np.flatnonzero(seen.at_end[:, list(POOL_FEATURES).index("opened")] == 0)
    beta, at = np.unique(seen.beta[first], return_index=True)  # it opens as many for each question
    opened = np.log(np.maximum(seen.opening[first[at]], 1))
    ends = np.arange(1, 1 + min(max_branches, int(HYPERPARAMETERS["initial"].high)))
    lines = ends[:, None, None] + (ends[None, :, None] - ends[:, None, None]) * beta
    errors = np.square(np.log(lines) - opened).sum(axis=-1)
    at_0, at_1 = (int(ends[place]) for place in np.unravel_index(np.argmin(errors), errors.shape))
    return Line(at_0, at_1 - at_0)


def examples_of(seen: Decisions, rng: np.random.Generator) -> dict[str, Examples]:
    """Turns decisions into examples for each slot of `FITTED`."""
    row, branch = np.nonzero(seen.live & ~seen.answers[:, None])
    reads = seen.choice[row, branch] != PRUNE

    def of_pool(slot: str, kept: Bool[np.ndarray, " N"], value: np.ndarray, weight: np.ndarray) -> Examples:
        at = _some(np.flatnonzero(kept), rng)
        features = dict(zip(POOL_FEATURES, seen.at_end[at].T, strict=True))
        return Examples(slot, features, seen.beta[at], value[at].astype(np.float32), weight[at])

    def of_branches(
        slot: str,
        row: Int[np.ndarray, " E"],
        branch: Int[np.ndarray, " E"],
        value: np.ndarray,
        margin: Float[np.ndarray, "N W"],
    ) -> Examples:
        at = _some(np.arange(len(row)), rng)
        row, branch = row[at], branch[at]
        features = dict(zip(BRANCH_FEATURES, seen.branches[row, :, branch].T, strict=True))
        features |= dict(zip(POOL_FEATURES, seen.at_start[row].T, strict=True))
        weight = np.minimum(margin[row, branch], SURE)
        return Examples(slot, features, seen.beta[row], value[at].astype(np.float32), weight)

    return {
        "stop": of_pool("stop", seen.concludes, seen.answers, np.minimum(seen.answer_margin, SURE)),
        "open": of_pool("open", seen.concludes & ~seen.answers, seen.opening, np.ones_like(seen.beta)),
        "prune": of_branches("prune", row, branch, ~reads, seen.prune_margin),
        "read": of_branches(
            "read",
            row[reads],
            branch[reads],
            (seen.choice[row, branch] - PRUNE)[reads],
            seen.read_margin,
        ),
    }


def _some(places: Int[np.ndarray, " P"], rng: np.random.Generator) -> Int[np.ndarray, " E"]:
    """Draws `EXAMPLES` of some places, or takes all where there are fewer."""
    return rng.permutation(places)[:EXAMPLES]
