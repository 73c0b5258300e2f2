"""Signals: what every format keeps of them, what pools show of them, and what is said about bad ones."""

import dataclasses
import json
import math
import re
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_signals import assert_live_shows
from matrices import as_dataset, random_matrix
from release_files import change

import autotts_jax as at
from autotts_jax.cli.app import app
from autotts_jax.collect import (
    Completion,
    Finish,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    collect,
    signals,
)
from autotts_jax.collect.collector import collect_unit
from autotts_jax.collect.plan import Unit
from autotts_jax.collect.simulated import END
from autotts_jax.collect.thinking import tags
from autotts_jax.core import Action, ReplayPool
from autotts_jax.core.stepping import begin_pool, view_of
from autotts_jax.envs import play_in_environment
from autotts_jax.errors import DataError, InputError, InputWarning
from autotts_jax.replay import (
    SIGNALS,
    SYNTHETIC_MODELS,
    cell_statistics,
    read_compact,
    read_json,
    stack,
    synthetic,
    write_compact,
    write_json,
)
from autotts_jax.testing import check_controller

QUESTION = {
    "question": "How many?",
    "final_answers_trace": ["7", "1"],
    "each_branch": [[["1", "7"], 900, "7"], [["ERR"], 700, "1"]],
    "gold_answer": "7",
    "probe_freq": 500,
    "signals": {"eat": [[0.5, 0.25, 2], [65500, -0.001]], "low": [[1, 2, 3], [4, 5]]},
}
OTHER = QUESTION | {"question": "Which?"}


@pytest.fixture
def cell(tmp_path):
    path = tmp_path / "model" / "bench.json"
    path.parent.mkdir()
    path.write_text(json.dumps([QUESTION, OTHER]))
    return path


def signals_of(dataset):
    return {name: np.asarray(values) for name, values in dataset.matrix.signals.items()}


def assert_same_signals(left, right):
    left, right = signals_of(left), signals_of(right)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype == np.float16
        np.testing.assert_array_equal(left[name], right[name])


def noise(dataset, *names, seed=0):
    """The dataset with random signals."""
    rng, shape = np.random.default_rng(seed), dataset.matrix.answers.shape
    return dataset.with_signals({name: rng.normal(size=shape).astype(np.float16) for name in names})


# --- what is kept


def test_json_holds_a_number_for_each_probe_and_the_final_answer(cell):
    signals = signals_of(read_json(cell))
    assert list(signals) == ["eat", "low"]
    expected = [[0.5, 0.25, 2], [65504, -0.001, np.nan]]
    np.testing.assert_array_equal(signals["eat"], np.array([expected, expected], np.float16))


def test_both_formats_keep_signals_to_the_last_bit(cell, tmp_path):
    dataset = noise(read_json(cell), "a", "b2_c")
    write_compact(dataset, tmp_path / "x.npz")
    assert_same_signals(read_compact(tmp_path / "x.npz"), dataset)
    write_json(dataset, tmp_path / "x.json")
    assert_same_signals(read_json(tmp_path / "x.json"), dataset)
    write_json(read_json(cell), tmp_path / "y.json")
    assert json.loads((tmp_path / "y.json").read_text()) == [QUESTION, OTHER]


def test_parallel_probe_lines_may_have_signals(cell, tmp_path):
    raw = {name: value for name, value in QUESTION.items() if name != "each_branch"}
    raw |= {"probe_matrix_mxn": [["1", "7", None], ["ERR", None, None]], "branch_tokens": [900, 700]}
    (tmp_path / "raw.jsonl").write_text(json.dumps(raw))
    assert_same_signals(read_json(tmp_path / "raw.jsonl"), read_json(cell).select([0]))


def test_files_without_signals_hold_nothing_of_them(cell, tmp_path):
    dataset = read_json(cell).with_signals({})
    write_compact(dataset, tmp_path / "x.npz")
    assert sorted(np.load(tmp_path / "x.npz")) == sorted(
        ["answers", "lengths", "tokens", "gold", "interval", "cell", "text"]
    )
    write_json(dataset, tmp_path / "x.json")
    assert "signals" not in (tmp_path / "x.json").read_text()


