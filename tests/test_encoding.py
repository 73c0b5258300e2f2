"""Answers as ids: string equality, and mathematical equality."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotts_jax.errors import DataError, InputError, InputWarning
from autotts_jax.replay import read_json
from autotts_jax.replay.dataset import EQUIV, EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.encoding import MAX_ANSWERS, encode_exact, merge_equivalent
from autotts_jax.replay.matrix import NONE, ProbeMatrix


def exact_dataset(*questions):
    """One branch a question: its answers in order, the last as final. Questions are (gold, answers)."""
    encoded = [encode_exact(answers, gold, "file", q) for q, (gold, answers) in enumerate(questions)]
    depths = max(len(codes.ids) for codes in encoded)
    answers = [np.pad(codes.ids, (0, depths - len(codes.ids)), constant_values=NONE) for codes in encoded]
    matrix = ProbeMatrix(
        answers=np.array(answers, np.int16)[:, None, :],
        lengths=np.array([[len(codes.ids) - 1] for codes in encoded], np.int32),
        tokens=np.full((len(questions), 1), 900, np.int32),
        gold=np.array([codes.gold for codes in encoded], np.int16),
        interval=np.full(len(questions), 500, np.int32),
        cell=np.zeros(len(questions), np.int32),
        vocabulary=max(len(codes.vocabulary) for codes in encoded),
    )
    texts = tuple(
        Question(q, f"question {q}", gold, codes.vocabulary)
        for q, ((gold, _), codes) in enumerate(zip(questions, encoded, strict=True))
    )
    return ProbeDataset(matrix, texts, (Cell("m", "b", 1, "cells/m/b.json", "0" * 64),), EXACT)


# --- exact


@given(st.lists(st.sampled_from(["", "ERR", "1", "1.0", "x"]), min_size=1), st.sampled_from(["1", "y"]))
def test_equal_strings_share_an_id_in_order_of_appearance(answers, gold):
    codes = encode_exact(answers, gold, "file", 0)
    assert codes.ids.dtype == np.int16
    assert [codes.vocabulary[i] for i in codes.ids] == answers
    assert codes.vocabulary[codes.gold] == gold
    assert list(codes.vocabulary) == list(dict.fromkeys([*answers, gold]))


def test_ids_fit_int16():
    answers = [str(i) for i in range(MAX_ANSWERS)]
    assert encode_exact(answers, "7", "file", 0).ids[-1] == 32766
    with pytest.raises(DataError, match="file, question 4: 32768 distinct answers, where 32767 are possible"):
        encode_exact(answers, "gold", "file", 4)


# --- equiv

EQUAL = [
    ["204", "\\sqrt{41616}", "204.0", "$204$", "x = 204", "0204", "204.", "\\boxed{204}"],
    ["0.5", "\\frac12", "1/2", "\\frac{1}{2}", ".5"],
    ["73^\\circ", "73"],
    ["1/3", "\\frac{2}{6}"],
    ["0.333333"],
    ["2\\sqrt{2}", "\\sqrt{8}", "\\frac{4}{\\sqrt{2}}"],
    ["2(x+y)", "2y + 2x"],
    ["2^{2025}", "4 \\cdot 2^{2023}"],
    ["\\{1, 2\\}", "2, 1"],
    ["1,234", "1234"],
    ["\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{bmatrix} 1.0 \\\\ 2 \\end{bmatrix}"],
    ["(0, \\infty)"],
    ["\\infty"],
    ["(23!)!", "((23)!)!"],
    ["(23!)! + 1"],
    ["50\\%"],
    ["-7"],
    ["2x + 2y + 1"],
    ["0.333334"],
    ["1000000007"],
    ["1000000009"],
]
NO_ANSWER = [
    "ERR",
    "",
    "  ",
    "200 + 4",
    "\\frac{408}{2}",
    "1}^{25} E_k",
    "4*(2+",
    "\\frac{1}{0}",
    "so 27 + Expected ]",
]


@pytest.fixture(scope="module")
def merged():
    shuffled = np.random.default_rng(0).permutation([text for group in EQUAL for text in group] + NO_ANSWER)
    answers = [str(text) for text in shuffled]
    dataset = exact_dataset(
        ("204", answers),
        ("\\frac{1}{2}", ["ERR", "0.5", "1", "2/4"]),
        ("99", ["ERR", "98"]),
        ("x = 5", ["5", "x = 5", "y = 5", "6"]),
    )
    with pytest.warns(InputWarning, match="^3 answers exceed what grading may compute"):
        return answers, merge_equivalent(dataset)


def test_equal_mathematics_shares_an_id(merged):
    answers, dataset = merged
    ids = dict(zip(answers, dataset.matrix.answers[0, 0].tolist(), strict=True))
    assert [[ids[text] for text in group] for group in EQUAL] == [
        [ids[group[0]]] * len(group) for group in EQUAL
    ]
    assert len({ids[group[0]] for group in EQUAL}) == len(EQUAL)
    assert {ids[text] for text in NO_ANSWER} == {NONE}
    assert dataset.matrix.gold[0] == ids["204"]


def test_a_class_is_spelled_in_its_canonical_form(merged):
    _, dataset = merged
    vocabulary = dataset.questions[0].vocabulary
    assert {"204", "0.5", "2 \\sqrt{2}", "2x + 2y", "1, 2", "-7", "50"} <= set(vocabulary)
    assert len(set(vocabulary)) == len(vocabulary)


def test_the_merged_dataset_is_consistent(merged):
    _, dataset = merged
    assert dataset.encoding == EQUIV
    assert dataset.matrix.vocabulary == len(EQUAL)
    assert dataset.matrix.answers.dtype == dataset.matrix.gold.dtype == np.int16
    np.testing.assert_array_equal(dataset.matrix.answers[1, 0, :5], [NONE, 0, 1, 0, NONE])
    np.testing.assert_array_equal(dataset.matrix.answers[2, 0, :3], [NONE, 0, NONE])
    np.testing.assert_array_equal(dataset.matrix.gold[1:3], [0, 1])
    assert [question.vocabulary for question in dataset.questions[1:3]] == [("0.5", "1"), ("98", "99")]


def test_an_equation_is_its_right_hand_side(merged):
    _, dataset = merged
    np.testing.assert_array_equal(dataset.matrix.answers[3, 0, :4], [0, 0, 0, 1])
    assert dataset.matrix.gold[3] == 0


def test_an_unparsable_gold_is_named():
    dataset = exact_dataset(("7", ["7", "8"]), ("1}^{25}", ["7", "8"]))
    with pytest.raises(
        DataError, match=r"cells/m/b.json, question 1: gold answer '1}\^\{25}' cannot be parsed"
    ):
        merge_equivalent(dataset)


@pytest.mark.slow
def test_answers_that_cost_too_much_are_answers_of_their_own():
    answers = [
        "7",
        "9^{9^{9^9}}",
        r"\prod_{k=1}^{10^9} k",
        r"\binom{20000}{9000}",
    ]
    with pytest.warns(InputWarning, match="^3 answers exceed what grading may compute"):
        merged = merge_equivalent(exact_dataset(("7", answers)))
    assert merged.matrix.answers[0, 0].tolist() == [0, 1, 2, 3]


def test_without_the_parser(monkeypatch):
    monkeypatch.setitem(sys.modules, "latex2sympy2_extended", None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[equiv\]'"):
        merge_equivalent(exact_dataset(("7", ["7", "8"])))


def test_a_script_needs_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from autotts_jax.replay import merge_equivalent, smollm2\n"
        "print(len(merge_equivalent(smollm2().select([0]))))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "1\n"


@pytest.mark.slow
def test_released_answers_are_merged_sensibly(replay_dir):
    path = replay_dir / "Qwen3-8B" / "aime24.json"
    exact = read_json(path).select([2, 4])
    equiv = merge_equivalent(exact)
    assert [question.answer(g) for question, g in zip(equiv.questions, equiv.matrix.gold, strict=True)] == [
        question.gold for question in exact.questions
    ]
    np.testing.assert_array_equal(equiv.matrix.lengths, exact.matrix.lengths)
    for q, question in enumerate(exact.questions):
        errors = exact.matrix.answers[q] == question.vocabulary.index("ERR")
        assert (equiv.matrix.answers[q][errors] == NONE).all()
        right = exact.matrix.answers[q] == exact.matrix.gold[q]
        assert (equiv.matrix.answers[q][right] == equiv.matrix.gold[q]).all()
