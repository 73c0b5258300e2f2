"""Many questions under one budget: replay equals plain lists, budgets are kept, bad input is refused."""

import dataclasses
import functools
import json
import math
import re
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matrices import as_dataset, random_matrix
from plain_lists import majority

import autotts_jax as at
from autotts_jax.core import Allocator, read_through, spend
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments import ORACLE, branch_orders
from autotts_jax.experiments.batch import concave_slopes, read_by_oracle, redrawn
from autotts_jax.intervals import Questions
from autotts_jax.policies import ALLOCATORS, LinearIndex, Uniform, as_allocator, save_weights
from autotts_jax.replay import NONE, ProbeMatrix, repo100_orders, select_part, stack
from autotts_jax.training import EvolutionSettings, train_allocator

QUESTIONS, BRANCHES, WIDTH, SEEDS = 5, 6, 5, 2
LAST = np.finfo(np.float32).max

ON_MATH = (
    *("EXAONE-Deep-32B", "MetaStone-S1-32B", "NVIDIA-Nemotron-Nano-9B-v2", "Phi-4-reasoning", "Qwen3-14B"),
    *("Qwen3-30B-A3B-Thinking-2507", "gpt-oss-20b"),
)
ON_AIME = (*ON_MATH, "AM-Thinking-v1", "Datarus-R1-14B-preview", "LIMO-v2", "Qwen3-4B")
"""Models of the cells in ``../shared/finals``."""


# --- the same on plain lists --------------------------------------------------------------------------------


def play(questions, index, budget, at_once):
    """Branches of each question that are read; a branch is its answer and its tokens."""
    read = [[] for _ in questions]
    urgency = [index([]) for _ in questions]
    while True:
        left = [q for q, branches in enumerate(questions) if len(read[q]) < len(branches)]
        urgent = sorted((q for q in left if urgency[q] > -math.inf), key=lambda q: -urgency[q])[:at_once]
        if not urgent:
            return read
        for q in urgent:
            branch = questions[q][len(read[q])]
            budget -= branch[1]
            if budget < 0:
                return read
            read[q].append(branch)
            urgency[q] = index(read[q])


def two_leading(read):
    counts = Counter(answer for answer, _ in read if answer != NONE).most_common(2)
    return [*(count for _, count in counts), 0, 0][:2]


@functools.cache
def doubt(first, second):
    """P(the share of the second is larger), by counting: a binomial tail."""
    tosses = first + second + 1
    return np.float32(sum(math.comb(tosses, heads) for heads in range(first + 1, tosses + 1)) / 2**tosses)


def after_two(rule):
    return lambda read: [math.inf, LAST, 0][len(read)] if len(read) < 2 else rule(read)


def naive(read):
    number, tokens = np.float32(len(read)), np.float32(sum(tokens for _, tokens in read))
    return doubt(*two_leading(read)) / (tokens / number * np.sqrt(number))


PLAIN = {
    "uniform": lambda read: -len(read),
    "asc": after_two(lambda read: doubt(*two_leading(read))),
    "sprt": after_two(lambda read: two_leading(read)[1] - two_leading(read)[0]),
    "naive": after_two(naive),
}


def check_equal(data, names, budgets, seeds, width, at_once=1):
    result = at.evaluate_batch(data, names, budgets=budgets, seeds=seeds, max_branches=width, at_once=at_once)
    (cell,) = data.cells
    finals, tokens = np.asarray(data.matrix.finals()), np.asarray(data.matrix.tokens)
    for played in result.plays:
        for seed, order in enumerate(repo100_orders(cell.num_branches, range(seeds))[:, :width]):
            questions = [
                list(zip(answers[order].tolist(), costs[order].tolist(), strict=True))
                for answers, costs in zip(finals, tokens, strict=True)
            ]
            for b, budget in enumerate(budgets):
                read = play(questions, PLAIN[played.name], budget, at_once)
                assert played.branches[b, seed].tolist() == [len(branches) for branches in read]
                assert played.tokens[b, seed].tolist() == [sum(cost for _, cost in one) for one in read]
                assert played.answer[b, seed].tolist() == [majority(a for a, _ in one) for one in read]