def test_select_takes_the_signals_of_the_questions(cell):
    dataset = noise(read_json(cell), "a")
    np.testing.assert_array_equal(signals_of(dataset.select([1, 0]))["a"], signals_of(dataset)["a"][[1, 0]])
    selected = jax.jit(type(dataset.matrix).select)(dataset.matrix, np.array([1]))
    np.testing.assert_array_equal(selected.signals["a"], signals_of(dataset)["a"][[1]])


def test_stack_pads_the_signals_that_all_datasets_have(cell):
    small, large = noise(read_json(cell), "a", "b"), noise(as_dataset(random_matrix(0), "another"), "b", "c")
    with pytest.warns(InputWarning, match=r"^model/bench has no signal c, so all the data together has none"):
        both = stack([small, large])
    assert list(both.matrix.signals) == ["b"]
    values, (_, branches, depths) = signals_of(both)["b"], small.matrix.answers.shape
    np.testing.assert_array_equal(values[:2, :branches, :depths], signals_of(small)["b"])
    assert np.isnan(values[:2, branches:]).all()
    assert np.isnan(values[:2, :, depths:]).all()
    np.testing.assert_array_equal(values[2:], signals_of(large)["b"])


def test_merging_answers_keeps_signals(cell, tmp_path):
    merged, out = tmp_path / "merged.npz", tmp_path / "exact.npz"
    for encoding, path in (("equiv", merged), ("exact", out)):
        app(["data", "convert", str(cell), "--encoding", encoding, "--out", str(path)], standalone_mode=False)
        assert_same_signals(read_compact(path), read_json(cell))


def test_results_do_not_depend_on_signals_that_nobody_asks_for():
    data = at.load("smollm2").select(range(4))
    plain, noisy = (at.evaluate(one, "asc@8", seeds=3) for one in (data, noise(data, "a")))
    for ours, theirs in zip(plain.episodes().columns, noisy.episodes().columns, strict=True):
        assert ours == theirs


def test_statistics_of_signals_by_hand(cell):
    dataset = read_json(cell)
    found = {name: value for name, value in cell_statistics(dataset, 0).items() if name.startswith("low")}
    # A right final with 3, a wrong one with 5.
    assert found == {"low_mean": 3, "low_min": 1, "low_max": 5, "low_auroc": 0}
    assert cell_statistics(dataset, 0)["eat_auroc"] == 1
    answers = np.broadcast_to(np.float16(1), dataset.matrix.answers.shape)
    assert cell_statistics(dataset.with_signals({"tied": answers}), 0)["tied_auroc"] == 0.5
    alike = dataclasses.replace(dataset.matrix, gold=np.full(2, -5, np.int16))
    assert np.isnan(cell_statistics(dataclasses.replace(dataset, matrix=alike), 0)["eat_auroc"])


def test_info_prints_them(cell, capsys):
    app(["data", "info", str(cell)], standalone_mode=False)
    assert re.search(r"^low_auroc +0\.000$", capsys.readouterr().out, re.MULTILINE)


SUM = Plan(
    "simulated",
    "sums",
    (Problem("What is 2 + 2?", "4"),),
    num_branches=8,
    sampling=Sampling(interval=20, max_tokens=100, signals=SIGNALS, probe_tail=8),
)
"""A collection that keeps all signals."""


class Watched(SimulatedEngine):
    """Remembers what it completed, is sure of its first forced answers, and hedges after some."""

    def __init__(self, mean_tokens=90):
        super().__init__(mean_tokens)
        self.told = []

    def complete(self, request):
        completion = super().complete(request)
        if not request.temperature and not request.stop and request.max_tokens > 1:
            text = " But wait" if len(request.prompt) % 16 < 8 else " nothing"
            completion = Completion(tuple(text.encode())[: request.max_tokens], text, Finish.stop)
        if request.stop and completion.entropies:
            doubt = len(request.prompt) / 64
            completion = dataclasses.replace(
                completion,
                logprobs=tuple(doubt * x for x in completion.logprobs),
                entropies=tuple(doubt * x for x in completion.entropies),
            )
        self.told.append((request, completion))
        return completion


