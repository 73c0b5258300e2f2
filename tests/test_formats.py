"""File formats: what they read, that they lose nothing, and what they say about bad files."""

import copy
import dataclasses
import hashlib
import io
import json
import os
import sys

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from release_files import ITEMS, cells, change, question

from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.evaluation import evaluate
from autotts_jax.replay import read_compact, read_files, read_json, write_compact, write_json
from autotts_jax.replay.compact import FORMAT, VERSION
from autotts_jax.replay.dataset import EQUIV, EXACT, stack
from autotts_jax.replay.matrix import NONE


@pytest.fixture
def write_cell(tmp_path):
    """A function that writes questions as one AutoTTS JSON file and returns its path."""

    def write(items, name="model/bench.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(items), encoding="utf-8")
        return path

    return write


def raw(item):
    """The same question as Parallel-Probe records it."""
    width = max(len(probes) for probes, _, _ in item["each_branch"])
    return {key: value for key, value in item.items() if key != "each_branch"} | {
        "probe_matrix_mxn": [probes + [None] * (width - len(probes)) for probes, _, _ in item["each_branch"]],
        "branch_tokens": [tokens for _, tokens, _ in item["each_branch"]],
    }


def assert_same(left, right):
    assert left.questions == right.questions
    assert left.cells == right.cells
    assert left.encoding == right.encoding
    assert left.matrix.vocabulary == right.matrix.vocabulary
    for name in ("answers", "lengths", "tokens", "gold", "interval", "cell"):
        a, b = getattr(left.matrix, name), getattr(right.matrix, name)
        assert type(a) is type(b) is np.ndarray
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# --- reading JSON


def test_reads_the_released_json(write_cell):
    path = write_cell(ITEMS, "Qwen3-8B/aime24.json")
    dataset = read_json(path)
    matrix = dataset.matrix
    assert [q.vocabulary for q in dataset.questions] == [("1", "7", "ERR"), ("2", "3", "4", "9")]
    assert [(q.index, q.text, q.gold) for q in dataset.questions] == [
        (0, "How many?", "7"),
        (1, "Which?", "9"),
    ]
    np.testing.assert_array_equal(
        matrix.answers,
        [
            [[0, 1, 1, NONE], [2, 0, NONE, NONE]],
            [[0, 0, NONE, NONE], [1, 0, 0, 2]],
        ],
    )
    np.testing.assert_array_equal(matrix.lengths, [[2, 1], [1, 3]])
    np.testing.assert_array_equal(matrix.tokens, [[900, 700], [400, 1400]])
    np.testing.assert_array_equal(matrix.gold, [1, 3])
    np.testing.assert_array_equal(matrix.interval, [500, 500])
    np.testing.assert_array_equal(matrix.cell, [0, 0])
    assert matrix.vocabulary == 4
    assert [leaf.dtype for leaf in jax.tree.leaves(matrix)] == [
        np.int16, np.int32, np.int32, np.int16, np.int32, np.int32
    ]  # fmt: skip
    (cell,) = dataset.cells
    assert (cell.name, cell.num_branches, cell.source) == ("Qwen3-8B/aime24", 2, str(path))
    assert cell.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_cell_can_be_named(write_cell):
    assert read_json(write_cell(ITEMS), model="M", benchmark="B").cells[0].name == "M/B"


def test_the_folder_names_the_model_of_a_bare_file_name(write_cell, monkeypatch):
    monkeypatch.chdir(write_cell(ITEMS).parent)
    cell = read_json("bench.json").cells[0]
    assert (cell.name, cell.source) == ("model/bench", "bench.json")


@pytest.mark.parametrize("form", ["raw lines", "raw list", "released lines", "windows"])
def test_content_decides_the_format_and_not_the_ending(write_cell, form):
    path = write_cell(ITEMS)
    expected = read_json(path)
    text = {
        "raw lines": "\n".join(json.dumps(raw(item)) for item in ITEMS) + "\n\n",
        "raw list": json.dumps([raw(item) for item in ITEMS]),
        "released lines": "\n".join(map(json.dumps, ITEMS)),
        "windows": "\ufeff" + json.dumps(ITEMS, indent=1).replace("\n", "\r\n"),
    }[form]
    path.write_text(text, encoding="utf-8", newline="")
    found = read_json(path)
    cell = dataclasses.replace(found.cells[0], sha256=expected.cells[0].sha256)
    assert_same(dataclasses.replace(found, cells=(cell,)), expected)


def test_a_line_separator_inside_a_string_ends_no_line(write_cell):
    path = write_cell(ITEMS)
    path.write_text(json.dumps(ITEMS[0] | {"question": "a\u2028b"}, ensure_ascii=False), encoding="utf-8")
    assert read_json(path).questions[0].text == "a\u2028b"


def test_a_gold_that_nobody_gave_has_an_id_of_its_own(write_cell):
    matrix = read_json(write_cell([ITEMS[1]])).matrix
    assert matrix.gold[0] == 3
    assert not (matrix.answers == 3).any()


# --- bad JSON: (change of ITEMS, question, branch, words of the message)


def drop(*place):
    def apply(items):
        for key in place[:-1]:
            items = items[key]
        del items[place[-1]]

    return apply


def both(*changes):
    def apply(items):
        for each in changes:
            each(items)

    return apply


def trace(q, b, answer):
    return change(q, "final_answers_trace", b, to=answer)


BAD_QUESTIONS = {
    "question is no object": (change(1, to="x"), 1, None, "an object"),
    "missing key": (drop(1, "each_branch"), 1, None, "no each_branch"),
    "missing keys": (both(drop(1, "question"), drop(1, "probe_freq")), 1, None, "no question, probe_freq"),
    "question is no string": (change(1, "question", to=3), 1, None, "question is 3; make it a string"),
    "branches are no list": (change(1, "each_branch", to={}), 1, None, "each_branch is {}; make it a list"),
    "no branches": (
        both(change(1, "each_branch", to=[]), change(1, "final_answers_trace", to=[])),
        1,
        None,
        "no branches",
    ),
    "branch is no list": (change(1, "each_branch", 1, to="x"), 1, 1, "a list"),
    "branch is no triple": (drop(1, "each_branch", 1, 2), 1, 1, "2 entries"),
    "probes are no list": (change(1, "each_branch", 1, 0, to="32"), 1, 1, "a list"),
    "no probes": (change(1, "each_branch", 1, 0, to=[]), 1, 1, "no probes"),
    "probe is no string": (change(1, "each_branch", 1, 0, 2, to=2), 1, 1, "probe 2 is 2; make it a string"),
    "probe is null": (change(1, "each_branch", 1, 0, 2, to=None), 1, 1, "probe 2 is None"),
    "final is no string": (
        both(change(1, "each_branch", 1, 2, to=4), trace(1, 1, 4)),
        1,
        1,
        "final answer is 4",
    ),
    "tokens are negative": (change(1, "each_branch", 1, 1, to=-3), 1, 1, "-3 tokens; give a number from 1"),
    "tokens are zero": (change(1, "each_branch", 1, 1, to=0), 1, 1, "0 tokens"),
    "tokens are too many": (change(1, "each_branch", 1, 1, to=2**31), 1, 1, "2147483648 tokens"),
    "tokens are a float": (change(1, "each_branch", 1, 1, to=900.0), 1, 1, "900.0; make it an integer"),
    "tokens are NaN": (change(1, "each_branch", 1, 1, to=float("nan")), 1, 1, "nan; make it an integer"),
    "tokens are a bool": (change(1, "each_branch", 1, 1, to=True), 1, 1, "True; make it an integer"),
    "fewer branches": (
        both(drop(1, "each_branch", 1), drop(1, "final_answers_trace", 1)),
        1,
        None,
        "1 branch, and 2 in question 0",
    ),
    "trace too short": (drop(1, "final_answers_trace", 1), 1, None, "final_answers_trace has 1 entries"),
    "trace disagrees": (trace(1, 1, "5"), 1, 1, "'4' in each_branch and '5' in final_answers_trace"),
    "gold is missing": (drop(1, "gold_answer"), 1, None, "no gold_answer"),
    "gold is null": (change(1, "gold_answer", to=None), 1, None, "unknown gold"),
    "gold is empty": (change(1, "gold_answer", to=" "), 1, None, "unknown gold"),
    "gold stands for none": (change(1, "gold_answer", to="ERR"), 1, None, "unknown gold: it is ERR"),
    "gold is a number": (change(1, "gold_answer", to=204), 1, None, "unknown gold: gold_answer is 204"),
    "interval differs": (
        change(1, "probe_freq", to=250),
        1,
        None,
        "probe_freq is 250, and 500 in question 0",
    ),
    "interval is zero": (change(1, "probe_freq", to=0), 1, None, "probe_freq is 0"),
    "interval is a bool": (
        change(1, "probe_freq", to=True),
        1,
        None,
        "probe_freq is True; make it an integer",
    ),
    "question comes twice": (change(1, "question", to="How many?"), 1, None, "the same text as question 0"),
    "half a surrogate pair": (change(1, "question", to="\ud800"), 1, None, "surrogate"),
}

BAD_RAW_QUESTIONS = {
    "null in the middle": (change(1, "probe_matrix_mxn", 1, 0, to=None), 1, 1, "probe 0 is None"),
    "only nulls": (change(1, "probe_matrix_mxn", 1, to=[None] * 3), 1, 1, "no probes"),
    "row is no list": (change(1, "probe_matrix_mxn", 1, to="x"), 1, 1, "a list"),
    "tokens too short": (drop(1, "branch_tokens", 1), 1, None, "branch_tokens has 1 entries"),
    "trace too short": (drop(1, "final_answers_trace", 1), 1, None, "final_answers_trace has 1 entries"),
    "no tokens": (drop(1, "branch_tokens"), 1, None, "no branch_tokens"),
    "tokens are a string": (change(1, "branch_tokens", 1, to="9"), 1, 1, "'9'; make it an integer"),
}


def assert_names_the_place(error, path, q, b, words):
    place = f"{path}, question {q}" + (f", branch {b}: " if b is not None else ": ")
    assert str(error.value).startswith(place)
    assert words in str(error.value)


@pytest.mark.parametrize(("mutate", "q", "b", "words"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS)
def test_a_bad_question_is_named(write_cell, mutate, q, b, words):
    items = copy.deepcopy(ITEMS)
    mutate(items)
    path = write_cell(items)
    with pytest.raises(DataError) as error:
        read_json(path)
    assert_names_the_place(error, path, q, b, words)


@pytest.mark.parametrize(("mutate", "q", "b", "words"), BAD_RAW_QUESTIONS.values(), ids=BAD_RAW_QUESTIONS)
def test_a_bad_raw_question_is_named(write_cell, mutate, q, b, words):
    items = [raw(copy.deepcopy(item)) for item in ITEMS]
    mutate(items)
    path = write_cell(items)
    path.write_text("\n".join(map(json.dumps, items)))
    with pytest.raises(DataError) as error:
        read_json(path)
    assert_names_the_place(error, path, q, b, words)


def test_too_many_distinct_answers(write_cell):
    path = write_cell([question("?", [[str(i) for i in range(40_000)], 900, "7"])])
    with pytest.raises(DataError) as error:
        read_json(path)
    assert_names_the_place(error, path, 0, None, "40000 distinct answers, where 32767 are possible")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no questions"),
        (json.dumps(ITEMS, indent=1).encode()[:-40], "line 52, column 3 is not JSON"),
        (b'[{"question": "a"},\n {"question" "b"}]', "line 2, column 14 is not JSON"),
        (json.dumps(ITEMS[0]).encode() + b'\n{"question": ', "line 2, column 14 is not JSON"),
        (b"[]", "holds no questions"),
        (b'"text"', "the question is 'text'; make it an object"),
        (b"{}", "no question, gold_answer, probe_freq"),
        (b"[1" + b"0" * 5000 + b"]", "not readable as JSON"),
        (b"[" * 100_000, "not readable as JSON"),
        (b'["\xff\xfe"]', "line 1 is not UTF-8"),
    ],
    ids=[
        "empty",
        "truncated",
        "syntax",
        "line",
        "no question",
        "text",
        "object",
        "digits",
        "nesting",
        "latin",
    ],
)
def test_a_file_that_is_no_json(write_cell, content, words):
    path = write_cell(ITEMS)
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_json(path)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)