def batch_matrix(seed):
    """Few answers and few lengths, so that ties are frequent; some branches have no answer."""
    rng = np.random.default_rng(seed)
    answers = rng.integers(NONE, 3, (QUESTIONS, BRANCHES, 3)).astype(np.int16)
    lengths = rng.integers(1, 3, (QUESTIONS, BRANCHES)).astype(np.int32)
    answers[np.arange(3) > lengths[..., None]] = NONE
    return ProbeMatrix(
        answers=answers,
        lengths=lengths,
        tokens=rng.integers(1, 4, (QUESTIONS, BRANCHES)).astype(np.int32),
        gold=rng.integers(0, 3, QUESTIONS).astype(np.int16),
        interval=np.ones(QUESTIONS, np.int32),
        cell=np.zeros(QUESTIONS, np.int32),
        vocabulary=3,
    )


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 80), min_size=1, max_size=3, unique=True),
    st.sampled_from([1, 3]),
)
def test_replay_equals_plain_lists(seed, budgets, at_once):
    # Of the naive index, compiled code rounds what is equal to numbers that differ in the last digit.
    names = [name for name in PLAIN if name != "naive"]
    check_equal(as_dataset(batch_matrix(seed)), names, budgets, SEEDS, WIDTH, at_once)


def check_real_answers(name, shared, seeds):
    data = at.import_answers(shared("finals") / f"analysis_{name}.jsonl").dataset
    mean = int(np.asarray(data.matrix.tokens).mean()) * len(data)
    check_equal(data, list(PLAIN), [mean, 3 * mean, 8 * mean], seeds, 64)


@pytest.mark.slow
def test_replay_of_real_answers_equals_plain_lists(shared):
    check_real_answers("aime2024_gpt-oss-20b", shared, 2)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.* answers differ from the reference answer by their spelling alone")
@pytest.mark.parametrize(
    "name", [f"aime2024_{model}" for model in ON_AIME] + [f"math500_{model}" for model in ON_MATH]
)
def test_replay_of_every_cell_equals_plain_lists(name, shared):
    check_real_answers(name, shared, 3)


# --- budgets ------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 90), st.sampled_from([1, 3]))
def test_budgets_are_kept_and_spent(seed, budget, at_once):
    matrix = batch_matrix(seed)
    data = as_dataset(matrix)
    result = at.evaluate_batch(
        data, [*ALLOCATORS, ORACLE], budgets=[budget], seeds=SEEDS, max_branches=WIDTH, at_once=at_once
    )
    for played in result.plays:
        spent = played.tokens[0].sum(axis=1)
        assert (spent <= budget).all()
        # Nobody knows how long a branch gets, so that less than one is left; or there is nothing to read.
        everything = (played.branches[0] == WIDTH).all(axis=1)
        if played.name not in ("shadow-price", ORACLE):
            assert (everything | (spent > budget - matrix.tokens.max())).all()
    for row in result.rows:
        assert row.unspent == budget - row.tokens >= 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counted(Allocator):
    """Reads up to `most` branches of each question, the first questions first; notes when it is traced."""

    most: int
    traces: ClassVar[list[int]] = []

    def index(self, view):
        self.traces.append(view.width)
        return jnp.where(view.opened < self.most, 1.0, -jnp.inf)


def test_one_compilation_serves_all_budgets_settings_and_matrices_of_a_shape():
    Counted.traces.clear()
    for seed, most, budgets in ((0, 2, [9]), (1, 3, [5, 40]), (2, 1, [7, 30, 31])):
        at.evaluate_batch(
            as_dataset(batch_matrix(seed)), Counted(most), budgets=budgets, seeds=SEEDS, max_branches=WIDTH
        )
        traces = traces if seed else len(Counted.traces)
        assert len(Counted.traces) == traces > 0


def test_questions_are_served_in_order_and_left_where_nothing_is_urgent():
    data = as_dataset(batch_matrix(3))
    result = at.evaluate_batch(data, Counted(2), budgets=[1000, 4], seeds=1, max_branches=WIDTH)
    (played,) = result.plays
    assert played.branches[0, 0].tolist() == [2] * QUESTIONS
    row = result.rows[0]
    assert row.unspent == 1000 - played.tokens[0, 0].sum()
    assert row.unanswered == np.count_nonzero(played.answer[0, 0] == NONE)
    read = played.branches[1, 0]
    assert read[0] > 0
    assert (np.diff(read) <= 0).all()
    assert read[-1] == 0