def of_one_branch(engine, sampling):
    """The signals of a branch that is collected alone, and what the engine did for it."""
    plan = dataclasses.replace(SUM, num_branches=1, sampling=sampling)
    unit = collect_unit(engine, plan, Unit(0, 0, 1))
    (branch,) = unit.branches
    return branch, [(r, c) for r, c in engine.told if r.temperature], unit.usage


def mean(values):
    return sum(values) / len(values)


def test_signals_are_what_plain_lists_give(monkeypatch):
    window = 33
    monkeypatch.setattr(signals, "WINDOW", window)
    engine = Watched()
    sampling = dataclasses.replace(SUM.sampling, interval=8)
    branch, intervals, usage = of_one_branch(engine, sampling)
    assert len(intervals) == len(branch.probes) + 1 > 3
    forced = [(r, c) for r, c in engine.told if r.stop]
    tails = [c for r, c in engine.told if not r.stop and not r.temperature]
    assert len(forced) == len(tails) == len(intervals)
    seen, found = [], {name: [] for name in SIGNALS}
    for (_, written), (_, probe), tail in zip(intervals, forced, tails, strict=True):
        before = len(seen)
        seen += written.confidences
        ends = [n for n in range(before + 1, len(seen) + 1) if n >= window]
        found["conf_mean"].append(mean(written.confidences))
        found["conf_tail"].append(mean(seen[-window:]))
        found["conf_low"].append(min((mean(seen[n - window : n]) for n in ends), default=mean(seen)))
        found["logprob_mean"].append(mean(written.logprobs))
        found["probe_p_mean"].append(mean([math.exp(x) for x in probe.logprobs]))
        found["probe_p_geo"].append(math.exp(mean(probe.logprobs)))
        found["probe_hedge"].append(float("wait" in tail.text))
        found["eat"].append(probe.entropies[0])
    for name, values in found.items():
        np.testing.assert_array_equal(branch.signals[name], np.array(values, np.float16), name)
        assert len(set(values)) > 1, name
    assert usage.forced == sum(len(c.tokens) for _, c in forced) + sum(len(c.tokens) for c in tails)
    # What is forced after the end does not see the token of the end, and changes no answer.
    assert END in intervals[-1][1].tokens
    assert not any(END in request.prompt for request, _ in forced)
    assert branch.final == "".join(filter(str.isdigit, intervals[-1][1].text))[-1]


def test_a_model_that_thinks_is_asked_what_it_says_after_its_thinking():
    engine = Watched()
    engine.tokenizer.thinking = tags("</think>")
    branch, intervals, usage = of_one_branch(engine, Sampling(interval=20, max_tokens=100, signals=("eat",)))
    ends = [(r, c) for r, c in engine.told if r.max_tokens == 1]
    assert len(ends) == len(intervals)
    for request, _ in ends:
        assert bytes(request.prompt).endswith(b"\n</think>\n\n")
    np.testing.assert_array_equal(branch.signals["eat"], np.float16([c.entropies[0] for _, c in ends]))
    assert not any(r.logprobs for r, _ in intervals)
    assert usage.forced == sum(map(len, [c.tokens for r, c in engine.told if not r.temperature]))


def test_confidence_and_entropy_of_known_distributions():
    even = np.full((1, 20), math.log(1 / 25))
    ((confidence,), (entropy,)) = signals.reduce_top(even)
    assert confidence == pytest.approx(math.log(25))
    assert entropy == pytest.approx(0.8 * math.log(25) - 0.2 * math.log(0.2))
    sure = np.array([[0.0, *[-1000.0] * 19]])
    assert signals.reduce_top(sure) == ((950.0,), (0.0,))


@pytest.mark.parametrize(
    ("text", "hedging"),
    [
        (" Wait, 3", 1),
        ("\n\nHold on", 1),
        ("} but", 1),
        (" Hmmm.", 1),
        ("no", 1),
        ("I know, nothing", 0),
        ("", 0),
    ],
)
def test_hedging(text, hedging):
    assert signals.hedges(text) == hedging


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"signals": ("colour",)}, "a model tells no signal 'colour'; it tells conf_low, conf_mean"),
        ({"signals": "eat"}, "signals is 'eat', but it must be a tuple of names"),
        ({"signals": ("probe_hedge",)}, "probe_hedge is seen in what follows .* probe_tail is 0; make it 16"),
        ({"probe_tail": -1}, "probe_tail is -1"),
    ],
)
def test_signals_that_cannot_be_told_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        Sampling(**wrong)


