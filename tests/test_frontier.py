"""Frontiers: closed forms on two or three points, properties, and the comparison of an evaluation."""

import csv
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import Evaluation
from autotts_jax.experiments.frontier import (
    accuracy_at,
    controller_regret,
    frontier_of,
    hypervolume,
    tokens_at,
)
from autotts_jax.experiments.plots import frontier_figure
from autotts_jax.experiments.summary import ALL_MODELS, Row
from autotts_jax.experiments.tables import comparison_table
from autotts_jax.policies import ControllerPlayer, Play
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic, write_compact
from autotts_jax.replay.dataset import stack

THREE = frontier_of([100, 200, 400], [0.2, 0.4, 0.5])

points = st.lists(
    st.tuples(st.integers(1, 30).map(lambda t: 10.0 * t), st.integers(0, 20).map(lambda a: a / 20)),
    min_size=1,
    max_size=6,
)
some_points = settings(max_examples=60, deadline=None)


def of(pairs):
    return frontier_of(*np.array(pairs, float).T)


# --- closed forms ---------------------------------------------------------------------------------------


def test_a_dominated_setting_gives_way_to_the_one_before_it():
    frontier = frontier_of([400, 100, 300, 200, 200], [0.5, 0.2, 0.4, 0.4, 0.3])
    np.testing.assert_array_equal(frontier.tokens, [100, 200, 200, 200, 400])
    np.testing.assert_array_equal(frontier.accuracy, [0.2, 0.4, 0.4, 0.4, 0.5])


def test_tokens_at_matched_accuracy():
    wanted = [0.1, 0.2, 0.3, 0.4, 0.45, 0.5]
    np.testing.assert_allclose(tokens_at(THREE, wanted), [100, 100, 150, 200, 300, 400])
    assert np.isnan(tokens_at(THREE, [0.51, np.nan])).all()


def test_accuracy_at_matched_tokens():
    spent = [100, 150, 200, 300, 400, 1000]
    np.testing.assert_allclose(accuracy_at(THREE, spent), [0.2, 0.3, 0.4, 0.45, 0.5, 0.5])
    assert np.isnan(accuracy_at(THREE, [99, np.nan])).all()


def test_one_setting_is_matched_by_what_is_no_better():
    one = frontier_of([100], [0.5])
    assert (tokens_at(one, 0.3), tokens_at(one, 0.5)) == (100, 100)
    assert (accuracy_at(one, 100), accuracy_at(one, 300)) == (0.5, 0.5)


def test_hypervolume_is_an_area_of_steps():
    assert hypervolume(THREE, 500) == pytest.approx((100 * 0.2 + 200 * 0.4 + 100 * 0.5) / 500)
    assert hypervolume(THREE, 300) == pytest.approx((100 * 0.2 + 100 * 0.4) / 300)
    assert hypervolume(THREE, 100) == 0
    assert hypervolume(frontier_of([0], [1]), 7) == 1


def test_regret_is_the_area_between_steps_where_the_others_are_better():
    other = frontier_of([150, 350], [0.3, 0.45])
    missed = 50 * 0.1 + 50 * 0.05  # 150 to 200, and 350 to 400
    assert controller_regret(THREE, other, 500) == pytest.approx(missed / 500)
    both = frontier_of([100, 200, 400, 150, 350], [0.2, 0.4, 0.5, 0.3, 0.45])
    assert controller_regret(THREE, both, 500) == pytest.approx(missed / 500)
    late = frontier_of([300], [0.5])
    assert controller_regret(late, THREE, 400) == pytest.approx((100 * 0.2 + 100 * 0.4) / 400)


# --- properties -----------------------------------------------------------------------------------------


@some_points
@given(points)
def test_the_envelope_ascends_and_nothing_is_above_it(pairs):
    frontier = of(pairs)
    assert set(zip(*frontier, strict=True)) <= set(pairs)
    kept = sorted(set(zip(*frontier, strict=True)))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(kept))
    for tokens, accuracy in pairs:
        assert any(t <= tokens and a >= accuracy for t, a in kept)