# --- the allocators -----------------------------------------------------------------------------------------


def urgencies(allocator, answers, tokens):
    """What an allocator says of one question after 0, 1, … reads."""
    matrix = dataclasses.replace(
        batch_matrix(0),
        answers=np.broadcast_to(np.array(answers, np.int16)[:, None], (QUESTIONS, BRANCHES, 3)),
        tokens=np.broadcast_to(np.array(tokens, np.int32), (QUESTIONS, BRANCHES)),
    )
    data = as_dataset(matrix)
    orders = branch_orders(data, "repo100", [0], WIDTH)
    still = dataclasses.replace(orders, table=np.arange(WIDTH, dtype=np.int16)[None, None])
    return read_through(as_allocator(allocator)[1], matrix, still).urgency[0, 0]


def gain(first, second, voters, tokens):
    """`DirichletGain` by integrating the normal density of the change of the lead."""
    alpha, beta, total = first + 1, second + 1, voters + 3
    lead = (alpha - beta) / total
    variance = ((alpha + beta) / total - lead**2) / (total + 1)
    best = 0
    for more in (1, 2, 4):
        deviation = math.sqrt(variance * more / (total + more))
        x = np.linspace(lead, lead + 12 * deviation, 200_001)
        density = np.exp(-((x / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
        best = max(best, np.trapezoid((x - lead) * density, x) / more)
    return best / tokens


def test_the_dirichlet_gain_is_the_expected_gain_of_the_share():
    said = urgencies("dirichlet", [0, 1, 0, 0, 2, 2], [1, 3, 2, 2, 2, 2])
    expected = [gain(1, 1, 2, 2), gain(2, 1, 3, 2), gain(3, 1, 4, 2)]
    assert said[:2].tolist() == [math.inf, LAST]
    np.testing.assert_allclose(said[2:], expected, rtol=1e-4)


def test_blend_asc_averages_the_logarithms_of_two_doubts():
    said = urgencies("blend-asc", [0, 1, 0, 0, 0, 0], [1] * 6)
    for place, (first, second) in enumerate([(1, 1), (2, 1), (3, 1)], 2):
        votes = first + second
        tie = (votes + 1) * math.comb(votes, first) / 2**votes
        assert said[place] == pytest.approx((math.log(doubt(first, second)) + math.log(tie)) / 2, rel=1e-5)


def test_a_linear_index_is_a_weighted_sum_of_logarithms():
    weights = {"gain": 0.5, "doubt": 2, "tokens": -1.5, "branches": 3, "others": -0.7, "second": 4}
    said = urgencies(LinearIndex(**weights), [0, 1, 0, 2, 2, 2], [1, 3, 2, 2, 2, 2])
    assert said[0] == math.inf
    for place, (first, second, others, tokens) in enumerate([(1, 0, 0, 1), (1, 1, 0, 2), (2, 1, 0, 2)], 1):
        features = {
            "gain": math.log(gain(first, second, place, 1)),
            "doubt": math.log(doubt(first, second)),
            "tokens": math.log(tokens),
            "branches": math.log(place),
            "others": math.log(1 + others),
            "second": place == 1,
        }
        expected = sum(weights[name] * value for name, value in features.items())
        assert said[place] == pytest.approx(expected, rel=1e-4), place
    assert urgencies(LinearIndex(gain=0, others=1), [0, 1, 2, 3, 0, 0], [1] * 6)[4] == pytest.approx(
        math.log(3)
    )


def test_a_linear_index_is_a_number_where_doubt_is_none():
    matrix = dataclasses.replace(batch_matrix(0), answers=np.zeros((QUESTIONS, 200, 3), np.int16))
    matrix = dataclasses.replace(
        matrix, lengths=np.full((QUESTIONS, 200), 2, np.int32), tokens=np.ones((QUESTIONS, 200), np.int32)
    )
    orders = branch_orders(as_dataset(matrix), "repo100", [0], 200)
    said = read_through(LinearIndex(doubt=0.5), matrix, orders).urgency[..., 1:]
    assert np.isfinite(said).all()
    assert (np.diff(said) <= 0).all()


def test_weights_are_learned_saved_and_named_by_their_file(tmp_path):
    data = as_dataset(batch_matrix(0))
    learned = train_allocator(data, updates=1, seed=1)
    assert learned == train_allocator([data], updates=1, seed=1) != LinearIndex()
    file = tmp_path / "mine.json"
    save_weights(file, learned)
    assert as_allocator(str(file)) == ("mine", learned)


@pytest.mark.slow
def test_the_command_plays_learned_weights(run, tmp_path):
    file = tmp_path / "mine.json"
    save_weights(file, LinearIndex(doubt=0.5))
    play = ("batch", "--data", "smollm2", "--seeds", 1, "--max-branches", 4, "--budgets", 9000)
    status, out, err = run(*play, "--allocators", f"learned,{file}")
    assert (status, err) == (0, "")
    assert {"learned", "mine"} <= set(out.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "weights of an allocator, gain, doubt"),
        ("[1]", "an object of exactly these"),
        ("{}", "an object of exactly these"),
        (
            json.dumps(dict.fromkeys(vars(LinearIndex()), "much")),
            "gain is 'much', but it must be a finite number",
        ),
        (json.dumps(dict.fromkeys(vars(LinearIndex()), 1e38)), "gain is 1e"),
        (None, "No such file"),
    ],
)
def test_files_without_weights_are_refused(tmp_path, content, message):
    file = tmp_path / "weights.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=message):
        as_allocator(str(file))


def test_weights_are_not_read_from_a_device(tmp_path):
    file = tmp_path / "weights.json"
    file.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="a pipe or a device"):
        as_allocator(str(file))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": []}, "at least one dataset"),
        ({"data": "smollm2"}, "data is 'smollm2'"),
        ({"updates": 0}, "updates is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"settings": EvolutionSettings(max_branches=7)}, "max_branches is 7"),
        ({"start": 3}, "start is 3"),
    ],
)
def test_bad_training_of_weights_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        train_allocator(**{"data": as_dataset(batch_matrix(0)), "updates": 1} | change)


