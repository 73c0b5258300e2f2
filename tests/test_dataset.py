"""Datasets: choosing, shuffling, splitting and stacking questions."""

import dataclasses
import hashlib

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import EQUIV, EXACT, Cell, ProbeDataset, Question, stack
from autotts_jax.replay.embedded import load
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import paper64_orders
from autotts_jax.replay.parts import PARTS, part_of, select_part


def cell_dataset(model="m", questions=4, branches=3, max_length=5, vocabulary=6, seed=0):
    """Random answers; the questions of every model are the same."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, max_length + 1, (questions, branches)).astype(np.int32)
    lengths[0, 0] = max_length
    answers = rng.integers(0, vocabulary, (questions, branches, max_length + 1)).astype(np.int16)
    answers[np.arange(max_length + 1) > lengths[..., None]] = NONE
    words = tuple(str(i) for i in range(vocabulary))
    gold = rng.integers(0, vocabulary, questions).astype(np.int16)
    matrix = ProbeMatrix(
        answers=answers,
        lengths=lengths,
        tokens=rng.integers(1, 9999, (questions, branches)).astype(np.int32),
        gold=gold,
        interval=np.full(questions, 500, np.int32),
        cell=np.zeros(questions, np.int32),
        vocabulary=vocabulary,
    )
    texts = tuple(Question(q, f"question {q}", words[gold[q]], words) for q in range(questions))
    return ProbeDataset(matrix, texts, (Cell(model, "bench", branches, f"{model}.json", "0" * 64),), EXACT)


def assert_row(whole, q, part, row):
    """Question ``q`` of ``whole`` is question ``row`` of ``part``, apart from padding."""
    assert whole.questions[q] == part.questions[row]
    for name in ("gold", "interval"):
        assert getattr(whole.matrix, name)[q] == getattr(part.matrix, name)[row]
    branches, depths = part.matrix.answers.shape[1:]
    for name in ("lengths", "tokens"):
        values = getattr(whole.matrix, name)[q]
        np.testing.assert_array_equal(values[:branches], getattr(part.matrix, name)[row])
        assert (values[branches:] == 0).all()
    answers = whole.matrix.answers[q]
    np.testing.assert_array_equal(answers[:branches, :depths], part.matrix.answers[row])
    assert (answers[branches:] == NONE).all()
    assert (answers[:, depths:] == NONE).all()


@pytest.mark.parametrize("index", [[2], [3, 0, 0], np.array([1, 2]), range(4)])
def test_select_takes_questions_in_the_order_given(index):
    dataset = cell_dataset()
    chosen = dataset.select(index)
    assert len(chosen) == chosen.matrix.num_questions == len(index)
    assert chosen.cells == dataset.cells
    assert chosen.matrix.vocabulary == dataset.matrix.vocabulary
    for row, q in enumerate(index):
        assert_row(chosen, row, dataset, q)


def test_select_needs_a_question():
    with pytest.raises(InputError, match="no question is selected"):
        cell_dataset().select([])


def test_answers_of_a_question():
    question = cell_dataset().questions[0]
    assert question.answer(2) == "2"
    assert question.answer(NONE) is None


@given(st.integers(0, 2**32 - 1))
def test_shuffle_is_a_permutation_drawn_from_the_seed(seed):
    dataset = cell_dataset(questions=20)
    order = [question.index for question in dataset.shuffle(seed).questions]
    assert sorted(order) == list(range(20))
    assert order == [question.index for question in dataset.shuffle(seed).questions]
    for row, q in enumerate(order):
        assert_row(dataset.shuffle(seed), row, dataset, q)


def test_other_seeds_shuffle_otherwise():
    dataset = cell_dataset(questions=20)
    assert dataset.shuffle(0).questions != dataset.shuffle(1).questions != dataset.questions


@given(st.integers(0, 2**32 - 1), st.floats(0.2, 0.8))
def test_split_keeps_a_question_on_one_side_for_all_models(seed, fraction):
    dataset = stack([cell_dataset("a", questions=10), cell_dataset("b", questions=10)])
    first, second = dataset.split(fraction, seed)
    left, right = ({question.text for question in side.questions} for side in (first, second))
    assert not left & right
    assert len(left) == round(fraction * 10)
    assert len(first) + len(second) == 20
    assert len(first) == 2 * len(left)
    again = dataset.split(fraction, seed)
    assert (again[0].questions, again[1].questions) == (first.questions, second.questions)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.9, 1.0])
def test_a_split_has_two_sides(fraction):
    with pytest.raises(InputError, match="leaves a side empty"):
        cell_dataset().split(fraction, 0)


def texts_by_part(dataset):
    parts = part_of(dataset)
    return {
        name: {dataset.questions[index].text for index in np.flatnonzero(parts == name)} for name in PARTS
    }


def test_the_parts_of_a_question_depend_on_its_benchmark_alone():
    one = cell_dataset("a", questions=10)
    both = stack([one, cell_dataset("b", questions=10)])
    found = texts_by_part(one)
    assert [len(texts) for texts in found.values()] == [4, 2, 4]
    assert set.union(*found.values()) == {question.text for question in one.questions}
    assert texts_by_part(both) == texts_by_part(both.shuffle(1)) == found
    for name, texts in found.items():
        selected = select_part(both, name)
        assert {question.text for question in selected.questions} == texts
        assert len(selected) == 2 * len(texts)


def test_the_parts_of_the_embedded_data_stay_what_they_are():
    found = texts_by_part(load("smollm2"))
    assert {name: len(texts) for name, texts in found.items()} == {"train": 16, "validation": 8, "test": 16}
    digest = hashlib.sha256("\n".join(sorted(found["test"])).encode()).hexdigest()
    assert digest == "17328a94e275d98bf8aec074ffa22738e3697c82a394afd4433dfb88697315f1"


def test_the_orders_of_paper64_stay_what_they_are():
    orders = [[[0, 4, 5, 1, 2, 3], [4, 3, 1, 0, 2, 5]], [[5, 3, 4, 1, 0, 2], [1, 2, 4, 3, 5, 0]]]
    assert paper64_orders(2, 6, [0, 1]).tolist() == orders


def test_a_text_of_two_benchmarks_is_in_one_part():
    first = cell_dataset("a", questions=10)
    other = cell_dataset("a", questions=20)
    other = dataclasses.replace(other, cells=(dataclasses.replace(other.cells[0], benchmark="zebra"),))
    parts = dict(zip((q.text for q in first.questions), part_of(first), strict=True))
    both = stack([first, other])
    for question, part in zip(both.questions, part_of(both), strict=True):
        assert part == parts.get(question.text, part)


def test_bad_parts_are_refused():
    with pytest.raises(InputError, match=r"4 distinct questions, but a split into train, .* at least 5"):
        part_of(cell_dataset(questions=4))
    with pytest.raises(InputError, match="unknown part 'dev'; there are train, validation, test"):
        select_part(cell_dataset(questions=5), "dev")


def test_stack_pads_to_the_largest():
    parts = [
        cell_dataset("a", questions=2, branches=3, max_length=7, vocabulary=4),
        cell_dataset("b", questions=3, branches=5, max_length=2, vocabulary=9),
        cell_dataset("c", questions=1, branches=1, max_length=1, vocabulary=1),
    ]
    whole = stack(parts)
    assert whole.matrix.answers.shape == (6, 5, 8)
    assert whole.matrix.vocabulary == 9
    assert [cell.name for cell in whole.cells] == ["a/bench", "b/bench", "c/bench"]
    assert [cell.num_branches for cell in whole.cells] == [3, 5, 1]
    np.testing.assert_array_equal(whole.matrix.cell, [0, 0, 1, 1, 1, 2])
    rows = [(part, row) for part in parts for row in range(len(part))]
    for q, (part, row) in enumerate(rows):
        assert_row(whole, q, part, row)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(parts[0].matrix)]
    assert [leaf.dtype for leaf in jax.tree.leaves(whole.matrix)] == dtypes
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(whole.matrix))


def test_stacks_of_stacks_and_questions_of_a_cell():
    parts = [cell_dataset(name) for name in "abc"]
    whole = stack([stack(parts[:2]), parts[2]])
    for c, part in enumerate(parts):
        index = whole.cell_questions(c)
        np.testing.assert_array_equal(index, np.arange(4 * c, 4 * c + 4))
        assert_row(whole.select(index), 1, part, 1)


def test_what_cannot_be_stacked():
    a, b = cell_dataset("a"), cell_dataset("b")
    with pytest.raises(InputError, match="no dataset to stack"):
        stack([])
    with pytest.raises(InputError, match=r"cell a/bench occurs twice, from a\.json and a\.json"):
        stack([a, b, a])
    with pytest.raises(InputError, match=r"different encodings .*'equiv', 'exact'"):
        stack([a, dataclasses.replace(b, encoding=EQUIV)])


def test_matrices_select_under_jit():
    matrix = cell_dataset().matrix
    chosen = jax.jit(lambda m, index: m.select(index))(matrix, np.array([3, 1]))
    assert chosen.vocabulary == matrix.vocabulary
    np.testing.assert_array_equal(chosen.answers, matrix.answers[[3, 1]])
    np.testing.assert_array_equal(
        matrix.finals(),
        [
            [a[n] for a, n in zip(*row, strict=True)]
            for row in zip(matrix.answers, matrix.lengths, strict=True)
        ],
    )