@some_points
@given(points)
def test_matching_tokens_and_matching_accuracy_are_inverse(pairs):
    frontier = of(pairs)
    spent = np.linspace(frontier.tokens[0], frontier.tokens[-1], 7)
    np.testing.assert_allclose(tokens_at(frontier, accuracy_at(frontier, spent)), spent, rtol=1e-9)
    np.testing.assert_array_equal(tokens_at(frontier, frontier.accuracy), frontier.tokens)


@some_points
@given(st.integers(1, 4), st.data())
def test_a_batch_is_its_members(size, data):
    pairs = st.lists(points.filter(lambda pairs: len(pairs) >= size), min_size=3, max_size=3)
    batch = np.array([member[:size] for member in data.draw(pairs)])
    together = frontier_of(batch[..., 0], batch[..., 1])
    for index, member in enumerate(batch):
        alone = of(member)
        np.testing.assert_array_equal([together.tokens[index], together.accuracy[index]], alone)
        for at, value in ((tokens_at, 0.5), (accuracy_at, 150.0), (hypervolume, 200.0)):
            values = np.full(3, value) if at is not hypervolume else value
            np.testing.assert_array_equal(at(together, values)[index], at(alone, value))


@some_points
@given(points, points, st.floats(0.01, 100))
def test_units_of_tokens_do_not_matter(mine, others, unit):
    def figures(scale):
        mine_, others_ = (
            frontier_of(scale * of(pairs).tokens, of(pairs).accuracy) for pairs in (mine, others)
        )
        return (
            tokens_at(mine_, 0.5) / tokens_at(others_, 0.5),
            hypervolume(mine_, scale * 1000),
            controller_regret(mine_, others_, scale * 1000),
        )

    np.testing.assert_allclose(figures(unit), figures(1.0), rtol=1e-9, atol=1e-12)


@some_points
@given(points, st.tuples(st.floats(0, 400), st.floats(0, 1)))
def test_a_setting_more_takes_no_area_away(pairs, added):
    before, after = hypervolume(of(pairs), 350), hypervolume(of([*pairs, added]), 350)
    assert after >= before - 1e-12


@some_points
@given(points, st.floats(1, 9), st.floats(0.01, 0.04))
def test_a_setting_that_dominates_adds_area(pairs, fewer, better):
    tokens, _ = pairs[0]
    # The best accuracy for these tokens or fewer, in steps of 0.05.
    best = max(a for t, a in pairs if t <= tokens)
    added = (tokens - fewer, min(best + better, 1))
    if best < 1:
        assert hypervolume(of([*pairs, added]), 350) > hypervolume(of(pairs), 350)


@some_points
@given(points, points)
def test_regret_is_the_hypervolume_that_is_missing(mine, others):
    best = of(mine + others)
    missing = hypervolume(best, 250) - hypervolume(of(mine), 250)
    assert controller_regret(of(mine), best, 250) == pytest.approx(missing, abs=1e-12)
    assert controller_regret(best, of(mine), 250) == 0


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "accuracy", "message"),
    [
        ([], [], "at least one setting"),
        ([1.0, 2.0], [0.5], "make no frontier"),
        (1.0, 0.5, "make no frontier"),
        ([1.0, np.nan], [0.5, 0.6], "tokens must be finite"),
        ([-1.0], [0.5], "tokens must be finite and at least 0"),
        ([1.0], [np.nan], "accuracy must be finite"),
        ([1.0], [46.4], "accuracies at most 1"),
    ],
)
def test_bad_frontiers(tokens, accuracy, message):
    with pytest.raises(InputError, match=message):
        frontier_of(tokens, accuracy)


@pytest.mark.parametrize("tokens", [0, -1, np.nan, np.inf])
def test_bad_reference_tokens(tokens):
    with pytest.raises(InputError, match="reference tokens are"):
        hypervolume(THREE, tokens)
    with pytest.raises(InputError, match="reference tokens are"):
        controller_regret(THREE, THREE, tokens)


# --- the comparison of an evaluation --------------------------------------------------------------------