def test_weights_are_saved_as_json_alone(tmp_path):
    with pytest.raises(InputError, match="does not end in"):
        save_weights(tmp_path / "weights.npz", LinearIndex())


def test_a_shadow_price_gives_up_where_no_answer_comes_twice():
    allocator = dataclasses.replace(ALLOCATORS["shadow-price"], patience=3)
    matrix = batch_matrix(0)
    data = as_dataset(matrix)
    readings = read_through(allocator, matrix, branch_orders(data, "repo100", [0], WIDTH))
    order = repo100_orders(BRANCHES, [0])[0]
    finals = np.asarray(matrix.finals())[:, order]
    for said, answers in zip(readings.urgency[0], finals.tolist(), strict=True):
        for reads in range(WIDTH):
            leader, _ = two_leading([(answer, 1) for answer in answers[:reads]])
            assert (said[reads] == -math.inf) == (reads >= 3 and leader < 2)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_concave_slopes_are_those_of_the_least_concave_curve_above(curve):
    curve = np.array(curve)
    slopes = concave_slopes(curve)
    hull = curve[0] + np.concatenate([[0], np.cumsum(slopes)])
    assert (np.diff(slopes) <= 1e-9).all()
    assert (hull >= curve - 1e-9).all()
    # Its corners are on the curve, so that no lower one is concave and above.
    corners = np.flatnonzero(np.abs(np.diff(slopes)) > 1e-6) + 1
    np.testing.assert_allclose(hull[corners], curve[corners], atol=1e-9)
    assert hull[-1] == pytest.approx(curve[-1], abs=1e-9)


def test_the_oracle_reads_what_gains_most_a_token():
    """Question 0 is never right, 1 is always right and short, 2 as often and long."""
    matrix = batch_matrix(0)
    answers = np.zeros_like(matrix.answers)
    gold = np.array([1, 0, 0, 0, 0], np.int16)
    tokens = np.repeat(np.array([1, 1, 9, 5, 7], np.int32)[:, None], BRANCHES, axis=1)
    matrix = dataclasses.replace(matrix, answers=answers, gold=gold, tokens=tokens)
    orders = branch_orders(as_dataset(matrix), "repo100", [0], WIDTH)
    readings = read_by_oracle(matrix, orders, orders)
    reads = spend(readings, np.array([1, 6, 13, 21, 100]))[:, 0]
    assert reads.tolist() == [
        [0, 1, 0, 0, 0],
        [0, 1, 0, 1, 0],
        [0, 1, 0, 1, 1],
        [0, 1, 0, 1, 1],
        [0, 1, 1, 1, 1],
    ]


