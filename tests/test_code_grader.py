"""Programs as answers: found in texts, forced, and compared by their tests in a sandbox."""

import dataclasses
import json

import pytest

from autotts_jax.collect import (
    CodeGrader,
    Completion,
    Finish,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    collect,
    extract,
    extractor,
    open_grader,
    read_questions,
)
from autotts_jax.errors import DataError, InputError
from autotts_jax.live import answer
from autotts_jax.sandbox import Child, Sandbox
from autotts_jax.sandbox.messages import Message
from autotts_jax.sandbox.process import LevelError

TESTS = """
def check(function):
    assert function(2, 3) == 5
assert add(0, 0) == 0
assert add(1, 2) == 3
check(add)
"""
RIGHT, PRODUCT = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a * b"


def confines():
    try:
        with Child("autotts_jax.collect.code_child", Sandbox()) as child:
            child.begin()
    except LevelError:
        return False
    return True


needs_kernel = pytest.mark.skipif(not confines(), reason="this machine confines no process by its kernel")


@pytest.fixture(scope="module")
def grader():
    with CodeGrader(2, Sandbox(seconds=2, memory=1 << 30)) as grader:
        yield grader


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("So:\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1"),
        ("```\na = 1\n```\nNo, better:\n```py\na = 2\n\nb = a\n```", "a = 2\n\nb = a"),
        ("```\na = 1\n```\nand then\n```\na = ", "a = 1"),
        ("```python\na = 1\nb = ", "a = 1\nb = "),
        ("  ```\n  a = 1\n  ```", "  a = 1"),
        ("a = 1", "ERR"),
        ("```\n```", "ERR"),
        ("```\n" + "x" * 20_001 + "\n```", "ERR"),
    ],
)
def test_the_last_block_of_code_is_the_answer(text, code):
    assert extract(text, extractor("code")) == code


@needs_kernel
def test_programs_are_equal_if_they_pass_the_same_tests(grader):
    programs = {
        RIGHT: "passes all 3 tests",
        f"# by reordering\n{RIGHT.replace('a + b', '(b + a)')}": "passes all 3 tests",
        PRODUCT: "passes 1 of 3 tests: x--",
        "def add(a, b): return 0": "passes 1 of 3 tests: x--",
        "def add(a, b): return 3": "passes 1 of 3 tests: -x-",
        "def add(a, b) return": "passes 0 of 3 tests: ---",
        "def sub(a, b): return a - b": "passes 0 of 3 tests: ---",
        "ERR": "ERR",
    }
    assert grader.forms(list(programs), TESTS) == list(programs.values())
    right = [form == "passes all 3 tests" for form in programs.values()]
    assert grader.correct(TESTS, list(programs)) == right
    assert grader.reference(TESTS) == "passes all 3 tests"


