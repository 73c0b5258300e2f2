"""Extraction of answers from texts."""

import json
import subprocess
import sys

import pytest
from answer_cases import CASES, ERR
from hypothesis import example, given
from hypothesis import strategies as st

from autotts_jax.collect import extract, extractor
from autotts_jax.collect.answers import MAX_LENGTH
from autotts_jax.errors import InputError
from autotts_jax.replay.equivalence import plain_form
from autotts_jax.replay.spelling import ERROR, spelling


def test_the_table_is_large_enough():
    assert len(set(CASES)) == len(CASES) >= 120
    assert ERROR == ERR


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [case[:2] + case[3:4] for case in CASES],
    ids=[f"{i}-{case[1]}-{case[3]}"[:40] for i, case in enumerate(CASES)],
)
def test_extraction(text, spec, expected):
    assert extract(text, extractor(spec)) == expected


ANY_TEXT = st.lists(
    st.sampled_from([*"{}\\$ .,-1/%A(IB)*e", "\\boxed", "\\fbox{", "\\frac{1}{2}", "12", "Answer: "])
).map("".join)


@pytest.mark.parametrize("spec", ["auto", "boxed", pytest.param("number", marks=pytest.mark.slow), "choice"])
@given(text=ANY_TEXT)
def test_any_text_gives_one_short_line_or_err(spec, text):
    answer = extract(text, extractor(spec))
    assert answer == " ".join(answer.split())
    assert 0 < len(answer) <= MAX_LENGTH


@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "\\boxed{{{}}}", "It is {:,}.", "${}$"])
)
def test_an_integer_is_found_however_it_is_written(number, template):
    assert plain_form(extract(template.format(number), extractor("auto"))) == str(number)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("yes.$", "yes"),
        (r"\$ERR", "ERR"),
        (r"\textbf{Answer:} $-(5)$", "-5"),
        (r"\textbf{Answer:} $1e5.$", "100000"),
        (r"$\text{The answer is }$ 7.", "7"),
    ],
)
def test_what_a_dollar_sign_or_a_font_hides_is_taken_off(answer, expected):
    assert plain_form(answer) == expected


@example("°.$")
@given(st.lists(st.sampled_from("{}()\\$. 1a/½²°√e-")).map("".join))
def test_a_form_that_needs_no_mathematics_is_the_form_of_itself(answer):
    assert spelling(answer) == spelling(answer).strip()
    form = plain_form(answer)
    assert form is None or plain_form(form) == form


def test_a_long_unit_is_read_in_no_time():
    assert plain_form("60 km per hour") == "60"
    assert plain_form("1 " + "mm per " * 27 + "!") is None  # took 2^27 steps


LISTED = "Which is a prime?\n(A) 4 (B) 7 (C) 9"


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        (LISTED, "A prime has 2 divisors, so it is (B), not 9.", "B"),
        ("Which is a prime?\nA. 4\nB. 7", "I think B, which has 2 divisors.", "B"),
        (LISTED, r"\boxed{7}, which is (B)", "7"),
        (LISTED, r"The formula is \boxed{p = 2}.\n\n**Answer: B**", "B"),
        (LISTED, r"The formula is \boxed{p = 2}. Answer: (B) 7, a prime", "B"),
        (LISTED, r"\boxed{\text{B: a small prime}}", "B"),
        (LISTED, r"\boxed{\textbf{(B)}\ 7}", "B"),
        (LISTED, r"\boxed{B} is the answer: C is none", "B"),
        (LISTED, "<answer>B</answer>, not C", "B"),
        (LISTED, r"\boxed{Because 7}", "Because 7"),
        (LISTED, "It is 7", "7"),
        ("Is A. Lincoln older than B Franklin?", "By 2 years (B)", "2"),
        ("What is 3 + 4?", "It is (B) 7", "7"),
    ],
)
def test_choices_are_looked_for_where_the_question_lists_some(question, text, expected):
    assert extract(text, extractor("auto", question)) == expected


LONG_TEXTS = {
    "boxes that stay open": "\\boxed{" * 14_000,
    "nested boxes": "\\boxed{" * 7_000 + "1" + "}" * 7_000,
    "braces": "\\boxed{" + "{}" * 50_000,
    "backslashes": "\\" * 100_000,
    "digits": "1" * 100_000,
    "groups of digits": "1,234," * 16_000,
    "signs": "-" * 100_000,
    "currency": "-$" * 50_000,
    "fractions": "1 \\frac{1}{" * 9_000,
    "brackets": "(A " * 33_000,
    "stars": "**" * 50_000,
    "spaces": "answer" + " " * 100_000,
    "words": "the answer is a box " * 5_000,
    "a stated row": "the answer is " + "1111111, (x^2 and " * 5_000,
}


EXTRACT_ALL = """
import json, sys
from autotts_jax.collect import extract, extractor
for text in json.load(sys.stdin):
    extract(text, extractor(sys.argv[1]))
"""


SPECS = [
    pytest.param("auto", marks=pytest.mark.slow),
    "boxed",
    *(pytest.param(spec, marks=pytest.mark.slow) for spec in ("number", "choice")),
]


@pytest.mark.parametrize("spec", SPECS)
def test_time_is_linear_in_the_length(spec):
    """Texts of half a megabyte take seconds; what is quadratic takes hours."""
    texts = json.dumps([text * 5 for text in LONG_TEXTS.values()])
    subprocess.run([sys.executable, "-c", EXTRACT_ALL, spec], input=texts, text=True, check=True, timeout=300)


def test_a_function_is_its_own_extractor():
    assert extract("x", str.upper) == "X"
    assert extractor(str.upper) is str.upper
    assert extract("x", lambda _text: None) == ERR
    assert extract("x", lambda _text: " a \n b ") == "a b"


def test_functions_by_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def last_word(text):\n    return text.split()[-1]\n")
    assert extract("one two", extractor(f"{file}:last_word")) == "two"
    with pytest.raises(InputError, match="has no function first_word"):
        extractor(f"{file}:first_word")
    with pytest.raises(InputError, match=r"there is no file .*other\.py"):
        extractor(f"{tmp_path / 'other.py'}:last_word")
    file.write_text("1 / 0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        extractor(f"{file}:last_word")


def test_a_function_that_fails_is_reported():
    with pytest.raises(InputError, match=r"extractor failed on a text:(.|\n)*IndexError"):
        extract("", lambda text: text.split()[-1])
    with pytest.raises(InputError, match="returned 12"):
        extract("", lambda _text: 12)


def test_bad_specs_are_refused():
    with pytest.raises(InputError, match="'box': there is no extractor of this name; give one of auto"):
        extractor("box")
    with pytest.raises(InputError, match=r"'regex:\(': missing \)"):
        extractor("regex:(")
    with pytest.raises(InputError, match=r"function ':f': give it as"):
        extractor(":f")


def test_without_the_regex_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[collecting\]'"):
        extractor("regex:a")


def test_an_endless_pattern_is_given_up(caplog):
    assert extract("a" * 5000 + "b", extractor("regex:(?:a+)+$")) == ERR
    assert "took longer than 1 s on a text of 5001 characters" in caplog.text


def test_nothing_heavy_is_imported():
    program = (
        "import sys, autotts_jax.collect.grading, autotts_jax.collect.answers\n"
        "print({'jax', 'sympy', 'latex2sympy2_extended', 'regex'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