@pytest.mark.parametrize("reader", [read_json, read_compact])
def test_files_that_cannot_be_read(tmp_path, monkeypatch, reader):
    with pytest.raises(DataError, match="No such file"):
        reader(tmp_path / "absent.json")
    with pytest.raises(DataError, match="Is a directory"):
        reader(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match="Permission denied"):
        reader(tmp_path / "secret.json")


def test_unknown_encoding(write_cell):
    with pytest.raises(InputError, match="unknown encoding 'fuzzy'; there are exact, equiv"):
        read_json(write_cell(ITEMS), encoding="fuzzy")
    with pytest.raises(InputError, match="unknown encoding"):
        read_files([write_cell(ITEMS)], encoding="fuzzy")


# --- read


def test_read_takes_folders_patterns_and_files(write_cell, tmp_path):
    a, b = write_cell(ITEMS, "A/x.json"), write_cell(ITEMS, "B/x.json")
    c = tmp_path / "C" / "x.jsonl"
    c.parent.mkdir()
    c.write_text("\n".join(json.dumps(raw(item)) for item in ITEMS))
    write_compact(read_json(write_cell(ITEMS, "other/y.json"), model="D"), tmp_path / "D.npz")
    (tmp_path / "other" / "y.json").unlink()
    (tmp_path / "notes.txt").write_text("not data")
    everything = read_files([tmp_path])
    assert [cell.name for cell in everything.cells] == ["A/x", "B/x", "C/x", "D/y"]
    assert len(everything) == 8
    assert_same(read_files(tmp_path), everything)
    assert_same(read_files([tmp_path / "*" / "x.json*", tmp_path / "D.npz", str(a)]), everything)
    assert_same(read_files([b, a]), stack([read_json(a), read_json(b)]))


