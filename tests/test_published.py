"""Published controllers without a released evaluator: every episode against a few lines over plain lists."""

from __future__ import annotations

import csv
import functools
import math
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from plain_lists import NOBODY, Outcome, majority

import autotts_jax as at

RESULTS = Path(__file__).parents[1] / "docs" / "reference" / "results.md"
WIDTH = 64
POINTS = np.linspace(0, 2 * WIDTH, 4001)


class Branch(NamedTuple):
    """A recorded branch: its answer at each depth, the last of which is final, and its tokens."""

    answers: list[int]
    tokens: int


class Gamma(NamedTuple):
    """A gamma variable at `POINTS`."""

    density: np.ndarray
    below: np.ndarray


def short_m(m, branches, interval):
    until = sorted(len(branch.answers) for branch in branches)[m - 1]
    finished = [branch.answers for branch in branches if len(branch.answers) <= until]
    answer = majority(answers[-1] for answers in sorted(finished, key=len))
    if answer == NOBODY:
        answer = majority(branch.answers[:until][-1] for branch in branches)
    tokens = [
        max(interval * (len(branch.answers) - 1), branch.tokens)
        if len(branch.answers) <= until
        else interval * until
        for branch in branches
    ]
    return Outcome(answer, sum(tokens), max(tokens), len(branches))


def one_by_one(stops, branches, _interval):
    """``stops`` is given the votes for each answer, largest first."""
    return on_answers(lambda finals: stops(tuple(sorted(Counter(finals).values(), reverse=True))), branches)


def on_answers(stops, branches, _interval=None):
    read, finals = [], []
    for branch in branches:
        read.append(branch)
        if branch.answers[-1] != NOBODY:
            finals.append(branch.answers[-1])
        if finals and stops(finals):
            break
    tokens = sum(branch.tokens for branch in read)
    return Outcome(majority(finals), tokens, tokens, len(read))


def doubling(branches, _interval):
    read, sequential = [], 0
    while len(read) < len(branches):
        step = branches[len(read) : 2 * len(read) or 2]
        read, sequential = read + step, sequential + max(branch.tokens for branch in step)
        finals = [branch.answers[-1] for branch in read if branch.answers[-1] != NOBODY]
        if finals and max(Counter(finals).values()) >= 0.75 * len(finals):
            break
    return Outcome(majority(finals), sum(branch.tokens for branch in read), sequential, len(read))


def sprt(counts, p1=0.5001, alpha=0.05, beta=0.949976):
    first, second = [*counts, 0][:2]
    ratio = first * math.log(p1 / 0.5) + second * math.log((1 - p1) / 0.5)
    return ratio >= math.log((1 - beta) / alpha) or ratio <= math.log(beta / (1 - alpha))


def dirichlet(counts):
    return sum(counts) > 1 and leads(tuple([*counts, 0][: max(2, min(5, len(counts)))])) >= 0.95


@functools.cache
def leads(counts):
    """The probability that the first of gamma variables is the largest."""
    first, *others = (gamma(count + 1) for count in counts)
    return scipy.integrate.trapezoid(first.density * math.prod(other.below for other in others), POINTS)


@functools.cache
def gamma(shape):
    variable = scipy.stats.gamma(shape)
    return Gamma(variable.pdf(POINTS), variable.cdf(POINTS))


@functools.cache
def entropy(counts):
    compared = counts if len(counts) > 1 else (*counts, 1)
    # `scipy.stats.entropy` mostly inspects its arguments, 190,000 times.
    nats = scipy.special.entr(np.divide(compared, sum(compared))).sum()
    return sum(counts) > 1 and nats / math.log(len(compared)) <= 0.75


def share(counts):
    return sum(counts) > 1 and counts[0] / sum(counts) >= 0.8


def certified(finals, epsilon=0.05):
    won, lost, others = bets(tuple(finals))
    return min(paid(won, lost), paid(won, others)) >= 1 / epsilon


@functools.lru_cache(maxsize=2 * WIDTH)
def bets(finals):
    """Each answer is a bet on the one that led before it, against the runner-up and against the others."""
    if len(finals) < 2:
        return 0, 0, 0
    won, lost, others = bets(finals[:-1])
    (leader, _), *rest = Counter(finals[:-1]).most_common()
    second = [answer for answer, _ in rest[:1]]
    outcome = finals[-1] == leader, finals[-1] in second, finals[-1] not in (leader, *second)
    return won + outcome[0], lost + outcome[1], others + outcome[2]


