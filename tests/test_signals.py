"""Signals: what every format keeps of them, and what is said about bad ones."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
from matrices import as_dataset, random_matrix

import autotts_jax as at
from autotts_jax.cli.app import app
from autotts_jax.collect import LocalWorkers, Plan, Problem, Sampling, SimulatedEngine, collect
from autotts_jax.errors import DataError, InputError
from autotts_jax.replay import cell_statistics, read_compact, read_json, stack, write_compact, write_json

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


def test_a_collection_has_the_log_probabilities_that_it_kept(tmp_path):
    plan = Plan(
        "simulated",
        "sums",
        (Problem("What is 2 + 2?", "4"),),
        num_branches=8,
        sampling=Sampling(interval=20, max_tokens=100, logprobs=True),
    )
    data = collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine(mean_tokens=30)))
    (unit,) = (json.loads(path.read_text()) for path in (tmp_path / "run" / "units").iterdir())
    values = signals_of(data)["logprob_mean"][0]
    assert {len(branch["logprobs"]) for branch in unit["branches"]} >= {1, 2}
    for row, branch, length in zip(values, unit["branches"], data.matrix.lengths[0], strict=True):
        told = branch["logprobs"] * 2 if len(branch["logprobs"]) == 1 else branch["logprobs"]
        np.testing.assert_array_equal(row[: length + 1], np.array(told, np.float16))
    assert_same_signals(at.load(tmp_path / "run"), data)
    assert_same_signals(read_json(tmp_path / "run" / "matrix.json"), data)


class Silent(SimulatedEngine):
    """Says nothing of the probabilities of some of its tokens."""

    def complete(self, request):
        completion = super().complete(request)
        return dataclasses.replace(completion, mean_logprob=None) if request.seed % 5 == 0 else completion


def test_a_collection_of_which_some_were_not_told_has_no_signal(tmp_path):
    plan = Plan(
        "simulated",
        "sums",
        (Problem("What is 2 + 2?", "4"),),
        num_branches=8,
        sampling=Sampling(interval=20, max_tokens=100, logprobs=True),
    )
    data = collect(plan, tmp_path / "run", LocalWorkers(Silent()))
    assert not data.matrix.signals


# --- what is wrong


def change(*place, to):
    def apply(items):
        for key in place[:-1]:
            items = items[key]
        items[place[-1]] = to

    return apply


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
