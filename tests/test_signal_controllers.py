"""Controllers that read signals or leave branches early: every episode against lines over plain lists."""

import dataclasses
import functools
import itertools
import math
import random
import statistics
from collections import defaultdict
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from plain_lists import NOBODY, Outcome, majority

import autotts_jax as at
from autotts_jax.collect import LocalWorkers, Plan, Problem, Sampling, SimulatedEngine, collect
from autotts_jax.errors import InputError
from autotts_jax.experiments.tracing import describe_steps
from autotts_jax.live.published import PUBLISHED
from autotts_jax.policies import (
    CISC,
    CONTROLLERS,
    DEER,
    EAT,
    AdaptiveConsistency,
    BestOfN,
    DeepConf,
    DeepConfOffline,
    Dynasor,
    EarlyStopping,
    ESCoT,
    ParallelProbe,
    SelfConsistency,
    ShortM,
    WeightedMajority,
)
from autotts_jax.replay import SYNTHETIC_MODELS, cell_statistics, synthetic
from autotts_jax.replay.generator import SIGNALS


class Branch(NamedTuple):
    """A recorded branch: its answer and signals at each depth, the last of which is final, and its tokens."""

    answers: list[int]
    signals: dict[str, list[float]]
    tokens: int

    def charged(self, depth, interval):
        """Tokens when it was read depth by depth."""
        last = len(self.answers) - 1
        return interval * depth if depth <= last else max(interval * last, self.tokens)


def weighed(votes):
    """The heaviest of the answers in pairs with weights, those of nobody left out."""
    sums = defaultdict(float)
    for answer, weight in votes:
        if answer != NOBODY:
            sums[answer] += weight
    return max(sums, key=sums.get, default=NOBODY)


def in_full(branches, answer):
    tokens = [branch.tokens for branch in branches]
    return Outcome(answer, sum(tokens), max(tokens), len(branches))


def cisc(temperature, branches, _interval):
    sure = [(one.answers[-1], math.exp(one.signals["logprob_mean"][-1])) for one in branches]
    most = max(p for _, p in sure)
    return in_full(branches, weighed((answer, math.exp((p - most) / temperature)) for answer, p in sure))


def weighted_majority(branches, _interval):
    sums = defaultdict(lambda: (0, 0))  # of equally heavy answers the more frequent one wins
    for one in branches:
        score, count = sums[one.answers[-1]]
        sums[one.answers[-1]] = score + one.signals["score"][-1], count + 1
    sums.pop(NOBODY, None)
    return in_full(branches, max(sums, key=sums.get, default=NOBODY))


def best_of_n(branches, _interval):
    scored = [(one.signals["score"][-1], one.answers[-1]) for one in branches if one.answers[-1] != NOBODY]
    best = max(scored, default=(0, NOBODY))[0]
    return in_full(branches, majority(answer for score, answer in scored if score == best))


def deepconf_offline(keep, branches, _interval):
    votes = [(one.answers[-1], one.signals["conf_tail"][-1]) for one in branches]
    scores = [score for answer, score in votes if answer != NOBODY]
    bar = np.percentile(scores or [0], 100 - keep)
    return in_full(branches, weighed((answer, score) for answer, score in votes if score >= bar))


def deepconf(keep, warm_up, branches, interval):
    first, others = branches[:warm_up], branches[warm_up:]
    least = [min(one.signals["conf_low"]) for one in branches]
    bar = np.percentile(least[:warm_up], 100 - keep)
    read = [len(one.answers) for one in first]
    for one in others:
        low = [depth for depth, conf in enumerate(one.signals["conf_low"], 1) if conf < bar]
        read.append(min([*low, len(one.answers)]))
    tokens = [one.charged(depth, interval) for one, depth in zip(branches, read, strict=True)]
    votes = [(one.answers[-1], score) for one, score in zip(branches, least, strict=True) if score >= bar]
    sequential = max(tokens[:warm_up]) + max(tokens[warm_up:], default=0)
    return Outcome(weighed(votes), sum(tokens), sequential, len(branches))