def play_of(name, values, correct, tokens):
    """A play of V settings with these outcomes, shape (V, S, Q) or what broadcasts to it."""
    correct, tokens = np.broadcast_arrays(np.asarray(correct, bool), tokens)
    filler = np.ones(correct.shape, np.int64)
    rest = ("intervals", "probes", "sequential_tokens", "branches", "rounds", "stop_reason")
    return Play(
        ControllerPlayer(name, (), tuple(values)),
        answer=np.full(correct.shape, "a", object),
        correct=correct,
        tokens=tokens,
        compile_seconds=0.0,
        run_seconds=0.0,
        **dict.fromkeys(rest, filler),
    )


def random_plays(questions, seeds=2):
    """``mine`` needs about half the tokens of ``cmc`` for the same, rather accurate answers."""
    rng = np.random.default_rng(0)
    shape = (1, seeds, questions)
    luck, effort = rng.random(shape), rng.integers(90, 111, shape)
    levels = np.array([0.3, 0.5, 0.8])[:, None, None]
    return (
        play_of("mine", (3e-4, 2e-4, 1e-4), luck < levels + 0.05, (500 * levels).astype(int) * effort),
        play_of("cmc", (0.3, 0.5, 0.8), luck < levels, (1000 * levels).astype(int) * effort),
    )


def compared(evaluation):
    return evaluation.frontier().comparisons


@pytest.fixture(scope="module")
def dataset():
    """Two models: eight questions of ten branches, and six questions of six."""
    first, second = SYNTHETIC_MODELS[1:3]
    return stack([synthetic(models=[first], questions=8, branches=10), synthetic(0, [second], 6, 6)])


@pytest.fixture(scope="module")
def evaluation(dataset):
    single = play_of("sc", (1,), np.ones((1, 2, 14)), 10)
    return Evaluation(dataset, (single, *random_plays(14)), 2)


@pytest.fixture(scope="module")
def comparisons(evaluation):
    return compared(evaluation)


def test_every_swept_controller_meets_every_setting_of_cmc(comparisons, dataset):
    models = [*(cell.model for cell in dataset.cells), ALL_MODELS]
    expected = itertools.product(models, ["cmc", "mine"], [0.3, 0.5, 0.8])
    assert [(c.model, c.controller, c.value) for c in comparisons] == list(expected)
    assert {(c.reference, c.envelope) for c in comparisons} == {("cmc", "cmc, mine")}


def test_its_figures_are_those_of_the_summary(comparisons, evaluation):
    rows = evaluation.rows

    def frontier(model, controller):
        return of([(r.tokens, r.accuracy) for r in rows if (r.model, r.controller) == (model, controller)])

    for c in comparisons:
        (setting,) = (r for r in rows if (r.model, r.controller, r.value) == (c.model, c.reference, c.value))
        mine, reference = frontier(c.model, c.controller), frontier(c.model, c.reference)
        assert (c.cost, c.accuracy) == pytest.approx((setting.tokens, setting.accuracy))
        at = tokens_at(mine, c.accuracy - 1e-12)
        assert c.cost_at_accuracy == pytest.approx(at)
        assert c.cost_ratio == pytest.approx(at / tokens_at(reference, c.accuracy - 1e-12))
        at = accuracy_at(mine, c.cost + 1e-9)
        assert c.accuracy_at_cost == pytest.approx(at)
        assert c.accuracy_gain == pytest.approx(at - accuracy_at(reference, c.cost + 1e-9))
        best = frontier_of(*np.concatenate([frontier(c.model, "cmc"), frontier(c.model, "mine")], -1))
        assert c.hypervolume == pytest.approx(hypervolume(mine, c.reference_cost))
        assert c.hypervolume_low <= c.hypervolume <= c.hypervolume_high
        assert c.hypervolume_low < c.hypervolume_high
        gain = c.hypervolume - hypervolume(reference, c.reference_cost)
        assert c.hypervolume_gain == pytest.approx(gain)
        assert c.hypervolume_gain_low <= c.hypervolume_gain <= c.hypervolume_gain_high
        assert (c.hypervolume_gain_low == c.hypervolume_gain_high) == (c.controller == c.reference)
        assert c.regret == pytest.approx(controller_regret(mine, best, c.reference_cost))