# --- results ------------------------------------------------------------------------------------------------


def test_files_and_tables_hold_what_was_played(tmp_path):
    cells = [as_dataset(batch_matrix(0), "m"), as_dataset(random_matrix(1), "longer")]
    data = stack(cells).select([5, 0, 1, 6, 2, 3, 4])
    result = at.evaluate_batch(data, ["uniform", "asc"], budgets=[20, 9], seeds=3, max_branches=WIDTH)
    files = result.save(tmp_path / "results")
    assert all(file.exists() for file in files)
    episodes = pq.read_table(tmp_path / "results" / "episodes.parquet").to_pylist()
    assert len(episodes) == 2 * 2 * 3 * 7
    summary = result.summary().to_pylist()
    assert len(summary) == 2 * 2 * 2
    for row in summary:
        mine = [e for e in episodes if all(e[key] == row[key] for key in ("model", "name", "budget"))]
        assert row["accuracy"] == pytest.approx(np.mean([episode["correct"] for episode in mine]))
        assert row["tokens"] == pytest.approx(sum(episode["tokens"] for episode in mine) / 3)
        assert row["unanswered"] == pytest.approx(sum(episode["answer"] is None for episode in mine) / 3)
        assert np.isnan([row["accuracy_low"], row["gain_high"]]).all(), "these are too few questions"
    # Every cell is a set of its own, wherever its questions are.
    alone = at.evaluate_batch(cells[0], ["uniform", "asc"], budgets=[20, 9], seeds=3, max_branches=WIDTH)
    for together, play in zip(result.plays, alone.plays, strict=True):
        np.testing.assert_array_equal(together.branches[..., [1, 2, 4, 5, 6]], play.branches)
    text = str(result.table())
    for shown in ("m/bench", "longer/bench", "0.02 ktokens", "uniform", "asc", "unanswered"):
        assert shown in text
    manifest = json.loads((tmp_path / "results" / "manifest.json").read_text())
    assert manifest["budgets"] == [20, 9]
    page = (tmp_path / "results" / "report.html").read_text()
    tables = re.findall(r"<caption>(.*?)</caption>(.*?)</table>", page, re.DOTALL)
    assert [caption for caption, _ in tables] == [
        "m/bench, results", "m/bench, 20 tokens, by question",
        "longer/bench, results", "longer/bench, 20 tokens, by question",
    ]  # fmt: skip
    shown = [re.findall(r">([^<>\n]+)<", row) for row in tables[1][1].split("<tr>")[2:]]
    asc, mine = result.plays[1], [1, 2, 4, 5, 6]
    assert [int(row[6]) for row in shown] == asc.branches[0, 0][mine].tolist()
    assert [row[8][0] for row in shown] == ["✓" if right else "✗" for right in asc.correct[0, 0][mine]]
    uniform = result.plays[0]
    np.testing.assert_array_equal(
        uniform.last_index, np.where(uniform.branches > 0, 1.0 - uniform.branches, np.nan)
    )
    np.testing.assert_array_equal(
        uniform.next_index, np.where(uniform.branches < WIDTH, -1.0 * uniform.branches, -np.inf)
    )
    result.save(tmp_path / "results")  # it replaces its own files


def test_intervals_share_the_budget_out_among_other_questions():
    """Questions 0 and 1, whose tokens grow from 1 to 3 and 10 to 30; the second is never right."""
    tokens, correct = np.array([[1, 10], [2, 20], [3, 30]]), np.array([[0.2, 0], [0.6, 0], [0.8, 0]])
    half, more = [0.5, 0.5, 0, 0], [0.25, 0.75, 0, 0]
    over = SimpleNamespace(weights=np.array([half, half, more, [1, 0, 0, 0], [0, 0.5, 0.25, 0.25]]))
    over.means = lambda values: values
    # A question takes 5.5, 11 or 16.5 tokens; with more of the second 7.75, 15.5 or 23.25.
    share = (11 - 7.75) / 7.75
    expected = [0.3, 0.25 * (0.2 + share * 0.4), 0.8, 0]
    np.testing.assert_allclose(redrawn(over, tokens, correct), expected)


