"""Parquet and the Hugging Face Hub: nothing is lost, and bad files and addresses are named."""

import dataclasses
import functools
import hashlib
import http.server
import json
import os
import random
import shutil
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from release_files import ITEMS, cells

import autotts_jax as at
from autotts_jax.errors import DataError, InputError, TooLargeError
from autotts_jax.replay import parquet as module
from autotts_jax.replay import read_files, read_json, read_parquet, stack, synthetic, write_parquet
from autotts_jax.replay.dataset import EQUIV
from autotts_jax.replay.matrix import NONE

ARRAYS = ("answers", "lengths", "tokens", "gold", "interval", "cell")


def assert_same(found, dataset):
    assert found.questions == dataset.questions
    assert found.encoding == dataset.encoding
    assert [(cell.name, cell.num_branches) for cell in found.cells] == [
        (cell.name, cell.num_branches) for cell in dataset.cells
    ]
    assert found.matrix.vocabulary == dataset.matrix.vocabulary
    for name in ARRAYS:
        left, right = getattr(found.matrix, name), getattr(dataset.matrix, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert sorted(found.matrix.signals) == sorted(dataset.matrix.signals)
    for name, values in dataset.matrix.signals.items():
        np.testing.assert_array_equal(found.matrix.signals[name].view(np.int16), values.view(np.int16))


def in_cells(folder, *parts):
    """Questions of several cells, named A, B, … on one benchmark."""
    datasets = []
    for model, items in zip("ABC", parts, strict=False):
        path = folder / f"{model}.json"
        path.write_text(json.dumps(items))
        datasets.append(read_json(path, model=model, benchmark="bench"))
    return stack(datasets)


def with_random_signals(dataset, names, seed):
    """The dataset with signals of any finite bits."""
    rng, shape = np.random.default_rng(seed), dataset.matrix.answers.shape
    drawn = {name: rng.integers(0, 2**16, shape).astype(np.uint16).view(np.float16) for name in names}
    return dataset.with_signals(
        {name: np.where(np.isfinite(values), values, -np.float16(0)) for name, values in drawn.items()}
    )


@pytest.fixture
def dataset(tmp_path):
    """Two cells of two questions with two branches, and a signal."""
    return with_random_signals(in_cells(tmp_path, ITEMS, ITEMS), ["eat"], 0)


@pytest.fixture
def folder(dataset, tmp_path):
    write_parquet(dataset, tmp_path / "hub", "apache-2.0")
    return tmp_path / "hub"


# --- round trips


@pytest.mark.filterwarnings("ignore:.* have tokens that their probes contradict")  # made up
@given(st.lists(cells(), min_size=1, max_size=3), st.sets(st.sampled_from("abc")), st.integers(0, 2**32))
def test_nothing_is_lost(tmp_path_factory, drawn, names, seed):
    folder = tmp_path_factory.mktemp("cells")
    dataset = with_random_signals(in_cells(folder, *drawn), sorted(names), seed)
    write_parquet(dataset, folder / "hub")
    assert_same(read_files(folder / "hub"), dataset)


def test_embedded_data_is_read_back_as_it_was(tmp_path):
    dataset = at.load("smollm2")
    write_parquet(dataset, tmp_path / "hub")
    found = at.load(tmp_path / "hub")
    assert_same(found, dataset)
    (file,) = (tmp_path / "hub").rglob("*.parquet")
    assert found.cells[0].source == str(file)


def test_ids_are_given_anew_and_answers_stay(tmp_path):
    dataset = synthetic(questions=3, branches=5, signals=True)
    write_parquet(dataset, tmp_path / "hub")
    found = at.load(tmp_path / "hub")
    order = np.argsort([cell.name for cell in dataset.cells], kind="stable")
    expected = dataset.select(np.concatenate([dataset.cell_questions(cell) for cell in order]))
    for q, (left, right) in enumerate(zip(found.questions, expected.questions, strict=True)):
        assert dataclasses.replace(left, vocabulary=()) == dataclasses.replace(right, vocabulary=())
        for ids, others in zip(found.matrix.answers[q], expected.matrix.answers[q], strict=True):
            assert list(map(left.answer, ids)) == list(map(right.answer, others))[: len(ids)]
    for name, values in expected.matrix.signals.items():
        np.testing.assert_array_equal(found.matrix.signals[name], values)


def test_the_order_of_a_selection_is_kept_within_cells(dataset, tmp_path):
    chosen = dataset.select([3, 1, 2, 0])
    write_parquet(chosen, tmp_path / "some")
    found = read_files(tmp_path / "some")
    models = [found.cells[cell].model for cell in found.matrix.cell]
    assert models == ["A", "A", "B", "B"]
    assert [question.index for question in found.questions] == [1, 0, 1, 0]


def table_of(folder):
    return pq.read_table(folder / "data" / "A" / "bench.parquet")


WIDER = {
    "string": pa.large_string(),
    "int32": pa.int64(),
    "list<element: string>": pa.large_list(pa.large_string()),
    "list<element: float>": pa.large_list(pa.float64()),
}


def test_what_others_write_is_read(folder, dataset):
    """Rows in another order and in several groups, larger types, dictionaries, and columns of their own."""
    table = table_of(folder)
    wide = table.cast(pa.schema([(field.name, WIDER[str(field.type)]) for field in table.schema]))
    order = list(range(len(wide)))
    random.Random(1).shuffle(order)
    wide = wide.take(order).append_column("note", pa.array([{"a": [1]}] * len(wide)))
    wide = wide.set_column(0, "model", wide["model"].cast(pa.string()).dictionary_encode())
    path = folder / "other.parquet"
    pq.write_table(wide, path, row_group_size=1, use_dictionary=False)
    first = [row["question_index"] for row in wide.to_pylist()]
    expected = dataset.select(list(dict.fromkeys(first)))
    found = read_parquet(path)
    assert found.questions == expected.questions
    np.testing.assert_array_equal(found.matrix.answers, expected.matrix.answers)
    np.testing.assert_array_equal(found.matrix.tokens, expected.matrix.tokens)
    np.testing.assert_array_equal(found.matrix.signals["eat"], expected.matrix.signals["eat"])


@pytest.mark.parametrize("rows", [1, 2, 10**6])
def test_a_file_may_have_several_groups_with_dictionaries(folder, dataset, rows):
    path = folder / "groups.parquet"
    tables = [pq.read_table(file) for file in sorted(folder.rglob("*.parquet"))]
    pq.write_table(pa.concat_tables(tables), path, row_group_size=rows)
    assert_same(read_parquet(path), dataset)


def test_a_file_may_hold_several_cells(folder, dataset):
    path = folder / "all.parquet"
    pq.write_table(pa.concat_tables(pq.read_table(file) for file in sorted(folder.rglob("*.parquet"))), path)
    assert_same(read_parquet(path), dataset)


def test_a_text_is_kept_once_however_often_it_stands(tmp_path):
    """The gold answer of code is its tests; a copy for each branch would take 2 GiB here."""
    gold, count = "x" * 2**20, 2000
    branches = [[["1"], 9, "1"]] * count
    item = ITEMS[0] | {"gold_answer": gold, "each_branch": branches, "final_answers_trace": ["1"] * count}
    dataset = in_cells(tmp_path, [item])
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    write_parquet(dataset, tmp_path / "hub")
    assert_same(read_files(tmp_path / "hub"), dataset)
    assert pool.max_memory() < before + 2**28


# --- the card


def test_the_card_says_what_the_hub_reads(folder):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.DatasetCard.load(folder / "README.md")
    told = card.data.to_dict()
    assert told["license"] == "apache-2.0"
    assert told["pretty_name"] == "Probe matrices of A, B on bench"
    (config,) = told["configs"]
    (files,) = config["data_files"]
    assert sorted(folder.glob(files["path"])) == sorted(folder.rglob("*.parquet"))
    columns = [feature["name"] for feature in told["dataset_info"]["features"]]
    assert columns == table_of(folder).column_names
    for name in columns:
        assert f"| `{name}` |" in card.text
    assert "| `signal_eat` | list of float32 | entropy of the next token after" in card.text
    assert "| `mean@1` | 0.250 | 0.250 |" in card.text


def test_a_licence_is_named_only_where_it_is_known(dataset, tmp_path):
    write_parquet(dataset, tmp_path / "none")
    assert "license" not in (tmp_path / "none" / "README.md").read_text()
    for licence in ("", "Apache 2.0", "mit\nx: y", 3):
        with pytest.raises(InputError, match="it must be an identifier of the Hub"):
            write_parquet(dataset, tmp_path / "bad", licence)
    assert not (tmp_path / "bad").exists()


def test_names_of_others_stay_names(dataset, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    names = {"A": 'org/a "b": #|\x07\x85', "B": "../.é"}
    named = [dataclasses.replace(cell, model=names[cell.model]) for cell in dataset.cells]
    write_parquet(dataclasses.replace(dataset, cells=tuple(named)), tmp_path / "hub")
    files = [file.relative_to(tmp_path / "hub").as_posix() for file in (tmp_path / "hub").rglob("*.parquet")]
    assert sorted(files) == ["data/-.é/bench.parquet", "data/org-a-b-/bench.parquet"]
    assert {cell.model for cell in read_files(tmp_path / "hub").cells} == set(names.values())
    told = hub.DatasetCard.load(tmp_path / "hub" / "README.md").data.to_dict()
    assert told["pretty_name"] == 'Probe matrices of ../.é, org/a "b": #|\\u0007\\u0085 on bench'


def test_the_library_of_the_hub_reads_the_folder(folder, dataset, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    read = datasets.load_dataset(str(folder), split="train")
    assert read.to_list() == pq.read_table(folder / "data").to_pylist()
    read.to_parquet(tmp_path / "again.parquet")
    assert_same(read_parquet(tmp_path / "again.parquet"), dataset)


# --- bad files: (change of the rows of cell A, words of the message)


def put(row, name, value):
    def change(rows):
        rows[row][name] = value

    return change


def lose(name):
    def change(rows):
        for row in rows:
            del row[name]

    return change


def put_all(name, value):
    def change(rows):
        for row in rows:
            row[name] = value

    return change


BAD_ROWS = {
    "no column": (lose("tokens"), r"it lacks the columns tokens, and has \['model', .*write it again"),
    "no rows": (list.clear, "lacks the columns"),
    "a number as text": (put_all("tokens", "5"), "the column tokens is string; make it int32"),
    "a fraction": (put_all("branch", 0.0), "the column branch is double; make it int32"),
    "text as a number": (put_all("question", 3), "the column question is int64; make it string"),
    "text as a list": (put_all("final_answer", ["7"]), "the column final_answer is list<.*; make it string"),
    "probes as text": (put_all("probe_answers", "7"), "the column probe_answers is string; make it list of"),
    "probes as numbers": (put_all("probe_answers", [7]), "probe_answers is list<.*; make it list of string"),
    "a signal as numbers": (put_all("signal_eat", 1.0), "signal_eat is double; make it list of float32"),
    "a signal as whole numbers": (put_all("signal_eat", [1]), "signal_eat is list<.*make it list of float"),
    "nothing at all": (put_all("interval", None), "the column interval is null; make it int32"),
    "no model": (put(1, "model", None), "row 2: it has no model; fill it in"),
    "no tokens": (put(2, "tokens", None), "row 3: it has no tokens; fill it in"),
    "no list": (put(3, "probe_answers", None), "row 4: it has no probe_answers; fill it in"),
    "no signal": (put(0, "signal_eat", None), "row 1: it has no signal_eat; fill it in"),
    "no probe": (put(3, "probe_answers", []), "row 4: no probes; leave the branch out"),
    "a probe without answer": (put(3, "probe_answers", ["3", None]), "row 4: a probe has no answer; write"),
    "fewer numbers": (put(1, "signal_eat", [1.0]), "row 2: signal_eat has 1 numbers, and the branch 1"),
    "NaN": (put(1, "signal_eat", [1.0, float("nan")]), "question 0, branch 1: .* eat is nan at depth 2"),
    "no number": (put(1, "signal_eat", [None, 1.0]), "row 2: signal_eat has a null; give a number"),
    "a large number": (put(1, "signal_eat", [1.0, 1e6]), "question 0, branch 1: .* eat is inf at depth 2"),
    "zero tokens": (put(1, "tokens", 0), "row 2: tokens is 0; give a number from 1 to 2147483647"),
    "many tokens": (put(1, "tokens", 2**40), "row 2: tokens is 1099511627776; give"),
    "a negative branch": (put(1, "branch", -1), "row 2: branch is -1; give a number from 0 to 32766"),
    "a branch twice": (put(1, "branch", 0), "row 2: its question has the branch in another row as well"),
    "a branch missing": (put(1, "branch", 2), "row 2: its question has no branch 1; number"),
    "the first branch missing": (put(0, "branch", 2), "row 2: its question has no branch 0"),
    "fewer branches": (lambda rows: rows.pop(), "question 1: its number of branches is 1, and 2 in"),
    "other texts": (put(1, "question", "x"), "row 2: its question is not that of row 1, of the"),
    "other golds": (put(3, "gold_answer", "x"), "row 4: its gold_answer is not that of row 3"),
    "another interval": (put(3, "interval", 1), "row 4: its interval is not that of row 3"),
    "intervals of a cell": (
        lambda rows: [put(row, "interval", 9)(rows) for row in (2, 3)],
        "question 1: its interval is 9, and 500 in question 0 of the same cell; use",
    ),
    "a blank gold": (put_all("gold_answer", " "), "question 0: unknown gold: it is empty"),
    "no gold": (put_all("gold_answer", "ERR"), "question 0: unknown gold: it is ERR, which stands"),
    "a question twice": (put_all("question", "?"), "question 1: the same text as question 0"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_named(folder, change, words):
    rows = table_of(folder).to_pylist()
    change(rows)
    path = folder / "data" / "A" / "bench.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(DataError, match=words) as error:
        read_files(folder)
    assert str(error.value).startswith(str(path))


def test_bad_columns_are_named(folder):
    table = table_of(folder)
    for bad, words in [
        (table.rename_columns([*table.column_names[:-1], "signal_Eat"]), "a signal cannot be named 'Eat'"),
        (table.append_column("tokens", table["tokens"]), "two columns of one name; rename one"),
        (table.slice(0, 0), "holds no branches"),
    ]:
        pq.write_table(bad, folder / "x.parquet")
        with pytest.raises(DataError, match=words):
            read_parquet(folder / "x.parquet")


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_are_written_as_differences_are_refused(folder, encoding):
    pq.write_table(
        table_of(folder),
        folder / "x.parquet",
        use_dictionary=["model"],
        column_encoding={"question": encoding},
    )
    with pytest.raises(DataError, match=f"the column question is encoded as {encoding}, which is not read"):
        read_parquet(folder / "x.parquet")


def test_text_that_is_not_utf8(folder):
    table = table_of(folder)
    broken = pa.Array.from_buffers(pa.string(), 4, pa.array([b"\xff"] * 4).buffers())
    pq.write_table(
        table.set_column(table.column_names.index("question"), "question", broken), folder / "x.parquet"
    )
    with pytest.raises(DataError, match=r"x\.parquet: .*UTF"):
        read_parquet(folder / "x.parquet")


def test_damaged_files_are_named(folder):
    path = folder / "data" / "A" / "bench.parquet"
    whole = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(0).column(7)
    flipped = bytearray(whole)
    flipped[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1  # in a page, which has a checksum
    for content in (b"", b"PAR1", b"no Parquet at all", whole[:-9], whole[9:], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=r"A/bench\.parquet: not a complete Parquet file \(.*write it again"
        ):
            read_files(folder)


def test_files_of_something_else_are_named_in_their_folder(folder):
    pq.write_table(pa.table({"episode": [1]}), folder / "episodes.parquet")
    with pytest.raises(DataError, match=r"episodes\.parquet: no probe matrix: .* move it out of the folder"):
        read_files(folder)


@pytest.mark.parametrize(("limit", "words"), [("MAX_ENTRIES", "values"), ("MAX_UNPACKED", "unpacks to")])
def test_what_says_that_it_is_too_large_is_not_unpacked(folder, dataset, tmp_path, monkeypatch, limit, words):
    monkeypatch.setattr(module, limit, 30)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(DataError, match=rf"{words}.* more than 30; split it"):
        read_parquet(folder / "data" / "A" / "bench.parquet")
    if limit == "MAX_ENTRIES":
        with pytest.raises(TooLargeError, match=r"A/bench: .* more than 30; split it, or write .npz instead"):
            write_parquet(dataset, tmp_path / "large")
        assert not (tmp_path / "large").exists()


# --- writing


def test_what_is_not_written(dataset, tmp_path):
    holes = np.where(dataset.matrix.answers == 0, NONE, dataset.matrix.answers)
    same = tuple(
        dataclasses.replace(cell, model=f"a{mark}") for cell, mark in zip(dataset.cells, "/:", strict=True)
    )
    for bad, words in [
        (dataclasses.replace(dataset, encoding=EQUIV), "in encoding 'exact', and the dataset is in 'equiv'"),
        (
            dataclasses.replace(dataset, matrix=dataclasses.replace(dataset.matrix, answers=holes)),
            "without text",
        ),
        (
            dataclasses.replace(dataset, cells=same),
            "a:/bench and another would both be data/a-/bench.parquet",
        ),
    ]:
        with pytest.raises(InputError, match=words):
            write_parquet(bad, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_only_a_new_or_empty_folder_is_written(folder, dataset, tmp_path):
    before = sorted(folder.rglob("*"))
    (tmp_path / "file").write_text("old")
    (tmp_path / "empty").mkdir()
    for taken in (folder, tmp_path / "file"):
        with pytest.raises(InputError, match="is there and not an empty folder; name a new one"):
            write_parquet(dataset, taken)
    assert sorted(folder.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "old"
    for new in (tmp_path / "empty", tmp_path / "a" / "b"):
        write_parquet(dataset, new)
        assert_same(read_files(new), dataset)
    with pytest.raises(InputError, match="cannot be written: Not a directory; check its folder"):
        write_parquet(dataset, tmp_path / "file" / "hub")


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_write_leaves_nothing(dataset, tmp_path, monkeypatch, problem):
    synced = []

    def fail(file):
        synced.append(file)
        if len(synced) == 2:
            raise problem

    monkeypatch.setattr(os, "fsync", fail)
    (tmp_path / "out").mkdir()
    expected = InputError if isinstance(problem, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        write_parquet(dataset, tmp_path / "out" / "hub")
    if expected is InputError:
        assert str(error.value).startswith(f"{tmp_path}/out/hub: cannot be written: No space left on device")
    assert list((tmp_path / "out").iterdir()) == []


# --- the command line


@pytest.fixture
def run(run, tmp_path, monkeypatch):
    """Runs a command in a folder of its own; gives exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return run


def test_a_folder_is_converted_described_and_checked(run, folder, dataset):
    converted = run("data", "convert", folder, "--out", "copy", "--licence", "mit")
    assert converted == (0, "wrote copy: 2 cells, 4 questions\n", "")
    assert_same(at.load("copy"), dataset)
    status, out, _ = run("data", "info", "copy")
    assert status == 0
    assert "eat_mean" in out
    status, out, err = run("data", "validate", "copy")
    assert (status, err) == (0, "")
    assert out == "".join(f"good  copy/data/{model}/bench.parquet: 2 questions\n" for model in "AB")


def test_the_current_folder_is_not_replaced_and_a_link_leads_to_the_folder(run, folder, dataset, tmp_path):
    (tmp_path / "empty").mkdir()
    os.chdir(tmp_path / "empty")
    status, _, err = run("data", "convert", folder, "--out", ".")
    assert status == 2
    assert err == "autotts-jax: error: . is the current folder; name a new one in it or beside it\n"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    status, _, err = run("data", "convert", folder, "--out", loop)
    assert status == 2
    assert err.startswith(f"autotts-jax: error: {loop}: cannot be written: ")
    for name, there in (("link", True), ("dangling", False)):
        target = tmp_path / f"target of {name}"
        if there:
            target.mkdir()
        link = tmp_path / name
        link.symlink_to(target)
        assert run("data", "convert", folder, "--out", link)[0] == 0
        assert link.is_symlink()
        assert_same(at.load(str(target)), dataset)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--out hub", "hub is there and not an empty folder"),
        ("--out x.parquet", "the suffix must be .npz (compact) or .json (AutoTTS), or absent for a folder"),
        ("--out x.npz --licence mit", "--licence belongs to a folder of Parquet"),
        ("--out new --licence MIT!", "licence is 'MIT!', but it must be an identifier"),
    ],
)
def test_what_convert_refuses(run, folder, arguments, words):
    status, out, err = run("data", "convert", folder, *arguments.split())
    assert (status, out) == (2, "")
    assert words in err


# --- the Hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The empty cache of the Hub's client, which has no network."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


@pytest.fixture
def cached(cache, folder):
    """The dataset org/name in the cache, its files links to where they are kept, as the client does."""
    place = cache / "datasets--org--name"
    snapshot = shutil.copytree(folder, place / "snapshots" / COMMIT)
    (place / "blobs").mkdir()
    for number, file in enumerate(sorted(snapshot.rglob("*.*"))):
        blob = place / "blobs" / str(number)
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, file.parent))
    for name in ("main", "v1", "refs/pr/1"):
        ref = place / "refs" / name
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(COMMIT)
    return snapshot


@pytest.mark.parametrize("rest", ["", "/", "@main", "@v1", "@refs/pr/1", f"@{COMMIT}", "/data", "@v1/data/"])
@pytest.mark.parametrize("start", ["hf://", "hf://datasets/"])
@pytest.mark.usefixtures("cached")
def test_a_dataset_of_the_hub_is_data(dataset, start, rest):
    assert_same(at.load(f"{start}org/name{rest}"), dataset)


@pytest.mark.usefixtures("cached")
def test_a_part_of_a_dataset_of_the_hub(dataset, cached):
    part = dataset.select(dataset.cell_questions(1))
    for path in ("data/B", "data/B/bench.parquet"):
        assert_same(at.load([f"hf://org/name/{path}"]), part)
    (cached / "package.json").write_text("{}")  # which another program has downloaded
    assert_same(at.load("hf://org/name"), dataset)


@pytest.mark.usefixtures("cached")
def test_commands_take_datasets_of_the_hub(run, folder):
    status, out, err = run("data", "info", "--data", "hf://org/name")
    assert (status, err) == (0, "")
    assert out == run("data", "info", folder)[1]
    status, out, err = run("data", "validate", "hf://org/name@v1/data/A")
    assert (status, err) == (0, "")
    assert out.endswith(f"datasets--org--name/snapshots/{COMMIT}/data/A/bench.parquet: 2 questions\n")
    assert run("data", "convert", "hf://org/name", "--out", "x.npz")[0] == 0


@pytest.mark.parametrize(
    "address",
    [
        "hf://",
        "hf://name",
        "hf://org/",
        "hf://org/na me",
        "hf://org/..",
        "hf://org/../name",
        "hf://../name",
        "hf://org/name@",
        "hf://org/name@a/../b",
        "hf://org/name/..",
    ],
)
def test_addresses_that_nothing_can_have(address):
    with pytest.raises(
        InputError, match=r"is not an address of a dataset; write hf://ORG/NAME\[@REVISION\]\[/PATH\]"
    ):
        at.load(address)


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "hf://org/name/elsewhere",
            "there is no Parquet file; name a dataset that autotts-jax data convert wrote",
        ),
        ("hf://org/name/README.md", "there is no Parquet file"),
        ("hf://org/name@v2", "cannot be downloaded: .*; check the address and the connection"),
        ("hf://org/other", "cannot be downloaded: .*; check the address and the connection"),
        ("hf://org/a..b", "cannot be downloaded: .*; check the address and the connection"),
    ],
)
def test_what_is_not_in_the_cache_is_named_without_a_network(address, words):
    with pytest.raises(InputError, match=f"^{address}: {words}"):
        at.load(address)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        InputError, match=r"hf://a/b: downloading .* needs huggingface_hub: .*autotts-jax\[collecting"
    ):
        at.load("hf://a/b")


class Hub(http.server.BaseHTTPRequestHandler):
    """What the Hub answers about the dataset org/name, which is in a folder; others are private."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        super().__init__(*arguments)

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, _ = self.path.partition("?")
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        told = [
            {
                "type": "file",
                "path": file.relative_to(self.folder).as_posix(),
                "oid": "1",
                "size": file.stat().st_size,
            }
            for file in files
        ]
        resolved = f"/datasets/org/name/resolve/{COMMIT}/"
        if path.startswith(resolved):
            self.reply((self.folder / path.removeprefix(resolved)).read_bytes())
        elif path == f"/api/datasets/org/name/tree/{COMMIT}":
            self.reply(json.dumps(told).encode())
        elif path in ("/api/datasets/org/name", "/api/datasets/org/name/revision/main"):
            self.reply(json.dumps({"id": "org/name", "sha": COMMIT}).encode())
        elif path.startswith("/api/datasets/org/name"):
            self.reply(b"{}", 404, "RevisionNotFound")
        else:
            self.reply(b"{}", 401, "RepoNotFound")

    do_HEAD = do_GET  # noqa: N815

    def reply(self, content, status=200, problem=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if problem:
            self.send_header("X-Error-Code", problem)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def hub(cache, folder, monkeypatch):
    """A server in place of the Hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Hub, folder))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    files = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", files)
    yield cache
    server.shutdown()
    server.server_close()


def test_a_dataset_is_downloaded(hub, dataset):
    part = dataset.select(dataset.cell_questions(1))
    assert_same(at.load("hf://org/name/data/B"), part)
    assert [file.name for file in hub.rglob("*.parquet")] == ["bench.parquet"]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://org/name@v2", "the dataset has no revision v2; name one of its own"),
        (
            "hf://org/private",
            r"the Hugging Face Hub has no such dataset, or you may not read it; .* set HF_TOKEN$",
        ),
    ],
)
def test_what_the_hub_refuses_is_named(address, words):
    with pytest.raises(InputError, match=f"^{address}: {words}"):
        at.load(address)