def early_exit(settled, branches, interval):
    read = [
        next(
            depth
            for depth in range(1, len(one.answers) + 1)
            if depth == len(one.answers) or settled(one, depth)
        )
        for one in branches
    ]
    tokens = [one.charged(depth, interval) for one, depth in zip(branches, read, strict=True)]
    answer = majority(one.answers[depth - 1] for one, depth in zip(branches, read, strict=True))
    return Outcome(answer, sum(tokens), max(tokens), len(branches))


def agree(bar, branch, depth):
    last = branch.answers[:depth][-bar:]
    hedges = branch.signals["probe_hedge"][:depth][-bar:]
    return last == [last[0]] * bar and last[0] != NOBODY and not any(hedges)


def sure(threshold, branch, depth):
    return branch.signals["probe_p_geo"][depth - 1] > threshold


def calm(delta, branch, depth):
    first, *others = branch.signals["eat"][:depth]
    mean, variance = first, 0
    for entropy in others:
        mean = 0.2 * entropy + 0.8 * mean
        variance = 0.2 * (entropy - mean) ** 2 + 0.8 * variance
    return depth > 8 and variance < delta


def jumps(least, branch, depth):
    runs = [(answer, len(list(run))) for answer, run in itertools.groupby(branch.answers[:depth])]
    *before, jump = np.diff([0, *(length for _, length in runs)]).tolist()
    return runs[-1][0] != NOBODY and jump >= least and exceeds(before, jump)


def exceeds(before, jump):
    """A one-sided t-test at 5 %, left out where there are fewer than two observations."""
    if len(before) < 2 or jump > max(before) == min(before):
        return True
    error = statistics.stdev(before) / math.sqrt(len(before))
    return error > 0 and scipy.stats.t.sf((jump - statistics.mean(before)) / error, len(before) - 1) < 0.05


def early(rule, *constants):
    return functools.partial(early_exit, functools.partial(rule, *constants))


PLAYED = {
    CISC(16): functools.partial(cisc, 0.1),
    CISC(16, 1e-3): functools.partial(cisc, 1e-3),
    DeepConfOffline(16): functools.partial(deepconf_offline, 10),
    DeepConfOffline(8, 90.0): functools.partial(deepconf_offline, 90),
    DeepConf(24): functools.partial(deepconf, 10, 16),
    DeepConf(24, 90.0, 8): functools.partial(deepconf, 90, 8),
    DeepConf(4): functools.partial(deepconf, 10, 16),
    Dynasor(1, 3): early(agree, 3),
    Dynasor(6, 2): early(agree, 2),
    DEER(1): early(sure, 0.95),
    DEER(6, 0.8): early(sure, 0.8),
    EAT(1, 0.1): early(calm, 0.1),
    EAT(6, 0.03): early(calm, 0.03),
    ESCoT(1): early(jumps, 10),
    ESCoT(6, 2): early(jumps, 2),
    WeightedMajority(16): weighted_majority,
    BestOfN(16): best_of_n,
}
"""By controllers: the play that each is to equal, on branches in opening order, and Δ."""


def recorded(matrix, question):
    """The branches of a question as lists."""
    rows = zip(matrix.answers[question], matrix.lengths[question], matrix.tokens[question], strict=True)
    return [
        Branch(
            answers[: length + 1].tolist(),
            {name: values[question, b, : length + 1].tolist() for name, values in matrix.signals.items()},
            int(tokens),
        )
        for b, (answers, length, tokens) in enumerate(rows)
    ]


def assert_episodes_equal(data, seeds, controllers):
    """Every episode of the controllers is the one that the lists give."""
    evaluation = at.evaluate(data, controllers, seeds=seeds, max_branches=24)
    for q, question in enumerate(data.questions):
        branches, interval = recorded(data.matrix, q), int(data.matrix.interval[q])
        orders = [list(range(len(branches))) for _ in range(seeds)]
        for seed, order in enumerate(orders):
            random.Random(seed).shuffle(order)
        for controller, play in zip(controllers, evaluation.plays, strict=True):
            opened = [[branches[b] for b in order[: controller.branches]] for order in orders]
            theirs = [PLAYED[controller](some, interval) for some in opened]
            expected = [(question.answer(outcome.answer), *outcome[1:]) for outcome in theirs]
            columns = (play.answer, play.tokens, play.sequential_tokens, play.branches)
            ours = list(zip(*(column[0, :, q].tolist() for column in columns), strict=True))
            assert ours == expected, f"{controller}, question {q}"