def test_intervals_are_those_of_questions_where_no_question_takes_from_another():
    data = at.load("smollm2")
    result = at.evaluate_batch(data, [Uniform(), Counted(3)], budgets=[10**6], seeds=2, max_branches=4)
    texts = [question.text for question in data.questions]
    over = Questions(np.full(len(data), 1 / len(data)), texts)
    right = [play.correct[0].mean(axis=0) for play in result.plays]
    for row, correct in zip(result.rows, right, strict=True):
        wanted = over.mean(correct).interval, over.gain(correct - right[0]).interval
        found = (row.accuracy_low, row.accuracy_high), (row.gain_low, row.gain_high)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_the_command_prints_the_table_and_writes_the_files(run, tmp_path):
    play = ("batch", "--data", "smollm2", "--seeds", 2, "--max-branches", 8, "--out", tmp_path / "out")
    play += ("--part", "test")
    status, out, err = run(*play, "--allocators", "uniform, naive", "--budgets", "5000, 9000")
    assert (status, err) == (0, "")
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "SmolLM2-135M-Instruct/arithmetic"
    first = [line.split()[0] for line in lines[3:] if line]
    assert first == ["5.00", "uniform", "naive", "9.00", "uniform", "naive", "Δ:", "wrote"]
    assert max(map(len, lines[:-1])) <= 80
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"episodes.parquet", "manifest.json", "report.html", "summary.csv"}
    questions = pq.read_table(tmp_path / "out" / "episodes.parquet")["question"].unique().to_pylist()
    assert questions == [q.index for q in select_part(at.load("smollm2"), "test").questions]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budgets", "5e3"), "--budgets: '5e3' is not a whole number of tokens"),
        (("--budgets", "5,"), "--budgets: '' is not a whole number of tokens"),
        (("--budgets", "0"), "a budget is 0, but it must be at least 1"),
        (("--budgets", "5", "--allocators", "best"), "unknown allocator 'best'"),
    ],
)
def test_the_command_says_what_is_wrong(run, arguments, message):
    status, out, err = run("batch", "--data", "smollm2", *arguments)
    assert (status, out) == (2, "")
    assert message in err


# --- bad input ----------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Says(Allocator):
    """Says something of a question that is none of the package's ideas."""

    what: float

    def index(self, view):
        return {0: jnp.where(view.opened == 2, jnp.nan, 1.0), 1: view.depth, 2: view}[self.kind]

    kind = 0


class SaysDepths(Says):
    kind = 1


class SaysView(Says):
    kind = 2


for _kind in (SaysDepths, SaysView):
    jax.tree_util.register_dataclass(_kind, ["what"], [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allocators": []}, "at least one allocator"),
        ({"allocators": 3}, "at least one allocator"),
        ({"allocators": "best"}, "unknown allocator 'best'.*oracle"),
        ({"allocators": ["uniform", 3]}, "unknown allocator 3"),
        ({"allocators": [Uniform]}, "unknown allocator"),
        ({"allocators": ["asc", "asc"]}, "asc: given more than once"),
        ({"allocators": dataclasses.replace(ALLOCATORS["shadow-price"], patience=0)}, "patience is 0"),
        ({"allocators": Says(0.0)}, "Says.index returned NaN after 2 reads"),
        ({"allocators": SaysDepths(0.0)}, r"SaysDepths.index must return a number.*int32\[5\]"),
        ({"allocators": SaysView(0.0)}, "SaysView.index must return a number"),
        ({"budgets": []}, "budgets is"),
        ({"budgets": 30}, "budgets is 30"),
        ({"budgets": [0]}, "a budget is 0"),
        ({"budgets": [1.5]}, "a budget is 1.5"),
        ({"budgets": [2**31 - 1]}, "a budget is 2147483647"),
        ({"budgets": [3, 3]}, "more than once"),
        ({"seeds": 0}, "number of seeds"),
        ({"at_once": 0}, "at_once is 0"),
        ({"max_branches": 7}, "has 6 branches a question, fewer than the 7"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"allocators": "uniform", "budgets": [3], "seeds": SEEDS, "max_branches": WIDTH}
    with pytest.raises(InputError, match=message):
        at.evaluate_batch(as_dataset(batch_matrix(0)), **good | change)
