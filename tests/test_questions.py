"""Questions: what every kind of source gives, what is said of bad ones, and that made-up ones are right."""

import ast
import gzip
import hashlib
import json
import operator
import random
import re
import subprocess
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotts_jax.collect import Problem, read_questions
from autotts_jax.collect.arithmetic import LEVELS, MAX_COUNT, arithmetic
from autotts_jax.errors import DataError, InputError

ROWS = [
    {"question": "How many, and why?", "answer": "7"},
    {"question": 'Wie\n"viel"?', "answer": "½"},
]
ASKED = [Problem("How many, and why?", "7"), Problem('Wie\n"viel"?', "½")]


@pytest.fixture
def write(tmp_path):
    """A function that writes text or bytes to a file and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if type(content) is bytes else content.encode())
        return str(path)

    return write


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows)


def parquet(**columns):
    return as_parquet(pa.table(columns))


def as_parquet(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def repeated(text, times):
    """A column that holds a text once, for many rows."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([text]))


# --- files


CSV = 'question,answer\n"How many, and why?",7\n"Wie\n""viel""?",½\n'
FILES = {
    "a.jsonl": lines(*ROWS) + "\n\n",
    "b.JSONL": "\ufeff" + lines(*ROWS).replace("\n", "\r\n"),
    "c.json": json.dumps(ROWS, indent=1, ensure_ascii=False),
    "d.json": lines(*ROWS),
    "e.csv": CSV,
    "f.csv": "\ufeff" + CSV.replace("?\",7\n", "?\",7\r\n"),
    "f.jsonl.gz": gzip.compress(lines(*ROWS).encode()),
    "f.yaml": json.dumps(ROWS),
    "g.parquet": parquet(question=[row["question"] for row in ROWS], answer=[row["answer"] for row in ROWS]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_questions(write, name):
    path = write(name, FILES[name])
    assert read_questions(path) == ASKED
    assert read_questions(path, limit=1) == ASKED[:1]
    assert read_questions(path, limit=9) == ASKED


@pytest.mark.parametrize(
    ("row", "columns", "asked"),
    [
        ({"Problem": "a", "Solution": "1"}, {}, ("a", "1")),
        ({"prompt": "a", "question": "b", "solution": "1", "gold": "2"}, {}, ("b", "2")),
        ({"input": "a", "expected_answer": "1"}, {}, ("a", "1")),
        ({"question": "a", "answer": "1", "q": "b", "a": "2"}, {"text_column": "q"}, ("b", "1")),
        ({"question": "a", "answer": "1", "q": "b", "a": "2"}, {"gold_column": "a"}, ("a", "2")),
    ],
)
def test_columns_have_usual_names_or_are_given(write, row, columns, asked):
    assert read_questions(write("q.jsonl", lines(row)), **columns) == [Problem(*asked)]


@pytest.mark.parametrize("number", ["5.0", "5", "0.10", "1e3", "-0", "9" * 5000])
def test_numbers_stay_as_they_are_written(write, number):
    path = write("q.jsonl", f'{{"question": "a", "answer": {number}}}')
    assert read_questions(path)[0].gold == number
    assert read_questions(write("q.csv", f"question,answer\na,{number}"))[0].gold == number


def test_a_value_of_csv_may_be_long(write):
    question = "a" * 200_000
    assert read_questions(write("q.csv", f"question,answer\n{question},1")) == [Problem(question, "1")]


def test_numbers_of_typed_columns_become_text(write):
    floats = write("floats.parquet", parquet(question=["a", "b"], answer=[5.0, 0.1]))
    assert [q.gold for q in read_questions(floats)] == ["5.0", "0.1"]
    integers = write("integers.parquet", parquet(question=[1, 2], answer=[70, 2**60]))
    assert read_questions(integers) == [Problem("1", "70"), Problem("2", str(2**60))]


@pytest.mark.parametrize(
    ("written", "gold"),
    [
        ("6 * 7 = 42\n#### 42", "42"),
        ("#### 3\nno, rather\n####  1,234,567 ", "1234567"),
        ("#### (1,2)", "(1,2)"),
        ("so $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{1}, or rather \\boxed { 2 }.", "2"),
        ("\\boxed{\\boxed{3}}", "3"),
        ("x" * 300_000 + "\n#### 3", "3"),
        ("thus $\\boxed 12$.", "12"),
        ("\\boxed{\\left\\{ 1, 2 \\right.}", "\\left\\{ 1, 2 \\right."),
        ("  1,234 ", "1,234"),
    ],
)
def test_the_answer_is_taken_out_of_a_solution(write, written, gold):
    assert read_questions(write("q.jsonl", lines({"problem": "a", "solution": written}))) == [
        Problem("a", gold)
    ]


GOOD = {"question": "a", "answer": "1"}
TWICE = as_parquet(
    pa.table([pa.array(["a"]), pa.array(["1"]), pa.array(["2"])], ["question", "answer", "answer"])
)
MANY = parquet(question=repeated("x" * 2**20, 300), answer=repeated("1", 300))
BAD = {
    "no rows": ("q.jsonl", "\n", "is empty; name a file with rows"),
    "no rows in a list": ("q.json", "[]", "holds no questions"),
    "no rows in CSV": ("q.csv", "question,answer\n", "holds no questions"),
    "an empty CSV": ("q.csv", "", "holds no questions"),
    "no rows in Parquet": ("q.parquet", parquet(question=pa.array([], pa.string())), "holds no questions"),
    "no column of questions": ("q.csv", "frage;answer\na;1", "columns frage, answer, .*one as text_column"),
    "no column of answers": (
        "q.jsonl",
        lines({"question": "a", "antwort": 1}),
        "columns question, antwort, and none of answer, gold.*gold_column",
    ),
    "a row without a question": ("q.jsonl", lines(GOOD, {"answer": 1}), "line 2 has no question; it has"),
    "a row without an answer": ("q.json", json.dumps([GOOD, {"question": "b"}]), "row 2 has no answer"),
    "blank question": ("q.jsonl", lines(GOOD, GOOD | {"question": " \n"}), "line 2 has an empty question"),
    "blank answer": ("q.csv", "question,answer\na,\n", "line 2 has an empty answer"),
    "null": ("q.jsonl", lines(GOOD | {"answer": None}), "line 1 has an empty answer"),
    "null in Parquet": ("q.parquet", parquet(question=["a"], answer=[None]), "row 1 has an empty answer"),
    "not a number": ("q.parquet", parquet(question=["a"], answer=[float("nan")]), "row 1 has an empty"),
    "a bool": ("q.jsonl", lines(GOOD | {"answer": True}), "answer True; make it text or a number"),
    "a list": ("q.jsonl", lines(GOOD | {"question": ["a"]}), r"question \['a'\]; make it text"),
    "bytes": ("q.parquet", parquet(question=[b"a"], answer=["1"]), "question b'a'; make it text"),
    "half of a surrogate pair": ("q.jsonl", lines(GOOD | {"question": "\ud800"}), "half of a surrogate pair"),
    "nothing after the mark": ("q.jsonl", lines(GOOD | {"answer": "6 ####"}), "line 1 has no answer in '6"),
    "no answer": ("q.jsonl", lines(GOOD | {"answer": "?"}), "line 1 has no answer in"),
    "an unclosed box": ("q.jsonl", lines(GOOD | {"answer": "\\boxed{{1}"}), "line 1 has no answer in"),
    "an empty box": ("q.jsonl", lines(GOOD | {"answer": "so \\boxed{ }"}), "line 1 has no answer in"),
    "the same question": ("q.jsonl", lines(GOOD) + "\n\n" + lines(GOOD), "line 3 has the same.* as line 1"),
    "half a line": ("q.jsonl", lines(GOOD, GOOD)[:-4], "line 2, column .* is not JSON.*get the file again"),
    "half a list": ("q.json", json.dumps([GOOD, GOOD], indent=1)[:-9], "row 2 of its list is not JSON"),
    "deep nesting": ("q.jsonl", "[" * 200_000, "row 1 of its list is not JSON: it is nested"),
    "no objects": ("q.jsonl", "1\n2", "line 1 is '1', .* make it an object"),
    "one object of columns": ("q.json", json.dumps([["a", "1"]]), r"row 1 is \['a', '1'\], .* make it"),
    "not UTF-8": ("q.jsonl", lines(GOOD).encode() + b"\n\xff", "line 2 is not UTF-8"),
    "Windows text": ("q.csv", "question,answer\nFür 1 €?,1".encode("cp1252"), "line 1 or a later one is not"),
    "a column twice": ("q.csv", "question,answer,answer\na,1,2\n", "has the column 'answer' twice"),
    "a column of Parquet twice": ("q.parquet", TWICE, "has the column 'answer' twice"),
    "a text in many rows": ("q.parquet", MANY, "unpacks to more than 268,435,456 bytes; split it"),
    "too many values": ("q.csv", "question,answer\na,1\nb, c,1\n", "line 3 has not as many values"),
    "too few values": ("q.csv", "question,answer\na\n", "line 2 has not as many values"),
    "an open quote": ("q.csv", 'question,answer\n"a,1\n', "line 2 is not CSV: unexpected end of data"),
    "half a Parquet file": ("q.parquet", parquet(question=["a"], answer=["1"])[:-9], "not a complete Parq"),
    "bad text in Parquet": (
        "q.parquet",
        parquet(question=pa.array([b"\xff"]).view(pa.string()), answer=["1"]),
        "not UTF-8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_and_says_where(write, case):
    name, content, message = BAD[case]
    path = write(name, content)
    with pytest.raises(DataError, match=f"(?s){message}") as error:
        read_questions(path)
    assert str(error.value).startswith(path)


def test_a_column_that_is_not_there_is_refused(write):
    path = write("q.jsonl", lines(GOOD))
    with pytest.raises(DataError, match="line 1 has no text; it has question, answer"):
        read_questions(path, text_column="text")


def test_answers_may_be_missing_where_they_are_not_needed(write):
    path = write("q.jsonl", lines(GOOD, {"question": "B?"}, {"question": "C?", "answer": None}))
    with pytest.raises(DataError, match="line 2 has no answer"):
        read_questions(path)
    golds = [problem.gold for problem in read_questions(path, needs_gold=False)]
    assert golds == [read_questions(path, limit=1)[0].gold, "", ""]
    assert read_questions(path, gold_column="answer", needs_gold=False)[2].gold == ""
    with pytest.raises(DataError, match="line 1 has no gold; it has question, answer"):
        read_questions(path, gold_column="gold", needs_gold=False)
    bare = write("bare.csv", "question\nA?\n")
    assert read_questions(bare, needs_gold=False) == [Problem("A?", "")]
    with pytest.raises(DataError, match="has the columns question, and none of answer, gold"):
        read_questions(bare)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jsonl", "none.jsonl: cannot be read: No such file or directory"),
        ("none.txt", "'none.txt': no such file; name a file that ends in .jsonl"),
        (
            "there.txt",
            "'there.txt': its ending is unknown; name a file that ends in .jsonl, .json, .ndjson, .parq",
        ),
        ("folder/there.txt", "its ending is unknown"),
        ("arithmetic:ten", "'arithmetic:ten': no such file; .* or arithmetic:COUNT:SEED"),
    ],
)
def test_an_unknown_source_is_refused(tmp_path, monkeypatch, source, message):
    (tmp_path / "folder").mkdir()
    for name in ("there.txt", "folder/there.txt"):
        (tmp_path / name).write_text("a", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_questions(source)


def test_what_lies_behind_the_limit_is_not_looked_at(write):
    assert read_questions(write("q.jsonl", lines(GOOD) + "\n{half"), limit=1) == [Problem("a", "1")]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(InputError, match=f"the limit is {limit}; read at least one"):
        read_questions("arithmetic", limit=limit)


# --- datasets


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """The library, with a cache of its own and without the network."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return datasets


@pytest.mark.usefixtures("datasets")
def test_a_folder_is_read_as_a_dataset(tmp_path):
    folder = tmp_path / "gsm"
    folder.mkdir()
    (folder / "test.jsonl").write_text(lines(*ROWS), encoding="utf-8")
    (folder / "train.jsonl").write_text(lines(GOOD | {"answer": "1 + 1\n#### 2"}), encoding="utf-8")
    assert read_questions(str(folder)) == ASKED
    assert read_questions(str(folder), limit=1) == ASKED[:1]
    assert read_questions(str(folder), split="train") == [Problem("a", "2")]
    with pytest.raises(InputError, match=r"gsm': the split 'dev' of this folder cannot be read: .* file"):
        read_questions(str(folder), split="dev")


@pytest.mark.usefixtures("datasets")
def test_a_hub_that_cannot_be_reached_is_named():
    with pytest.raises(
        InputError, match=r"'org/name:main': no such file, .* check the name, the split and the"
    ):
        read_questions("org/name:main")


def test_the_name_of_a_dataset_may_have_a_configuration(datasets, monkeypatch):
    asked_for = []

    def load_dataset(*arguments, **keywords):
        asked_for.append((arguments, keywords))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_questions("openai/gsm8k:main") == ASKED
    assert read_questions("math-ai/aime25", split="train") == ASKED
    assert asked_for == [
        (("openai/gsm8k", "main"), {"split": "test"}),
        (("math-ai/aime25", None), {"split": "train"}),
    ]


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs datasets: .*'autotts-jax\[collecting\]'"):
        read_questions("openai/gsm8k:main")


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys; from autotts_jax.collect import read_questions; read_questions('arithmetic');"
        "print(*{'jax', 'datasets', 'huggingface_hub', 'pyarrow', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# --- made-up questions


def test_made_up_questions_are_a_source():
    assert read_questions("arithmetic") == arithmetic()
    assert len(read_questions("arithmetic:12")) == 12
    assert read_questions("arithmetic:12:5") == arithmetic(12, seed=5) != arithmetic(12)
    assert read_questions("arithmetic:12:5", limit=3) == arithmetic(12, seed=5)[:3]


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_a_count_out_of_range_is_refused(count):
    with pytest.raises(InputError, match=f"{count} arithmetic questions; ask for 1 to {MAX_COUNT}"):
        read_questions(f"arithmetic:{count}")


def test_a_seed_gives_the_same_questions_everywhere():
    questions = arithmetic(40, seed=0)
    assert questions[0] == Problem("What is 17 + 16?", "33", "addition")
    text = "\n".join(f"{question.text}\t{question.gold}" for question in questions)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "49655358cec9c045"


def test_only_what_python_promises_to_keep_is_drawn(monkeypatch):
    promised = types.SimpleNamespace(random=random.Random(3).random)
    expected = arithmetic(MAX_COUNT, seed=3)
    monkeypatch.setattr(random, "Random", lambda _: promised)
    assert arithmetic(MAX_COUNT, seed=3) == expected


@given(st.integers(1, MAX_COUNT), st.integers(0, 2**32))
def test_questions_are_distinct_right_and_ever_harder(count, seed):
    questions = arithmetic(count, seed)
    assert len(questions) == count
    assert len({question.text for question in questions}) == count
    topics = [level.topic for level in LEVELS]
    order = [topics.index(question.topic) for question in questions]
    assert order == sorted(order)
    assert len(set(order)) == len(LEVELS) or count < 2 * len(LEVELS)
    assert sum(i >= topics.index("word problem of several steps") for i in order) == count // 10
    for question in questions:
        assert question.gold == str(recomputed(question.text))


def test_the_first_are_additions_of_numbers_up_to_twenty():
    for question in arithmetic(40)[:6]:
        a, b = map(int, re.fullmatch(r"What is (\d+) \+ (\d+)\?", question.text).groups())
        assert 1 <= a <= 20
        assert 1 <= b <= 20


def test_every_way_to_ask_is_recomputed():
    told = [phrase for phrase, _ in STORIES if any(phrase in q.text for q in arithmetic(MAX_COUNT))]
    assert len(told) == len(STORIES)
    assert len(STORIES) == sum(len(level.templates) for level in LEVELS if level.topic.startswith("word"))


STORIES = [
    ("A pencil costs", lambda cents, pencils: cents * pencils),
    ("Anna shares", lambda sweets, friends: sweets / friends),
    ("Ben is", lambda age, years: age - years),
    ("A cyclist rides", lambda speed, hours: speed * hours),
    ("Carla buys", lambda apples, price, paid: paid - apples * price),
    ("David has", lambda cards, given, friends: (cards - given) / friends),
    ("Eva is", lambda age, times: age + times * age),
    ("A bus drives", lambda hours, speed, more: hours * speed + more),
    ("Felix buys", lambda books, each, pens, every, paid: paid - books * each - pens * every),
    ("A baker bakes", lambda trays, rolls, sold, bag: (trays * rolls - sold) % bag),
    ("Greta is", lambda age, older, times, years: sum(n + years for n in (age, age + older, times * age))),
    ("A train has", lambda way, hours, speed, more, fast: way - hours * speed - more * fast),
]
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def recomputed(text):
    """The answer as a reader of the text finds it: a whole number, not negative."""
    if expression := re.fullmatch(r"What is ([\d+*() -]+)\?", text):
        value = evaluated(ast.parse(expression[1], mode="eval").body)
    else:
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if division := re.fullmatch(r"What is the remainder when (\d+) is divided by (\d+)\?", text):
            value = int(division[1]) % int(division[2])
        else:
            (answer,) = [answer for phrase, answer in STORIES if text.startswith(phrase)]
            value = answer(*numbers)
    assert value == int(value) >= 0
    return int(value)


def evaluated(node):
    if isinstance(node, ast.Constant):
        return node.value
    return OPERATIONS[type(node.op)](evaluated(node.left), evaluated(node.right))