def with_scores(data):
    """Adds a score of each branch, coarse so that some are equal, and none below 0."""
    matrix = data.matrix
    score = np.round(4 * np.abs(np.asarray(matrix.signals["logprob_mean"], np.float32)))
    return data.with_signals({**matrix.signals, "score": score.astype(np.float16)})


@pytest.fixture(scope="module")
def data():
    made = synthetic(seed=2, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=True)
    return with_scores(made)


@pytest.mark.parametrize(
    "controller",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (type(one) is type(before)))
        for before, one in itertools.pairwise((None, *PLAYED))
    ],
    ids=str,
)
def test_every_episode_equals_that_of_plain_lists(controller, data):
    assert_episodes_equal(data, 4, [controller])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["exact", pytest.param("equiv", marks=pytest.mark.nightly)])
def test_every_synthetic_episode_equals_that_of_plain_lists(encoding):
    data = with_scores(at.load("synthetic-signals"))
    if encoding == "equiv":  # branches without an answer
        data = at.replay.merge_equivalent(data)
    assert_episodes_equal(data, 5, list(PLAYED))


NAMES = [name for name, family in CONTROLLERS.items() if family.make(family.values[0]).signals]


def test_signals_are_read_by_these_alone():
    own = ["cisc", "deepconf-offline", "deepconf", "dynasor", "deer", "eat"]
    assert [*own, "weighted-majority", "best-of-n"] == NAMES
    assert set(CONTROLLERS) - set(PUBLISHED) == {"dynasor", "weighted-majority", "best-of-n"}


@pytest.mark.slow
def test_a_family_decides_by_its_value(data):
    for name in ("dynasor", "deer", "eat", "es-cot"):
        evaluation = at.evaluate(data, name, seeds=2, max_branches=1)
        tokens = [row.tokens for row in evaluation.rows]
        assert tokens == sorted(tokens), name
        assert tokens[0] < tokens[-1], name


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("deer@1", "the probability is 1, but it must be at least 0 and below 1"),
        ("eat@0", "δ is 0.0, but it must be a finite number above 0"),
        ("dynasor@1.5", "the patience is 1.5"),
        ("deepconf@0", "the number of branches is 0"),
    ],
)
def test_values_that_families_do_not_have(spec, problem, data):
    with pytest.raises(InputError, match=problem):
        at.evaluate(data, spec, seeds=1)


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        (
            CISC(8, temperature=0.0),
            r"^CISC.temperature is 0.0, but it must be a finite number of at least 1e-06$",
        ),
        (
            DeepConfOffline(8, keep=150),
            r"^DeepConfOffline.keep is 150, .* number .* at most 100$",
        ),
        (DeepConf(8, keep=math.nan), r"^DeepConf.keep is nan; give a number$"),
        (DeepConf(8, warm_up=0), r"^DeepConf.warm_up is 0, .* of at least 1$"),
        (ShortM(4, np.array(-3)), r"^ShortM.quorum is -3, .* of at least 1$"),
        (CISC(8, jnp.float32(jnp.nan)), r"^CISC.temperature is nan; give a number$"),
        (DEER(4, 1.5), r"^DEER.threshold is 1.5, .* of at least 0 and at most 1$"),
        (EAT(4, 0.1, rate=2), r"^EAT.rate is 2, .* above 0 and at most 1$"),
        (EAT(4, -0.1), r"^EAT.threshold is -0.1, .* above 0$"),
        (EAT(4, 0.1, warm_up=-3), r"^EAT.warm_up is -3, .* of at least 0$"),
        (Dynasor(4, 0), r"^Dynasor.bar is 0, .* of at least 1$"),
        (ShortM(4, 0), r"^ShortM.quorum is 0, .* of at least 1$"),
        (ShortM(4, 2.5), r"^ShortM.quorum is 2.5, but it must be an integer$"),
        (SelfConsistency(0), r"^SelfConsistency.branches is 0, .* of at least 1$"),
        (SelfConsistency(np.int64(2**33)), r"^SelfConsistency.branches is 8589934592, .* int32 holds$"),
        (AdaptiveConsistency(4.0), r"^AdaptiveConsistency.branches is 4.0, .* an integer$"),
        (EarlyStopping(8, window=0), r"^EarlyStopping.window is 0, .* of at least 1$"),
        (ParallelProbe(jnp.float32(8)), r"^ParallelProbe.branches is 8.0, .* an integer$"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(controller, problem, data):
    with pytest.raises(InputError, match=problem):
        at.evaluate(data, controller, seeds=1, max_branches=8)
    with pytest.raises(InputError, match=problem):
        at.trace(data, controller, max_branches=8)


def test_a_branch_that_is_left_before_the_answer_is_seen_to_vote(data):
    trace = at.trace(data, DEER(1, 0.0), max_branches=8)
    assert [step.decision.action for step in trace.steps] == ["open", "prune", "answer"]
    assert [list(step.votes.items()) for step in trace.steps] == [[(trace.answer, 1)]] * 3


def test_rounds_with_other_signals_share_no_line(data):
    trace = at.trace(data, EAT(1, 1e-9), max_branches=8)
    shown = {f"{value:.3g}" for value in trace.signals["eat"][0]}
    lines = [line[-1] for line in describe_steps(trace.steps)]
    assert shown == set(lines)


def test_data_without_signals_are_refused():
    with pytest.raises(
        InputError, match="deer reads the signal probe_p_geo, and the data has none; use data"
    ):
        at.evaluate(at.load("smollm2"), "deer@0.9", seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 20_000])
