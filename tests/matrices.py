"""Small random probe matrices, all of one shape so that they share compiled functions."""

import numpy as np
from hypothesis import strategies as st

from autotts_jax.replay import EXACT, NONE, BranchOrders, Cell, ProbeDataset, ProbeMatrix, Question

QUESTIONS, BRANCHES, MAX_LENGTH, VOCABULARY, WIDTH = 2, 6, 40, 5, 4


def random_matrix(seed: int, abstain: float = 0.0) -> ProbeMatrix:
    """A matrix whose finals need not repeat the last probe, and where Δ·L and T disagree both ways."""
    rng = np.random.default_rng(seed)
    shape = (QUESTIONS, BRANCHES)
    # Mostly short, some longer than one word of the bit sets.
    lengths = np.where(rng.random(shape) < 0.8, rng.integers(1, 5, shape), rng.integers(30, 41, shape))
    interval = rng.integers(1, 9, QUESTIONS)
    answers = rng.integers(0, VOCABULARY, (*shape, MAX_LENGTH + 1))
    answers[rng.random(answers.shape) < abstain] = NONE
    answers[np.arange(MAX_LENGTH + 1) > lengths[..., None]] = NONE
    return ProbeMatrix(
        answers=answers.astype(np.int16),
        lengths=lengths.astype(np.int32),
        tokens=np.maximum(1, lengths * interval[:, None] + rng.integers(-6, 20, shape)).astype(np.int32),
        gold=rng.integers(0, VOCABULARY, QUESTIONS).astype(np.int16),
        interval=interval.astype(np.int32),
        cell=np.zeros(QUESTIONS, np.int32),
        vocabulary=VOCABULARY,
    )


def shared_orders(rows, questions: int = QUESTIONS) -> BranchOrders:
    """Branch orders that all questions share, one a row."""
    return BranchOrders(np.asarray(rows, np.int32)[None], np.zeros(questions, np.int32))


def as_dataset(matrix: ProbeMatrix, model: str = "model", benchmark: str = "bench") -> ProbeDataset:
    words = tuple("abcdefghij"[: matrix.vocabulary])
    questions = tuple(
        Question(q, f"question {q}", words[matrix.gold[q]], words) for q in range(matrix.num_questions)
    )
    cell = Cell(model, benchmark, matrix.num_branches, "random", "0" * 64)
    return ProbeDataset(matrix, questions, (cell,), EXACT)


def matrix_behind(pool):
    """What a controller must not see."""
    return pool._matrix  # noqa: SLF001  # what a cheat would do


matrices = st.integers(0, 2**32 - 1).map(random_matrix)
orders = st.permutations(range(BRANCHES)).map(lambda order: np.array(order[:WIDTH], np.int32))


def spelled_dataset(*questions) -> ProbeDataset:
    """Questions given by the spelled answers of each branch, tokens of each branch, the gold answer and Δ.

    All are of one cell; a question's index in its file is 7 more than its position.
    """
    vocabularies = [tuple(dict.fromkeys(text for row in rows for text in row)) for rows, *_ in questions]
    shape = len(questions), max(len(rows) for rows, *_ in questions)
    depths = max(len(row) for rows, *_ in questions for row in rows)
    answers = np.full((*shape, depths), NONE, np.int16)
    lengths, tokens = np.ones(shape, np.int32), np.ones(shape, np.int32)
    gold = np.full(len(questions), NONE, np.int16)
    for q, (rows, totals, right, _) in enumerate(questions):
        known = vocabularies[q]
        for b, row in enumerate(rows):
            answers[q, b, : len(row)] = [known.index(text) for text in row]
            lengths[q, b] = len(row) - 1
        tokens[q, : len(totals)] = totals
        gold[q] = known.index(right) if right in known else NONE
    matrix = ProbeMatrix(
        answers=answers,
        lengths=lengths,
        tokens=tokens,
        gold=gold,
        interval=np.array([interval for *_, interval in questions], np.int32),
        cell=np.zeros(len(questions), np.int32),
        vocabulary=max(map(len, vocabularies)),
    )
    asked = tuple(
        Question(q + 7, f"question {q}", right or "", vocabulary)
        for q, ((_, _, right, _), vocabulary) in enumerate(zip(questions, vocabularies, strict=True))
    )
    return ProbeDataset(matrix, asked, (Cell("model", "benchmark", shape[1], "", ""),), EXACT)


def a_question(number):
    """The gold answer is among the first three branches; in every other question they vote for it."""
    right, wrong, other = (f"q{number}{kind}" for kind in ("right", "wrong", "other"))
    first = [right, wrong, wrong] if number % 2 else [right, other, right]
    branches = [*first, right, right, right, other]
    return [[answer, answer] for answer in branches], [900] * len(branches), right, 500