@functools.cache
def paid(won, lost):
    return scipy.integrate.quad(lambda share: 2 * (2 * share) ** won * (2 - 2 * share) ** lost, 0.5, 1)[0]


@functools.cache
def best_of_infinity(counts, threshold=100):
    leader, *others = (gamma(shape) for shape in (*counts, 0.3))
    above = 1 - math.prod(other.below for other in others)
    doubt = scipy.integrate.trapezoid(leader.density * above, POINTS)
    return len(counts) * (1 - doubt) / doubt >= threshold


RULES = {
    "short-m": lambda k: functools.partial(short_m, max(1, round(k / 4))),
    "first-finish": lambda _: functools.partial(short_m, 1),
    "sprt": lambda _: functools.partial(one_by_one, sprt),
    "asc-dirichlet": lambda _: functools.partial(one_by_one, dirichlet),
    "asc-entropy": lambda _: functools.partial(one_by_one, entropy),
    "asc-majority": lambda _: functools.partial(one_by_one, share),
    "best-of-infinity": lambda _: functools.partial(one_by_one, best_of_infinity),
    "certified-majority": lambda _: functools.partial(on_answers, certified),
    "doubling-sc": lambda _: doubling,
}
"""By the names of families: the play of a member on branches in the order in which they are opened, and Δ."""


def recorded(matrix, question):
    """The branches of a question as lists."""
    columns = (matrix.answers[question], matrix.lengths[question], matrix.tokens[question])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Branch(answers[: length + 1], tokens) for answers, length, tokens in rows]


def assert_episodes_equal(data, evaluation, seeds):
    """Every episode of an evaluation is the one that the lists give."""
    for q, question in enumerate(data.questions):
        branches, interval = recorded(data.matrix, q), int(data.matrix.interval[q])
        number = data.cells[data.matrix.cell[q]].num_branches
        orders = [list(range(number)) for _ in range(seeds)]
        for seed, order in enumerate(orders):
            random.Random(seed).shuffle(order)
        for play in evaluation.plays:
            family, value = play.player.name, play.player.values[0]
            play_list = RULES[family](value)
            theirs = [play_list([branches[b] for b in order[: int(value)]], interval) for order in orders]
            expected = [(question.answer(outcome.answer), *outcome[1:]) for outcome in theirs]
            columns = (play.answer, play.tokens, play.sequential_tokens, play.branches)
            ours = list(zip(*(column[0, :, q].tolist() for column in columns), strict=True))
            assert ours == expected, f"{family}@{value}, question {q}"


@pytest.mark.slow
def test_every_embedded_episode_equals_that_of_plain_lists():
    data = at.load("smollm2")
    players = [f"{family}@{branches}" for family in RULES for branches in (4, 16)]
    assert_episodes_equal(data, at.evaluate(data, players, seeds=4, max_branches=16), 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic", pytest.param("smollm2", marks=pytest.mark.nightly)])
def test_every_episode_of_64_branches_equals_that_of_plain_lists(name):
    data = at.load(name)
    evaluation = at.evaluate(data, [f"{family}@{WIDTH}" for family in RULES], seeds=2)
    assert_episodes_equal(data, evaluation, 2)


@pytest.mark.nightly
@pytest.mark.shipped
def test_every_recorded_episode_equals_that_of_plain_lists_and_the_page(released):
    evaluation = at.evaluate(released, [f"{family}@{WIDTH}" for family in RULES])
    assert_episodes_equal(released, evaluation, 100)
    printed, sequential = page_figures(), {}
    for row in evaluation.rows:
        shown = f"{100 * row.accuracy:.1f} / {row.tokens / 1000:.0f}k"
        assert printed[row.benchmark.upper(), row.name][row.model.partition(" ")[0]] == shown, row.name
        sequential[row.name] = row.sequential_tokens
    assert sequential["sprt@64"] > 20 * sequential["short-m@64"], "for the mean of models, which is last"


def page_figures():
    """The page's table, for the mean of models, and the file beside it, by benchmark and controller."""
    figures = defaultdict(dict)
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        if row := re.fullmatch(r"\| (\S+@\S+) \| (.*k) \| (.*k) \|", line):
            figures["AIME24", row[1]]["mean"], figures["AIME25", row[1]]["mean"] = row[2], row[3]
    with RESULTS.with_suffix(".csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            shown = f"{row['accuracy_percent']} / {row['ktokens']}k"
            figures[row["benchmark"], row["controller"]][row["model"]] = shown
    return figures