def test_a_budget_leaves_an_answer(budget, data):
    for controller in (DeepConf(24), DEER(6)):
        evaluation = at.evaluate(data, controller, seeds=2, max_branches=24, budget=budget)
        (play,) = evaluation.plays
        assert (play.tokens <= budget).all()
        opened = play.branches > 0
        assert all(answer is not None for answer in play.answer[opened])


# --- the data that they are tried on


def test_synthetic_signals_change_nothing_else():
    plain, shown = at.load("synthetic"), at.load("synthetic-signals")
    for name in ("answers", "lengths", "tokens", "gold", "interval", "cell"):
        np.testing.assert_array_equal(getattr(plain.matrix, name), getattr(shown.matrix, name))
    assert not plain.matrix.signals
    assert set(shown.matrix.signals) == set(SIGNALS)


def test_synthetic_signals_are_what_their_names_say(data):
    values, there = data.matrix.signals, np.isfinite(data.matrix.signals["eat"])
    assert (values["logprob_mean"][there] < 0).all()
    assert (values["eat"][there] > 0).all()
    for name in ("probe_p_mean", "probe_p_geo"):
        assert ((values[name][there] > 0) & (values[name][there] < 1)).all()
    assert set(np.unique(values["probe_hedge"][there])) == {0, 1}
    assert (values["conf_low"][there] <= values["conf_tail"][there]).all()
    found = cell_statistics(data, 0)
    assert all(
        found[f"{name}_auroc"] > 0.6 for name in ("conf_mean", "conf_low", "conf_tail", "logprob_mean")
    )


def test_cisc_answers_live_as_in_replay(tmp_path):
    questions = (Problem("What is 2 + 2?", "4"), Problem("What is 3 + 3?", "6"))
    sampling = Sampling(interval=20, max_tokens=100, signals=("logprob_mean",))
    plan = Plan("simulated", "sums", questions, num_branches=8, sampling=sampling)
    collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine(mean_tokens=60)))
    run = at.answer_questions(
        SimulatedEngine(mean_tokens=60),
        questions,
        "cisc@8",
        out=tmp_path / "live",
        sampling=dataclasses.replace(sampling, signals=()),
        max_branches=8,
        collection=tmp_path / "run",
    )
    assert all(row.same_answer and row.same_tokens and row.same_stop_reason for row in run.compared)