def test_areas_reach_to_the_tokens_of_all_branches_or_64(comparisons, dataset):
    by_model = [10 * dataset.matrix.tokens[:8].mean(), 6 * dataset.matrix.tokens[8:, :6].mean()]
    told = list(dict.fromkeys(c.reference_cost for c in comparisons))
    assert told == pytest.approx([*by_model, np.mean(by_model)])
    assert [c.reference_branches for c in comparisons[:: len(comparisons) // 3]] == [10, 6, 10]
    wide = synthetic(models=SYNTHETIC_MODELS[1:2], questions=1, branches=70)
    plays = tuple(play_of(name, (1, 2), np.ones((2, 1, 1)), 1) for name in ("a", "b"))
    (found, *_) = compared(Evaluation(wide, plays, 1))
    assert found.reference_branches == 64
    assert found.reference_cost == pytest.approx(64 * wide.matrix.tokens.mean())


def test_a_question_of_two_models_is_drawn_once():
    data = synthetic(models=SYNTHETIC_MODELS[1:3], questions=9, branches=2)
    plays = tuple(
        play_of(play.player.name, play.player.values, play.correct[..., index], play.tokens[..., index])
        for play in random_plays(9)
        for index in [np.tile(np.arange(9), 2)]
    )
    found = [c for c in compared(Evaluation(data, plays, 2)) if c.controller == "mine"]
    for alone, mean in zip(found[:3], found[-3:], strict=True):
        assert (alone.gain_low, alone.gain_high) == pytest.approx((mean.gain_low, mean.gain_high))
        assert alone.gain_low < alone.gain_high


def test_intervals_hold_the_estimates_and_the_reference_equals_itself(comparisons):
    for c in comparisons:
        assert c.ratio_low <= c.cost_ratio <= c.ratio_high
        assert c.gain_low <= c.accuracy_gain <= c.gain_high
        if c.controller == c.reference:
            assert (c.cost_ratio, c.ratio_low, c.ratio_high) == (1, 1, 1)
            assert (c.accuracy_gain, c.gain_low, c.gain_high) == (0, 0, 0)
        else:
            assert c.cost_ratio < 0.6


@pytest.fixture(scope="module")
def one_question():
    return synthetic(models=SYNTHETIC_MODELS[1:2], questions=1, branches=2)


def test_few_questions_have_figures_and_no_intervals(one_question):
    right = [[[1], [0]], [[1], [1]]]
    plays = play_of("a", (1, 2), right, [[[8]], [[16]]]), play_of("b", (1, 2), right, [[[4]], [[6]]])
    result = Evaluation(one_question, plays, 2)
    first, second = (c for c in compared(result) if c.controller == "b")
    assert (first.cost_ratio, second.cost_ratio, first.accuracy_gain, second.accuracy_gain) == (
        0.5,
        0.375,
        0.5,
        0,
    )
    assert np.isnan(
        [first.ratio_low, first.gain_high, first.hypervolume_low, first.hypervolume_gain_high]
    ).all()
    assert "0.50 [n/a]" in str(result.frontier().table())


def test_what_is_not_reached_has_no_figure_and_an_infinite_interval():
    data = synthetic(models=SYNTHETIC_MODELS[1:2], questions=9, branches=2)
    every = np.ones((1, 1, 9))
    plays = (
        play_of("cmc", (0, 1), every * [[[0]], [[1]]], [[[8]], [[16]]]),
        play_of("late", (0, 1), every * 0, [[[9]], [[12]]]),
    )
    first, second = (c for c in compared(Evaluation(data, plays, 1)) if c.controller == "late")
    assert (first.cost_ratio, second.ratio_high) == (9 / 8, np.inf)
    assert (first.gain_low, first.gain_high, second.accuracy_gain) == (-np.inf, -np.inf, -1)
    assert np.isnan([first.accuracy_gain, second.cost_ratio]).all()


def test_a_ratio_at_an_accuracy_that_the_cheapest_setting_exceeds_is_a_bound():
    """A setting of `dear` that is right as seldom as cmc@1 might cost less than its cheapest."""
    data = synthetic(models=SYNTHETIC_MODELS[1:2], questions=9, branches=2)
    right = (np.arange(9) < np.array([3, 6, 9])[:, None])[:, None]
    cmc = play_of("cmc", (1, 2), right[:2], [[[8]], [[16]]])
    dear = play_of("dear", (1, 2), right[1:], [[[20]], [[30]]])
    result = Evaluation(data, (cmc, dear), 1)
    first, second = (c for c in compared(result) if c.controller == "dear")
    assert (first.ratio_bound, first.cost_ratio) == ("at most", 20 / 8)
    assert (second.ratio_bound, second.cost_ratio) == ("", 20 / 16)
    assert "≤ 2.50 [" in str(result.frontier().table())
    # The reference's dearer setting is the worse one: its frontier begins above it.
    upside_down = play_of("cmc", (1, 2), right[[0, 1]], [[[16]], [[8]]])
    _, below = (c for c in compared(Evaluation(data, (upside_down, dear), 1)) if c.controller == "dear")
    assert (below.value, below.ratio_bound) == (1, "none")


def test_equal_accuracies_are_matched_however_their_sums_round():
    """Each is right on as many questions as the other, on other ones."""
    data = synthetic(models=SYNTHETIC_MODELS[1:2], questions=15, branches=2)
    rng = np.random.default_rng(1)
    tokens = np.array([9, 12])[:, None, None]
    for _ in range(5):
        correct = rng.random((1, 3, 15)) < [[[0.5]], [[0.9]]]
        plays = play_of("a", (1, 2), correct, tokens), play_of("b", (1, 2), correct[..., ::-1], tokens)
        for c in compared(Evaluation(data, plays, 3)):
            assert (c.cost_ratio, c.accuracy_gain) == pytest.approx((1, 0))


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({"sc": (1, 2), "cmc": (0.1, 0.5), "esc": (8,)}, "cmc"),
        ({"sc": (1, 2), "asc": (1, 2), "cmc": (0.5,)}, "sc"),
        ({"sc": (1, 2), "cmc": (0.5,)}, None),
        ({"cmc": (0.1, 0.5)}, None),
    ],
)
def test_the_reference_is_cmc_or_the_first_that_is_swept(one_question, settings, reference):
    plays = tuple(play_of(name, of, np.ones((len(of), 1, 1)), 9) for name, of in settings.items())
    swept = [name for name, of in settings.items() if len(of) > 1]
    found = compared(Evaluation(one_question, plays, 1))
    assert {c.reference for c in found} == ({reference} if reference else set())
    assert {c.controller for c in found} == (set(swept) if reference else set())