@pytest.mark.parametrize("name", ["absent.json", "empty", "*.json"])
def test_nothing_found_names_the_pattern(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing found at") as error:
        read_files([tmp_path / name])
    assert repr(str(tmp_path / name)) in str(error.value)


def test_nothing_asked_for():
    with pytest.raises(InputError, match="no dataset"):
        read_files([])


def test_one_cell_in_two_files(write_cell, tmp_path):
    path = write_cell(ITEMS)
    write_compact(read_json(path), tmp_path / "copy.npz")
    with pytest.raises(
        InputError, match=r"cell model/bench is in .*copy\.npz and in .*bench\.json; give each"
    ):
        read_files([tmp_path])


def test_merged_answers_cannot_be_read_as_exact(write_cell, tmp_path):
    merged = dataclasses.replace(read_json(write_cell(ITEMS)), encoding=EQUIV)
    write_compact(merged, tmp_path / "merged.npz")
    assert_same(read_files([tmp_path / "merged.npz"], EQUIV), merged)
    with pytest.raises(InputError, match=r"merged\.npz: its answers are merged"):
        read_files([tmp_path / "merged.npz"], EXACT)


# --- round trips


@pytest.mark.filterwarnings("ignore:.* have tokens that their probes contradict")  # made up
@given(st.lists(cells(), min_size=1, max_size=3), st.randoms())
def test_nothing_is_lost_in_the_compact_format(tmp_path_factory, drawn, random):
    folder = tmp_path_factory.mktemp("cells")
    datasets = []
    for i, items in enumerate(drawn):
        path = folder / f"{i}.json"
        path.write_text(json.dumps(items))
        datasets.append(read_json(path))
        write_json(datasets[-1], folder / "copy.json")
        assert json.loads((folder / "copy.json").read_text("utf-8")) == items
    dataset = stack(datasets)
    write_compact(dataset, folder / "all.npz")
    loaded = read_compact(folder / "all.npz")
    assert_same(loaded, dataset)

    order = random.sample(range(len(dataset)), random.randint(1, len(dataset)))
    write_compact(dataset.select(order), folder / "some.npz")
    some = read_compact(folder / "some.npz")
    assert some.questions == dataset.select(order).questions
    for row, q in enumerate(order):
        num_branches = dataset.cells[dataset.matrix.cell[q]].num_branches
        for b in range(num_branches):
            depths = dataset.matrix.lengths[q, b] + 1
            np.testing.assert_array_equal(
                some.matrix.answers[row, b, :depths], dataset.matrix.answers[q, b, :depths]
            )
            assert (some.matrix.answers[row, b, depths:] == NONE).all()


def test_device_arrays_can_be_saved(write_cell, tmp_path):
    dataset = read_json(write_cell(ITEMS))
    on_device = dataclasses.replace(dataset, matrix=jax.tree.map(jax.numpy.asarray, dataset.matrix))
    write_compact(on_device, tmp_path / "x.npz")
    assert_same(read_compact(tmp_path / "x.npz"), dataset)
    write_json(on_device, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == ITEMS


def test_a_compact_file_has_the_same_bytes_every_time(write_cell, tmp_path):
    dataset = read_json(write_cell(ITEMS))
    write_compact(dataset, tmp_path / "a.npz")
    write_compact(dataset, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_the_released_cells_survive_both_formats(replay_dir, tmp_path):
    path = replay_dir / "Qwen3-0.6B" / "aime24.json"
    dataset = read_json(path)
    write_json(dataset, tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()
    write_compact(dataset, tmp_path / "copy.npz")
    assert_same(read_compact(tmp_path / "copy.npz"), dataset)


def test_all_released_cells(replay_dir):
    dataset = read_files([replay_dir])
    assert len(dataset.cells) == 8
    assert dataset.matrix.answers.shape == (240, 128, 81)
    assert dataset.matrix.vocabulary == 902
    finals = np.asarray(dataset.matrix.finals())
    last = np.take_along_axis(dataset.matrix.answers, dataset.matrix.lengths[..., None] - 1, axis=2)[..., 0]
    np.testing.assert_array_equal(finals, last)


def test_what_json_cannot_hold(write_cell, tmp_path):
    one, two = read_json(write_cell(ITEMS, "A/x.json")), read_json(write_cell(ITEMS, "B/x.json"))
    holes = dataclasses.replace(
        one.matrix, answers=np.where(one.matrix.answers == 0, NONE, one.matrix.answers)
    )
    for dataset, words in [
        (stack([one, two]), "has 2 in 'exact'"),
        (dataclasses.replace(one, encoding=EQUIV), "has 1 in 'equiv'"),
        (dataclasses.replace(one, matrix=holes), "an answer without text"),
    ]:
        with pytest.raises(InputError, match=words):
            write_json(dataset, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


# --- writing


@pytest.mark.parametrize("write", [write_compact, write_json])
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_write_leaves_everything_as_it_was(write_cell, tmp_path, monkeypatch, write, problem):
    dataset = read_json(write_cell(ITEMS))
    target = tmp_path / "out" / "file"
    target.parent.mkdir()
    target.write_text("old")

    def fail(_):
        raise problem

    monkeypatch.setattr(os, "fsync", fail)
    expected = InputError if isinstance(problem, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        write(dataset, target)
    if expected is InputError:
        assert str(error.value).startswith(f"{target}: cannot be written: No space left on device")
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_writing_into_an_absent_folder(write_cell, tmp_path):
    with pytest.raises(InputError, match="cannot be written: No such file or directory; check its folder"):
        write_compact(read_json(write_cell(ITEMS)), tmp_path / "absent" / "x.npz")


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits are POSIX")
def test_a_written_file_has_the_usual_permissions(write_cell, tmp_path):
    write_compact(read_json(write_cell(ITEMS)), tmp_path / "x.npz")
    (tmp_path / "y").write_text("")
    assert (tmp_path / "x.npz").stat().st_mode == (tmp_path / "y").stat().st_mode


# --- bad compact files


@pytest.fixture
def compact(write_cell, tmp_path):
    path = tmp_path / "x.npz"
    write_compact(stack([read_json(write_cell(ITEMS)), read_json(write_cell(ITEMS, "other/x.json"))]), path)
    return path


def rewrite(path, arrays=(), text=()):
    """Changes entries of the arrays and, by a function, of the text."""
    content = dict(np.load(path))
    described = json.loads(content["text"].tobytes())
    if text:
        text(described)
    content["text"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    np.savez(path, **(content | dict(arrays)))


def entry(name, index, value):
    def arrays(path):
        array = np.load(path)[name].copy()
        array[index] = value
        return {name: array}

    return arrays


def fields(name):
    return lambda path: {name: np.load(path)[name][:-1]}


BAD_ARRAYS = {
    "floats": (
        lambda _: {"answers": np.zeros(20)},
        "answers is float64 of shape (20,); make it flat int16",
    ),
    "NaN": (lambda _: {"tokens": np.full(8, np.nan)}, "tokens is float64 of shape"),
    "wide integers": (lambda _: {"gold": np.zeros(4, np.int64)}, "gold is int64"),
    "two dimensions": (
        lambda _: {"lengths": np.ones((4, 2), np.int32)},
        "lengths is int32 of shape (4, 2)",
    ),
    "objects": (lambda _: {"gold": np.array([{}, 1], object)}, "not a complete .npz archive"),
    "another array": (lambda _: {"more": np.zeros(1)}, "'more'"),
    "answer out of range": (entry("answers", 3, 3), "question 0, branch 1: an answer is not an id"),
    "last answer out of range": (entry("answers", -1, 4), "question 3, branch 1: an answer is not an id"),
    "answer below NONE": (entry("answers", 0, -2), "question 0, branch 0: an answer is not an id"),
    "gold out of range": (entry("gold", 2, 3), "question 2: its gold is not an id"),
    "gold NONE": (entry("gold", 2, -1), "question 2: its gold is not an id"),
    "length zero": (entry("lengths", 5, 0), "question 2, branch 1: no probes"),
    "tokens zero": (entry("tokens", 2, 0), "question 1, branch 0: fewer tokens than 1"),
    "interval zero": (entry("interval", 1, 0), "question 1: its interval is below 1"),
    "cell without questions": (entry("cell", slice(2, 4), 0), "the cell other/x has no question; leave"),
    "cell out of range": (entry("cell", 3, 2), "question 3: its cell is none of the 2"),
    "cell negative": (entry("cell", 3, -1), "question 3: its cell is none of the 2"),
    "two intervals in a cell": (
        entry("interval", 1, 250),
        "its interval is not its cell's",
    ),
    "longer branch": (entry("lengths", 0, 3), "answers has 22 entries, and the lengths add up to 23"),
    "huge branch": (entry("lengths", 0, 2**31 - 1), "answers has 22 entries"),
    "answers too short": (fields("answers"), "answers has 21 entries"),
    "tokens too short": (fields("tokens"), "tokens has 7 entries for 8 branches"),
    "gold too short": (fields("gold"), "gold has 3 entries for 4 questions"),
    "text is no JSON": (lambda _: {"text": np.zeros(5, np.uint8)}, "its text is not JSON"),
}


@pytest.mark.parametrize(("arrays", "words"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays_are_named(compact, arrays, words):
    rewrite(compact, arrays(compact))
    with pytest.raises(DataError) as error:
        read_compact(compact)
    assert str(error.value).startswith(str(compact))
    assert words in str(error.value)


def test_an_archive_of_something_else_is_named_in_its_folder(compact):
    np.savez(compact.parent / "theirs.npz", weights=np.zeros(3))
    with pytest.raises(DataError) as error:
        read_files(compact.parent)
    theirs = compact.parent / "theirs.npz"
    assert str(error.value).startswith(f"{theirs}: no compact file: it holds the arrays ['weights'], and")
    assert "move it out of the folder or name the files to read" in str(error.value)


BAD_TEXTS = {
    "another version": (change("version", to=2), "version 2, and this autotts_jax reads"),
    "version is a string": (change("version", to="1"), "version is '1'; make it an integer"),
    "another format": (change("format", to="zip"), "it is 'zip' version 1"),
    "no format": (drop("format"), "the text has no format"),
    "unknown encoding": (change("encoding", to="fuzzy"), "unknown encoding 'fuzzy'"),
    "no cells": (change("cells", to=[]), "0 cells and 4 questions"),
    "cell without model": (drop("cells", 1, "model"), "the cell has no model"),
    "cell without branches": (change("cells", 1, "num_branches", to=0), "num_branches"),
    "cell with more branches": (change("cells", 1, "num_branches", to=3), "lengths has 8 entries for 10"),
    "cell with endless branches": (change("cells", 1, "num_branches", to=10**30), "num_branches"),
    "cell twice": (
        both(change("cells", 1, "model", to="model"), change("cells", 1, "benchmark", to="bench")),
        "a cell occurs twice",
    ),
    "no question": (change("questions", to=[]), "2 cells and 0 questions"),
    "a question too few": (drop("questions", 3), "gold has 4 entries for 3 questions"),
    "question without gold": (drop("questions", 2, "gold"), "question 2: the question has no gold"),
    "answer is no string": (change("questions", 2, "vocabulary", 0, to=1), "question 2: an answer in its"),
    "answer twice": (change("questions", 2, "vocabulary", 0, to="7"), "question 2: an answer occurs twice"),
    "index too large": (change("questions", 2, "index", to=10**30), "question 2: its index 1e+30 is not in"),
    "index negative": (change("questions", 2, "index", to=-1), "question 2: its index -1 is not in"),
    "question twice": (change("questions", 1, "index", to=0), "question 1: the same index as question 0"),
    "the same text": (change("questions", 1, "text", to="How many?"), "question 1: the same text as"),
    "empty gold": (
        both(change("questions", 1, "gold", to=" "), change("questions", 1, "vocabulary", 3, to=" ")),
        "question 1: unknown gold: it is empty",
    ),
    "half a surrogate pair": (change("questions", 1, "text", to="\ud800"), "question 1: holds half of a"),
    "half a surrogate pair in a name": (
        change("cells", 1, "source", to="\ud800"),
        "the cell other/x has a name that is not UTF-8",
    ),
    "another gold": (change("questions", 1, "gold", to="no"), "question 1: its gold answer is 'no', but its"),
    "vocabulary too short": (
        change("questions", 2, "vocabulary", to=["1", "7"]),
        "question 2, branch 1: an answer",
    ),
    "text is a list": (None, "the text is [1]; make it an object"),
}


@pytest.mark.parametrize(("mutate", "words"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_bad_text_is_named(compact, mutate, words):
    if mutate is None:
        rewrite(compact, {"text": np.frombuffer(b"[1]", np.uint8)})
    else:
        rewrite(compact, text=mutate)
    with pytest.raises(DataError) as error:
        read_compact(compact)
    assert str(error.value).startswith(str(compact))
    assert words in str(error.value)


@pytest.mark.filterwarnings("ignore:.* have tokens that their probes contradict")  # made up
@pytest.mark.parametrize(("tokens", "interval"), [(2**30 - 1, 500), (1, 2**29 - 1)])
def test_no_more_tokens_than_can_be_counted(write_cell, tokens, interval):
    most = write_cell([question("How many?", *[(["1"], tokens, "7")] * 2, interval=interval)])
    play = evaluate(read_json(most), ["sc@2", "cmc@0.5"], max_branches=2, seeds=1).episodes()
    assert play["tokens"].to_pylist()[0] == 2 * tokens
    assert min(play["tokens"].to_pylist()) > 0
    tokens, interval = (tokens + 1, interval) if interval == 500 else (tokens, interval + 1)
    more = write_cell([question("How many?", *[(["1"], tokens, "7")] * 2, interval=interval)])
    with pytest.raises(DataError, match=r"question 0: 2 branches of up to .* can be counted"):
        read_json(more)


def test_damaged_archives(compact):
    whole, expected = compact.read_bytes(), read_compact(compact)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        compact.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"not a complete \.npz archive"):
            read_compact(compact)
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        compact.write_bytes(damaged)
        try:
            found = read_compact(compact)
        except DataError:
            continue
        assert_same(found, expected)  # some bytes of a zip archive mean nothing


def test_an_array_is_no_archive(compact):
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    compact.write_bytes(array.getvalue())
    with pytest.raises(DataError, match=r"not a complete \.npz archive"):
        read_compact(compact)


def test_the_format_is_version_1(compact):
    """Files written today must stay readable: a change of this test needs a new version."""
    content = dict(np.load(compact))
    described = json.loads(content.pop("text").tobytes())
    assert {name: array.dtype.name for name, array in content.items()} == {
        "answers": "int16",
        "lengths": "int32",
        "tokens": "int32",
        "gold": "int16",
        "interval": "int32",
        "cell": "int32",
    }
    assert (described["format"], described["version"]) == ("autotts_jax probe matrix", 1) == (FORMAT, VERSION)
    assert described["encoding"] == "exact"
    assert list(described["cells"][0]) == ["model", "benchmark", "num_branches", "source", "sha256"]
    assert list(described["questions"][0]) == ["index", "text", "gold", "vocabulary"]
    np.testing.assert_array_equal(content["answers"][:9], [0, 1, 1, 2, 0, 0, 0, 1, 0])