def test_a_collection_has_the_signals_that_it_kept(tmp_path):
    data = collect(SUM, tmp_path / "run", LocalWorkers(SimulatedEngine(mean_tokens=30)))
    (unit,) = (json.loads(path.read_text()) for path in (tmp_path / "run" / "units").iterdir())
    for name in SIGNALS:
        values = signals_of(data)[name][0]
        for row, branch, length in zip(values, unit["branches"], data.matrix.lengths[0], strict=True):
            np.testing.assert_array_equal(row[: length + 1], branch["signals"][name])
    assert 1 in [branch["tokens"] // 21 + 1 for branch in unit["branches"]]  # one of one interval
    assert_same_signals(at.load(tmp_path / "run"), data)
    assert_same_signals(read_json(tmp_path / "run" / "matrix.json"), data)


def test_signals_change_neither_answers_nor_tokens(tmp_path):
    told = collect(SUM, tmp_path / "told", LocalWorkers(SimulatedEngine()))
    plain = dataclasses.replace(SUM, sampling=dataclasses.replace(SUM.sampling, signals=(), probe_tail=0))
    data = collect(plain, tmp_path / "plain", LocalWorkers(SimulatedEngine()))
    assert not data.matrix.signals
    for name in ("answers", "tokens", "lengths", "gold"):
        np.testing.assert_array_equal(getattr(told.matrix, name), getattr(data.matrix, name))


class Silent(SimulatedEngine):
    """Says nothing of the probabilities of some of its tokens."""

    def complete(self, request):
        completion = super().complete(request)
        return dataclasses.replace(completion, logprobs=None) if request.seed % 5 == 0 else completion


def test_a_collection_has_no_signal_that_was_not_told_throughout(tmp_path):
    data = collect(SUM, tmp_path / "run", LocalWorkers(Silent()))
    assert not {"logprob_mean", "probe_p_mean", "probe_p_geo"} & set(data.matrix.signals)
    assert {"conf_mean", "eat", "probe_hedge"} <= set(data.matrix.signals)


# --- what is wrong


BAD_JSON = {
    "no object": (change(1, "signals", to=[1]), 1, None, "signals is [1]; make it an object"),
    "no list": (change(1, "signals", "eat", to=3), 1, None, "the signal 'eat' is 3; make it a list"),
    "no rows": (change(1, "signals", "eat", 1, to=3), 1, 1, "the signal 'eat' is 3; make it a list"),
    "fewer branches": (
        change(1, "signals", "eat", to=[[1, 2, 3]]),
        1,
        None,
        "the signal 'eat' has 1 entries and final_answers_trace 2",
    ),
    "another length": (
        change(1, "signals", "eat", 1, to=[1]),
        1,
        1,
        "the signal 'eat' has 1 values, and the branch 1 probes and a final answer; give one for each",
    ),
    "text": (change(1, "signals", "eat", 1, 0, to="1"), 1, 1, "the signal 'eat' has '1'; make it a number"),
    "bool": (change(1, "signals", "eat", 1, 0, to=True), 1, 1, "the signal 'eat' has True; make it a number"),
    "null": (change(1, "signals", "eat", 1, 0, to=None), 1, 1, "the signal 'eat' has None"),
    "NaN": (
        change(1, "signals", "eat", 1, 0, to=np.nan),
        1,
        1,
        "the signal eat is nan at depth 1; give every",
    ),
    "infinite": (change(0, "signals", "eat", 0, 2, to=-np.inf), 0, 0, "the signal eat is -inf at depth 3"),
    "too large": (change(0, "signals", "eat", 0, 1, to=65536), 0, 0, "the signal eat is inf at depth 2"),
    "much too large": (
        change(0, "signals", "eat", 0, 1, to=10**400),
        0,
        0,
        "the signal eat is inf at depth 2",
    ),
    "missing name": (
        change(1, "signals", to={"eat": QUESTION["signals"]["eat"]}),
        1,
        None,
        "its signals are eat, and eat, low in question 0; give every question the same",
    ),
    "missing names": (change(1, "signals", to={}), 1, None, "its signals are none, and eat, low in"),
}


@pytest.mark.parametrize(("mutate", "q", "b", "words"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_signals_in_json_are_named(cell, mutate, q, b, words):
    items = json.loads(json.dumps([QUESTION, OTHER]))
    mutate(items)
    cell.write_text(json.dumps(items))
    with pytest.raises(DataError) as error:
        read_json(cell)
    place = f"{cell}, question {q}" + (f", branch {b}" if b is not None else "")
    assert str(error.value).startswith(f"{place}: {words}")


@pytest.mark.parametrize("name", ["", "A", "1st", "a b", "a.b", "x" * 41, "../x"])
def test_a_name_that_no_signal_can_have(cell, name):
    dataset = read_json(cell)
    values = dataset.matrix.signals["eat"]
    with pytest.raises(InputError, match=re.escape(f"a signal cannot be named {name!r}; use")):
        dataset.with_signals({name: values})
    items = [QUESTION | {"signals": {name: QUESTION["signals"]["eat"]}}]
    cell.write_text(json.dumps(items))
    with pytest.raises(DataError, match=re.escape(f"a signal cannot be named {name!r}; use")):
        read_json(cell)


BAD_ARRAYS = {
    "float64": (np.zeros(10), "signal.eat is float64 of shape (10,); make it flat float16"),
    "padded": (np.zeros((2, 2, 3), np.float16), "signal.eat is float16 of shape (2, 2, 3); make it flat"),
    "integers": (np.zeros(10, np.int16), "signal.eat is int16"),
    "another length": (np.zeros(9, np.float16), "eat has 9 entries, and the lengths add up to 10"),
    "NaN": (
        np.array([0] * 9 + [np.nan], np.float16),
        "question 1, branch 1: the signal eat is nan at depth 2",
    ),
}


@pytest.mark.parametrize(("array", "words"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_signals_in_a_compact_file_are_named(cell, tmp_path, array, words):
    path = tmp_path / "x.npz"
    write_compact(read_json(cell), path)
    np.savez(path, **(dict(np.load(path)) | {"signal.eat": array}))
    with pytest.raises(DataError) as error:
        read_compact(path)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)


def test_more_signals_than_fit_are_refused_before_they_are_padded(cell, tmp_path, monkeypatch):
    write_compact(read_json(cell), tmp_path / "x.npz")
    monkeypatch.setattr("autotts_jax.replay.flat.MAX_ENTRIES", 12 * 3 - 1)
    with pytest.raises(DataError, match="3 depths × 3 arrays, the answers and signals, as many"):
        read_compact(tmp_path / "x.npz")


BAD_VALUES = {
    "float64": (lambda values: values.astype(np.float64), "float64 of shape (2, 2, 3); make it float16"),
    "wrong shape": (
        lambda values: values[..., 0],
        "float16 of shape (2, 2); make it float16 of shape (2, 2, 3)",
    ),
    "another length": (lambda values: values[..., :2], "float16 of shape (2, 2, 2); make it"),
    "no array": (lambda values: values.tolist(), "[[[0.5"),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_arrays_are_refused(cell, spoil, words):
    dataset = read_json(cell)
    with pytest.raises(InputError) as error:
        dataset.with_signals({"eat": spoil(dataset.matrix.signals["eat"])})
    assert str(error.value).startswith(f"the signal eat is {words}")


def test_a_depth_without_a_value_is_refused(cell):
    dataset = read_json(cell)
    values = dataset.matrix.signals["eat"].copy()
    values[1, 0, 1] = np.nan
    with pytest.raises(InputError, match=r"^question 1, branch 0: the signal eat is nan at depth 2; give"):
        dataset.with_signals({"eat": values})
    with pytest.raises(InputError, match="it must be a mapping from names to arrays"):
        dataset.with_signals([values])


# --- what pools show


def test_a_pool_shows_a_signal_at_the_deepest_revealed_depth():
    matrix = noise(as_dataset(random_matrix(3)), "a", "b").matrix
    order = np.array([4, 1, 5, 0], np.int32)
    values, lengths = np.asarray(matrix.signals["a"])[1], matrix.lengths[1]
    pool = begin_pool(matrix, 1, order)
    assert view_of(pool).signals == ("a", "b")
    unprobed = np.zeros(4, bool)

    def shown(pool, *depths):
        found = signal(pool)
        assert found.dtype == np.float32
        expected = [
            values[branch, depth - 1] if depth else np.nan
            for branch, depth in zip(order, [*depths, 0, 0, 0, 0], strict=False)
        ]
        np.testing.assert_array_equal(found, np.array(expected, np.float32))

    def step(pool, probe=None, **parts):
        nothing = {"prune": np.zeros(4, bool), "open": 0, "advance": np.zeros(4, int), "read": 0}
        return compiled(pool, Action(**nothing | parts, probe=probe))

    compiled, signal = jax.jit(ReplayPool.step), jax.jit(lambda pool: pool.view().signal("a"))
    shown(pool)
    pool = step(pool, open=2)
    shown(pool, 1, 1)
    pool = step(pool, open=1, probe=unprobed)
    shown(pool, 1, 1)
    deeper = step(pool, advance=np.array([1, 1, 0, 0]), probe=unprobed)
    shown(deeper, 1, 1)
    shown(step(deeper, probe=np.array([True, False, True, False])), 2, 1, 1)
    shown(step(pool, prune=np.ones(4, bool)), 1, 1)
    shown(step(pool, advance=np.full(4, 99)), *(lengths[order[:3]] + 1))
    shown(step(pool, read=1), 1, 1, 0, lengths[order[3]] + 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sure(at.Controller):
    """Prunes branches whose signal is low, and lets the others vote by it; a depth is not probed."""

    least: float = -1.5
    signals = ("logprob_mean",)

    def init(self, view):  # noqa: ARG002
        return None, at.Action(open=3)

    def act(self, memory, view):
        low = view.signal("logprob_mean") < self.least
        reads = view.live & ~low
        opened = jnp.arange(view.width) == view.opened
        return memory, at.Action(
            at.first_of((~jnp.any(reads), at.StopReason.EXHAUSTED)),
            prune=low,
            open=1,
            advance=reads.astype(jnp.int32),
            probe=opened | ((view.depth + reads) % 3 > 0),
        )

    def answer(self, memory, view):  # noqa: ARG002
        weights = jnp.exp(view.signal("logprob_mean"))
        return view.vote(view.active, weights=weights).or_else(view.vote(view.depth > 0))


@pytest.fixture(scope="module")
def data():
    plain = synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=4, branches=12)
    return noise(plain, "logprob_mean", "unread")


@pytest.mark.slow
def test_a_controller_that_reads_a_signal_plays_the_same_everywhere(data):
    check_controller(Sure(), data, max_branches=8, episodes=8)


def with_signals(*names, **methods):
    return jax.tree_util.register_dataclass(
        dataclasses.dataclass(frozen=True)(type("Other", (Sure,), {"signals": names, **methods}))
    )()


def test_signals_that_are_not_there_are_refused_before_anything_is_played(data):
    missing = r"reads the signal eat, and the data has logprob_mean, unread; use data"
    with pytest.raises(InputError, match=missing):
        at.evaluate(data, ["sc@4", with_signals("eat")], seeds=1, max_branches=8)
    with pytest.raises(InputError, match=missing):
        at.trace(data, with_signals("eat"), max_branches=8)
    with pytest.raises(InputError, match=r"reads the signal unread, and the data has conf_low, .*; use data"):
        check_controller(with_signals("unread"))
    undeclared = with_signals("unread")
    for play in (
        lambda: at.evaluate(data, undeclared, seeds=1, max_branches=8),
        lambda: at.trace(data, undeclared, max_branches=8),
    ):
        with pytest.raises(
            InputError, match=r"view\.signal\('logprob_mean'\): the view shows unread; a contr"
        ):
            play()


@pytest.mark.parametrize("signals", ["logprob_mean", ["logprob_mean"], ("A B",), (3,)])
def test_names_that_no_signals_have_are_refused(signals, data):
    kind = jax.tree_util.register_dataclass(
        dataclasses.dataclass(frozen=True)(type("Other", (Sure,), {"signals": signals}))
    )
    for play in (at.evaluate, check_controller):
        with pytest.raises(InputError, match=r"Other\.signals.* (tuple of names|be named)"):
            play(*((data, kind()) if play is at.evaluate else (kind(), data)), max_branches=8)


def test_the_data_of_a_matrix_are_checked_where_they_are_read(data):
    wide = dataclasses.replace(data.matrix, signals={"logprob_mean": np.zeros(data.matrix.answers.shape)})
    with pytest.raises(InputError, match=r"the signal logprob_mean is float64 of shape .*; make it float16"):
        at.evaluate(dataclasses.replace(data, matrix=wide), Sure(), seeds=1, max_branches=8)


@pytest.mark.slow
def test_sealed_controllers_read_signals(data):
    path = f"{Path(__file__).with_name('signal_reader.py')}:Reader"
    sealed = at.evaluate(data, path, seeds=2, max_branches=8)
    trusted = at.evaluate(data, path, seeds=2, max_branches=8, sealing=at.Sealing(sandbox=at.Sandbox("none")))
    assert sealed.plays[0].seal.checks
    for name in ("answer", "tokens", "branches", "stop_reason"):
        np.testing.assert_array_equal(getattr(sealed.plays[0], name), getattr(trusted.plays[0], name))
    assert at.trace(data, path, max_branches=8).answer == sealed.plays[0].answer[0, 0, 0]
    with pytest.raises(InputError, match="Reader reads the signal logprob_mean, and the data has none"):
        at.evaluate(data.with_signals({}), path, seeds=1, max_branches=8)


def test_an_environment_that_observes_no_signals_shows_none(data):
    env = gym.make("autotts_jax:WidthDepth-v0", data=data, max_branches=8, obs="history")
    with pytest.raises(InputError, match="Sure reads the signal logprob_mean, and this episode shows none"):
        play_in_environment(Sure(), env)


# --- live


QUESTIONS = (Problem("What is 2 + 2?", "4"), Problem("What is 3 + 3?", "6"))
SAMPLING = Sampling(interval=20, max_tokens=100)


@pytest.mark.slow
def test_live_branches_show_what_a_collection_records(tmp_path):
    told = dataclasses.replace(SAMPLING, signals=("logprob_mean",))
    plan = Plan("simulated", "sums", QUESTIONS, num_branches=8, sampling=told)
    data = collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine(mean_tokens=60)))
    least = float(np.nanmedian(data.matrix.signals["logprob_mean"]))
    run = at.answer_questions(
        SimulatedEngine(mean_tokens=60),
        QUESTIONS,
        Sure(least),
        out=tmp_path / "live",
        sampling=SAMPLING,
        max_branches=8,
        collection=tmp_path / "run",
    )
    assert all(row.same_answer and row.same_tokens and row.same_stop_reason for row in run.compared)
    pruned = at.trace(data, Sure(least), max_branches=8, recorded=True).pruned
    assert 0 < sum(pruned) < len(pruned)


@pytest.mark.parametrize("whole", [False, True])
def test_live_pools_show_all_signals_as_a_replay_does(tmp_path, whole):
    engine = SimulatedEngine(mean_tokens=60)
    data = collect(SUM, tmp_path / "run", LocalWorkers(engine))
    assert_live_shows(engine, SUM, data, whole)


def test_what_follows_an_answer_has_to_be_asked_for():
    with pytest.raises(InputError, match=r"dynasor reads what live .*: the signal probe_hedge .* is 0; make"):
        at.answer(SimulatedEngine(), "What is 2 + 2?", "dynasor@3", sampling=SAMPLING)
    told = {"sampling": dataclasses.replace(SAMPLING, probe_tail=8), "max_branches": 8}
    assert at.answer(SimulatedEngine(), "What is 2 + 2?", "dynasor@3", **told).answer


def test_a_signal_that_no_model_tells_is_named():
    with pytest.raises(InputError, match=r"Other\(-1.5\) reads .*: a model tells no signal 'unread'"):
        at.answer(SimulatedEngine(), "What is 2 + 2?", with_signals("unread"), sampling=SAMPLING)


def test_an_engine_that_does_not_tell_is_named():
    with pytest.raises(
        InputError, match="the engine of simulated did not tell the signal logprob_mean; choose a contr"
    ):
        at.answer(Silent(), "What is 2 + 2?", Sure(), sampling=SAMPLING, max_branches=8)