def test_values_that_were_selected_one_by_one_are_a_sweep(dataset):
    together = random_plays(14)
    apart = [
        play_of(play.player.name, [value], play.correct[index, None], play.tokens[index, None])
        for play in together
        for index, value in enumerate(play.player.values)
    ]
    assert compared(Evaluation(dataset, tuple(apart), 2)) == compared(Evaluation(dataset, together, 2))


def test_an_evaluation_without_tokens_is_compared(one_question):
    plays = tuple(play_of(name, (1, 2), np.ones((2, 1, 1)), 0) for name in ("a", "b"))
    assert [(c.accuracy_gain, c.regret) for c in compared(Evaluation(one_question, plays, 1))] == [(0, 0)] * 4


# --- what is shown --------------------------------------------------------------------------------------


def printed(comparisons):
    return str(comparison_table(comparisons)).splitlines()


def test_the_table_shows_the_mean_of_models(comparisons):
    lines = printed(comparisons)
    assert lines[0] == f"synthetic, {ALL_MODELS}: against cmc"
    mean = [c for c in comparisons if (c.model, c.controller) == (ALL_MODELS, "mine")]
    shown = [line.split() for line in lines if line.startswith("cmc@")]
    assert [line[:4] for line in shown] == [
        [f"cmc@{c.value}", f"{100 * c.accuracy:.1f}", f"{c.cost / 1000:.1f}", f"{c.cost_ratio:.2f}"]
        for c in mean
    ]
    (areas,) = (line.split() for line in lines if line.startswith("mine"))
    assert areas == ["mine", "hypervolume", f"{mean[0].hypervolume:.4f}", "regret", f"{mean[0].regret:.4f}"]


