"""Grading and clustering of answers in worker processes."""

import contextlib
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from answer_cases import CASES
from costly_answers import COSTLY
from grading_cases import NO_ANSWER, PAIRS, TOPICS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotts_jax.collect import MathGrader
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay.forms import FormFinder

LARGE = "what grading may compute, as .*; (each|it) is equal to its own spelling only"


@pytest.fixture(scope="module")
def grader():
    grader = MathGrader(workers=2)
    yield grader
    with pytest.warns(InputWarning, match=LARGE):
        grader.close()


def children():
    """The processes that this one has started."""
    return {process.pid for process in psutil.Process().children()}


# --- verdicts


@pytest.mark.slow
def test_every_verdict_is_as_listed(grader):
    with ThreadPoolExecutor(4) as threads:
        verdicts = threads.map(lambda case: grader.correct(case[2], [case[3]]), CASES)
        wrong = [case for case, verdict in zip(CASES, verdicts, strict=True) if verdict != [case[4]]]
    assert wrong == []


def some(names):
    """A sixth of the parameters for every change, and all for those that can reach them."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (number % 6 < 5)) for number, name in enumerate(names)
    ]


@pytest.mark.parametrize("topic", some(TOPICS))
def test_answers_are_equal_as_the_corpus_says(grader, topic):
    """And what is written in canonical forms can be graded again."""
    answers = list(itertools.chain(*TOPICS[topic]))
    forms = dict(zip(answers, grader.forms(answers), strict=True))
    found = [[forms[answer] for answer in same] for same in TOPICS[topic]]
    assert [set(same) for same in found] == [{same[0]} for same in found]
    written = [same[0] for same in found]
    assert len(set(written)) == len(written)
    assert "ERR" not in written
    assert grader.forms(written) == written


def test_the_corpus_is_large_enough():
    assert len(set(PAIRS)) >= 400
    assert sum(verdict for *_, verdict in PAIRS) >= 400


def test_what_is_no_answer_is_never_right(grader):
    assert grader.forms(list(NO_ANSWER)) == ["ERR"] * len(NO_ANSWER)
    assert not any(grader.correct("12", NO_ANSWER))


def test_unrelated_equations_are_not_equal(grader):
    equations = ["184 + 184 = 360", "128 + 42 = 160", "1+1=2", "3+3=6", "360"]
    assert grader.forms(equations) == ["360", "160", "2", "6", "360"]
    assert grader.correct("72", equations) == [False] * 5


def test_the_question_again_is_no_answer(grader):
    assert grader.correct("12", ["7 + 5", "7 + 5 = 12", "12", "7 + 5 = 13"]) == [False, True, True, False]
    assert grader.forms(["7 + 5", "9 * 3", "x = 9 * 3"]) == ["ERR"] * 3
    # An option says otherwise, and a reference answer may be arithmetic.
    with MathGrader(1, arithmetic=True) as evaluating:
        assert evaluating.forms(["7 + 5", "9 * 3", "x = 9 * 3"]) == ["12", "27", "27"]
        products = ["2(3)", "(2)(3)", r"2\left(3\right)", "3(4)(5)", "2(3 + 1)", r"\log_2(8)"]
        assert evaluating.forms(products) == ["6", "6", "6", "60", "8", "3"]
    assert grader.correct("7 + 5", ["12", "7 + 5"]) == [True, False]


ANSWERS = sorted({*NO_ANSWER, *itertools.chain(*itertools.chain(*TOPICS.values()))})


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(*[st.sampled_from(ANSWERS)] * 3)
def test_being_equal_is_an_equivalence(grader, a, b, c):
    """It is so by construction; these are the verdicts of pairs that are graded on their own."""

    def equal(one, other):
        return grader.forms([one]) == grader.forms([other])

    assert equal(a, a)
    assert equal(a, b) == equal(b, a)
    if equal(a, b) and equal(b, c):
        assert equal(a, c)
    if "ERR" not in grader.forms([a, b]):
        assert grader.correct(a, [b]) == grader.correct(b, [a]) == [equal(a, b)]


def test_known_strings_need_no_worker():
    before = children()
    with contextlib.closing(MathGrader(workers=1)) as idle:
        known = ["12", "+12.0", "13", "ERR", "some words", "(b)", "12 cm", "7 + 5"]
        assert idle.correct("12", known) == [True, True, False, False, False, False, True, False]
        assert children() == before


def test_many_threads_may_use_it(grader):
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(
            threads.map(lambda i: grader.correct(f"x + {i}", ["1 + x", "x+2", "3 + x", "ERR"]), range(24))
        )
    assert verdicts == [[i == 1, i == 2, i == 3, False] for i in range(24)]


# --- what costs too much


@pytest.fixture(scope="module")
def hurried():
    finder = FormFinder(2, limit=0.1)
    yield finder
    with pytest.warns(InputWarning, match=LARGE):
        finder.close()


@pytest.mark.parametrize("kind", some(COSTLY))
def test_no_answer_costs_more_than_its_limit(hurried, kind):
    """It is read, computed or spelled; and no two of them are equal."""
    forms = hurried.find([(answer, False) for answer in COSTLY[kind]])
    known = [form for form in forms if form is not None]
    assert len(set(known)) == len(known)
    assert "ERR" not in known


def test_there_are_many_ways_to_cost_too_much():
    assert len(set(itertools.chain(*COSTLY.values()))) >= 100


def test_what_is_too_large_is_as_it_was_written():
    answers = [
        "(23!)!",
        "((23)!)!",
        "(23!)! + 1",
        r"\binom{20000}{9000}",
        "9^{9^{9^9}}",
        "(x+1)^{10^9}",
        "x + 1",
    ]
    with (
        pytest.warns(
            InputWarning, match="^6 answers exceed what grading may compute, as \\(23!\\)!; each is"
        ),
        FormFinder(1) as finder,
    ):
        assert finder.find([(answer, False) for answer in answers]) == [
            *(r"\left(23!\right)!", r"\left(23!\right)!", r"1 + \left(23!\right)!", r"{\binom{20000}{9000}}"),
            *("9^{9^{9^{9}}}", r"\left(x + 1\right)^{10^{9}}", "x + 1"),
        ]


def test_a_logarithm_that_is_not_computed_keeps_its_base(grader):
    large = "(2^{10^9})"
    assert not grader.correct(rf"\log_{{3}}{large}", [rf"\ln{large}", rf"\log_{{5}}{large}"])[0]


OF_ONE = [
    *(
        r"\sqrt{%s}",
        "(%s)",
        "%s!",
        "%s!!",
        "-%s",
        "|%s|",
        r"\sin(%s)",
        r"\ln %s",
        r"\{%s\}",
        r"\text{%s}",
        "%s cm",
    ),
    *(r"\int %s dx", r"\left[%s\right)", r"\Gamma(%s)", r"\boxed{%s}", "a_{%s}", r"%s \in \mathbb{Z}"),
]
OF_TWO = [
    *(
        "%s + %s",
        "%s - %s",
        r"%s \cdot %s",
        "%s^{%s}",
        r"\frac{%s}{%s}",
        r"\binom{%s}{%s}",
        "%s%s",
        r"%s \pm %s",
    ),
    *(r"\sum_{k=%s}^{%s} k^k", r"\prod_{i=%s}^{%s} a_i", r"\log_{%s} %s", r"\int_{%s}^{%s} x^x dx", "%s, %s"),
    *(r"\lim_{x \to %s} %s", r"\begin{pmatrix}%s&%s\end{pmatrix}", r"%s \mod %s", "%s = %s", "%s < %s"),
]


def nested(parts):
    """What a grammar of LaTeX makes of some parts."""
    return st.one_of(
        st.builds(str.__mod__, st.sampled_from(OF_ONE), parts),
        st.builds(lambda pattern, a, b: pattern % (a, b), st.sampled_from(OF_TWO), parts, parts),
    )


LEAVES = st.sampled_from(
    ["x", "n", "k", "i", "2", "9", "-1", "10^9", "0.5", "99999", r"\pi", "e", r"\infty", "T", ""]
)
LATEX = st.recursive(LEAVES, nested, max_leaves=12)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LATEX, min_size=5, max_size=5))
def test_no_latex_makes_the_grader_raise(grader, answers):
    forms = grader.forms(answers)
    assert all(forms)
    assert grader.forms(answers[:1]) == forms[:1]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_makes_the_grader_raise(grader, text):
    assert grader.forms([text])


# --- processes


def test_workers_import_no_jax():
    program = (
        "import sys, autotts_jax.collect.grading\n"
        "from autotts_jax.replay.equivalence import form, start_worker\n"
        "start_worker()\n"
        "print(form('1 + x'))\n"
        "print({'jax', 'jaxlib', 'flax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "x + 1\nset()\n"


def test_bad_arguments():
    with pytest.raises(InputError, match="workers is 0"):
        MathGrader(0)
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="timeout is"):
            MathGrader(1, timeout)


def test_without_the_parser(monkeypatch):
    monkeypatch.setitem(sys.modules, "latex2sympy2_extended", None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[equiv\]'"):
        MathGrader()