@needs_kernel
@pytest.mark.parametrize(
    ("program", "form"),
    [
        ("import os\nos._exit(0)", "---"),
        ("raise SystemExit", "---"),
        (f"{RIGHT}\nopen('/etc/hostname').read()", "---"),
        (f"{RIGHT}\nimport socket\nsocket.socket()", "---"),
        ("x = [0] * 10**9", "---"),
        pytest.param("def add(a, b):\n    while a: pass\n    return a + b", "x--", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_breaks_a_limit_fails_what_is_left(grader, program, form):
    assert grader.forms([program], TESTS) == [f"passes {form.count('x')} of 3 tests: {form}"]


@needs_kernel
def test_many_tests_have_a_short_form(grader):
    tests = "\n".join(f"assert f({n}) % 2" for n in range(300))
    odd, even = "def f(n): return n", "def f(n): return n + 1"
    forms = grader.forms([odd, even, odd], tests)
    assert forms[0] == forms[2] != forms[1]
    assert all(form.startswith("passes 150 of 300 tests: ") and len(form) < 50 for form in forms)


@needs_kernel
def test_without_tests_layout_and_comments_are_nothing(grader):
    written = [RIGHT, f"# a sum\n{RIGHT}\n\n", PRODUCT, "not python", "ERR"]
    assert grader.forms(written) == [RIGHT, RIGHT, PRODUCT, "not python", "ERR"]


@needs_kernel
@pytest.mark.parametrize(
    ("tests", "message"),
    [("assert add(", "are not Python"), ("x = 1", "has no tests: write each as an assert, or a call")],
)
def test_tests_that_are_none_are_refused(grader, tests, message):
    with pytest.raises(InputError, match=message):
        grader.forms([RIGHT], tests)
    with pytest.raises(InputError, match=message):
        grader.reference(tests)
    with pytest.raises(InputError, match=message):  # before anything is collected
        Plan("sim", "code", (Problem("Add.", tests),), num_branches=2, answers="code", grader="code")


def test_a_machine_that_confines_nothing_runs_nothing_unless_told(monkeypatch):
    with monkeypatch.context() as patched:
        says = {"level": "process", "reason": "it lacks Landlock"}
        patched.setattr(Child, "receive", lambda _: Message(says, {}))
        with pytest.raises(LevelError, match=r"say --grader code-process$"):
            open_grader("code")
    with open_grader("code-process") as grader:
        assert grader.correct(TESTS, [RIGHT, PRODUCT]) == [True, False]


def test_a_grader_needs_a_worker():
    with pytest.raises(InputError, match="workers is 0"):
        CodeGrader(0)


def test_tests_of_questions_are_read_as_they_are(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [
        {"prompt": "Add.", "tests": TESTS},
        {"prompt": "Add again.", "tests": ["assert add(1, 2) == 3  #### 4", "assert add(0, 0) == 0"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_questions(str(path), gold_column="tests", whole_gold=True)
    assert [problem.gold for problem in read] == [TESTS, "\n".join(rows[1]["tests"])]
    with pytest.raises(DataError, match="make it text or a number"):
        read_questions(str(path), gold_column="tests")


class Coding(SimulatedEngine):
    """Writes programs: of branches, and where a block of code is begun."""

    def complete(self, request):
        thought = super().complete(dataclasses.replace(request, temperature=1.0))
        right = sum(request.prompt) % 3
        code = f"{RIGHT if right else PRODUCT}\n```"
        if request.temperature:
            if thought.finish is Finish.length:
                return thought
            code = f"\n```python\n{code}"
        else:
            assert request.stop == ("```",)
            assert self.tokenizer.decode(request.prompt).endswith("```python\n")
        tokens = self.tokenizer.encode(code)[: request.max_tokens]
        return Completion(tokens, self.tokenizer.decode(tokens), Finish.stop)


@needs_kernel
def test_a_collection_of_programs_is_graded_and_lives(tmp_path):
    sampling = Sampling(interval=60, max_tokens=180, suffix="\n```python\n", probe_tokens=80)
    problem = Problem("Write add(a, b).", TESTS)
    plan = Plan("sim", "code", (problem,), num_branches=4, sampling=sampling, answers="code", grader="code")
    data = collect(plan, tmp_path, LocalWorkers(Coding()))
    assert data.questions[0].gold == "passes all 3 tests"
    assert set(data.questions[0].vocabulary) == {"passes all 3 tests", "passes 1 of 3 tests: x--"}
    (unit,) = Store(tmp_path).done()
    assert {text for branch in unit.branches for text in branch.probes} <= {RIGHT, PRODUCT}
    settings = {"sampling": sampling, "answers": "code", "grader": "code", "max_branches": 4}
    found = answer(Coding(), problem.text, "sc@4", gold=TESTS, **settings)
    assert found.answer in data.questions[0].vocabulary
    alone = answer(Coding(), problem.text, "sc@4", **settings)
    assert alone.answer in (RIGHT, PRODUCT)
    assert alone.text.endswith(f"{alone.answer}\n```")