def test_the_table_is_small_and_says_what_is_not_reached(dataset):
    level = np.arange(11)[:, None, None]
    plays = (
        play_of("cmc", np.arange(11) / 10, np.arange(14) < level, 123_456 * (1 + level) + np.zeros((2, 14))),
        play_of("a-policy", (1, 2), np.zeros((2, 2, 14)), [[[234_567]], [[9_876_543]]]),
    )
    lines = printed(compared(Evaluation(dataset, plays, 2)))
    settings = [line for line in lines if line.startswith("cmc@")]
    assert [line.split()[0] for line in settings] == ["cmc@0", "cmc@0.2", "cmc@0.5", "cmc@0.8", "cmc@1"]
    assert "too few tokens" in settings[0]
    assert "not reached" in settings[-1]
    assert max(map(len, lines)) <= 80
    assert printed([]) == ["no frontiers: fewer than two controllers were swept over two values or more"]


def test_a_sweep_of_prices_is_drawn_in_the_order_of_tokens():
    """A large γ is a small budget, so the values fall as the tokens rise."""
    figures = [(1e-3, 10_000, 0.3), (1e-5, 90_000, 0.6), (1e-4, 40_000, 0.5)]
    rest = dict.fromkeys((field.name for field in dataclasses.fields(Row)), 0.0)
    rest |= {"model": "m", "benchmark": "b", "controller": "neural"}
    rows = [Row(**rest | {"value": g, "tokens": t, "accuracy": a}) for g, t, a in figures]
    (panel,) = frontier_figure(rows).axes
    np.testing.assert_array_equal(panel.lines[0].get_xdata(), [10, 40, 90])
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), [30, 50, 60])


@pytest.mark.slow
def test_evaluate_writes_and_prints_the_comparison(run, tmp_path):
    data = synthetic(models=SYNTHETIC_MODELS[2:3], questions=3, branches=10)
    write_compact(data, tmp_path / "cells.npz")
    command = f"evaluate --data {tmp_path}/cells.npz --controllers sc@1,sc@6,sc@2,asc@2,asc@8 --seeds 3"
    status, out, _ = run(*command.split(), "--max-branches", 8, "--out", tmp_path / "out")
    assert status == 0
    assert f"synthetic, {data.cells[0].model}: against sc" in out

    def read(name):
        return list(csv.DictReader((tmp_path / "out" / name).read_text().splitlines()))

    rows = read("summary.csv")
    sc, asc = (envelope_by_hand(row for row in rows if row["controller"] == name) for name in ("sc", "asc"))
    lines = read("frontier.csv")
    assert [(line["controller"], line["value"]) for line in lines] == list(
        itertools.product(["sc", "asc"], ["1", "2", "6"])
    )
    for line in lines:
        (setting,) = (row for row in rows if (row["controller"], row["value"]) == ("sc", line["value"]))
        assert (line["cost"], line["accuracy"]) == (setting["tokens"], setting["accuracy"])
        cost, accuracy = float(line["cost"]), float(line["accuracy"])
        mine = sc if line["controller"] == "sc" else asc
        ratio = np.interp(accuracy, *mine[::-1]) / np.interp(accuracy, *sc[::-1])
        gain = np.interp(cost, *mine) - np.interp(cost, *sc)
        assert written(line["cost_ratio"]) == pytest.approx(ratio if accuracy <= mine[1][-1] else None)
        assert written(line["accuracy_gain"]) == pytest.approx(gain if cost >= mine[0][0] else None)
        reference = float(line["reference_cost"])
        area = (np.diff([*mine[0], reference]) * mine[1]).sum() / reference
        assert float(line["hypervolume"]) == pytest.approx(area)


def written(figure):
    return float(figure) if figure else None


def envelope_by_hand(rows):
    kept = []
    for tokens, accuracy in sorted((float(row["tokens"]), float(row["accuracy"])) for row in rows):
        if not kept or accuracy > kept[-1][1]:
            kept.append((tokens, accuracy))
    return np.array(kept).T
