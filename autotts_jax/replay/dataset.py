"""Datasets: a probe matrix, and what its arrays leave out, such as the questions' text and origin."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from autotts_jax.checks import check_choice, check_float, check_int
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay.matrix import MAX_ENTRIES, NONE, ProbeMatrix
from autotts_jax.replay.signals import DTYPE, bad_name, first_gap, readable
from autotts_jax.terminal import counted_branches

EXACT = "exact"
"""The encoding in which answers are equal if they are spelled alike."""
EQUIV = "equiv"
"""The encoding in which answers are equal if they are mathematically equal."""
ENCODINGS = (EXACT, EQUIV)
"""All encodings."""

CELLS_SHOWN = 3
"""Cells that the text of a dataset names."""


def check_encoding(encoding: str) -> None:
    """Checks the name of an encoding.

    Raises:
        InputError: it is not one of `ENCODINGS`.
    """
    check_choice("encoding", encoding, ENCODINGS)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A (model, benchmark) pair.

    Attributes:
        model: the model that generated the branches, e.g. ``Qwen3-8B``.
        benchmark: the benchmark that the questions belong to, e.g. ``aime24``.
        num_branches: N, branches recorded for each of its questions.
        source: the file that it was read from, or the generator that made it.
        sha256: hash of the source's bytes.
        probes: whether answers were recorded before the end of a branch. Without probes, the depths before
            the end hold `NONE`: they say how long a branch is, and nothing else.
    """

    model: str
    benchmark: str
    num_branches: int
    source: str
    sha256: str
    probes: bool = True

    @property
    def name(self) -> str:
        """The cell's name, ``model/benchmark``."""
        return f"{self.model}/{self.benchmark}"


@dataclasses.dataclass(frozen=True)
class Question:
    """The text of a question, kept on the host.

    Attributes:
        index: its position in the file that it came from.
        text: the question itself.
        gold: the reference answer.
        vocabulary: the answers by id; under `EQUIV`, one spelling of each class.
    """

    index: int
    text: str
    gold: str
    vocabulary: tuple[str, ...]

    def answer(self, answer_id: int) -> str | None:
        """Returns the text of an answer.

        Args:
            answer_id: an id of this question's answers.

        Returns:
            The text, or None for `NONE`.
        """
        return None if answer_id == NONE else self.vocabulary[answer_id]


@dataclasses.dataclass(frozen=True, eq=False)
class ProbeDataset:
    """Questions of one or more cells: a `ProbeMatrix` of NumPy arrays and its text.

    ``dataset.matrix`` is the pytree to pass to JAX; row q of it belongs to ``dataset.questions[q]`` and to
    ``dataset.cells[dataset.matrix.cell[q]]``. Two datasets are equal where they are the same object.

    Attributes:
        matrix: the probe matrix, NumPy arrays on the host.
        questions: text of each question, Q of them.
        cells: the cells that ``matrix.cell`` indexes.
        encoding: `EXACT` or `EQUIV`.
    """

    matrix: ProbeMatrix
    questions: tuple[Question, ...]
    cells: tuple[Cell, ...]
    encoding: str

    def __len__(self) -> int:
        """Returns Q, the number of questions."""
        return len(self.questions)

    def __repr__(self) -> str:
        cells = ", ".join(
            f"{cell.name} ({counted_branches(cell.num_branches)})" for cell in self.cells[:CELLS_SHOWN]
        )
        more = len(self.cells) - CELLS_SHOWN
        return f"ProbeDataset of {len(self)} questions: {cells}{f' and {more} more' if more > 0 else ''}"

    @property
    def without_probes(self) -> str | None:
        """The first cell that holds final answers and lengths alone; None where there is none."""
        return next((cell.name for cell in self.cells if not cell.probes), None)

    def check_probes(self, what: str) -> None:
        """Checks that all cells have probes.

        Args:
            what: what needs them, and for what, as the beginning of a message.

        Raises:
            InputError: a cell has none.
        """
        if self.without_probes is not None:
            raise InputError(
                f"{what} answers before the end of a branch, and {self.without_probes} has none: it holds "
                "final answers and lengths. Choose controllers that read branches to their ends, or have the "
                "model probe the texts: autotts-jax collect --from-texts"
            )

    def warn_without_probes(self) -> None:
        """Warns that an environment has little to show, where a cell has no probes."""
        if self.without_probes is not None:
            warnings.warn(
                f"{self.without_probes} holds final answers and lengths alone, so an environment shows no "
                "answer before the end of a branch; for more, have the model probe the texts: autotts-jax "
                "collect --from-texts",
                InputWarning,
                stacklevel=3,
            )

    def select(self, questions: Sequence[int] | np.ndarray) -> ProbeDataset:
        """Selects questions; cells of which none is selected are left out.

        Args:
            questions: positions of the questions, in the order wanted.

        Returns:
            A dataset of these questions.

        Raises:
            InputError: no question is selected, or one that is not there.
        """
        index = np.asarray(questions).reshape(-1)
        if index.size == 0:
            raise InputError("no question is selected; a dataset needs at least one")
        count = len(self)
        if index.dtype.kind not in "iu" or not ((index >= -count) & (index < count)).all():
            raise InputError(
                f"questions are selected by whole numbers from 0 to {count - 1}, but not {questions!r:.60}"
            )
        matrix = self.matrix.select(index)
        kept, cell = np.unique(np.asarray(matrix.cell), return_inverse=True)
        return dataclasses.replace(
            self,
            matrix=dataclasses.replace(matrix, cell=cell.astype(np.int32)),
            questions=tuple(self.questions[i] for i in index),
            cells=tuple(self.cells[i] for i in kept),
        )

    def with_signals(self, signals: Mapping[str, np.ndarray]) -> ProbeDataset:
        """Gives the dataset other signals: numbers that a branch shows beside its answers.

        Args:
            signals: the signals by name, in place of those that it has: float16 arrays of shape (Q, N, K),
                as ``matrix.answers``, with a finite value at every depth that can be read.

        Returns:
            A dataset of the same questions. Where there is nothing to read, its signals are NaN.

        Raises:
            InputError: a name, a dtype or a shape is wrong, a value is missing, or the dataset would be too
                large.

        Example:
            >>> import numpy as np
            >>> import autotts_jax as at
            >>> data = at.load("smollm2")
            >>> depth = np.broadcast_to(np.arange(data.matrix.max_depth), data.matrix.answers.shape)
            >>> list(data.with_signals({"depth": depth.astype(np.float16)}).matrix.signals)
            ['depth']
        """
        if not isinstance(signals, Mapping):
            raise InputError(f"signals is {signals!r:.60}, but it must be a mapping from names to arrays")
        if problem := bad_name(signals):
            raise InputError(problem)
        shape = self.matrix.answers.shape
        for name, values in signals.items():
            kind, size = getattr(values, "dtype", None), getattr(values, "shape", None)
            if (kind, size) != (DTYPE, shape):
                what = f"{values!r:.40}" if kind is None else f"{kind} of shape {size}"
                raise InputError(
                    f"the signal {name} is {what}; make it {DTYPE} of shape {shape}, as the answers are"
                )
        if (1 + len(signals)) * self.matrix.answers.size > MAX_ENTRIES:
            raise InputError(
                f"the answers and {len(signals)} signals have more than {MAX_ENTRIES:,} entries; select "
                "questions, or leave signals out"
            )
        given = dataclasses.replace(self.matrix, signals=signals)
        if gap := first_gap(given):
            raise InputError(f"question {gap.question}, branch {gap.branch}: {gap.problem}")
        there, nan = readable(self.matrix), DTYPE.type(np.nan)
        kept = {name: np.where(there, np.asarray(values), nan) for name, values in signals.items()}
        return dataclasses.replace(self, matrix=dataclasses.replace(given, signals=kept))

    def cell_questions(self, cell: int) -> np.ndarray:
        """Finds the questions of one cell.

        Args:
            cell: index into ``cells``.

        Returns:
            Positions of its questions, ascending.

        Raises:
            InputError: there is no such cell.
        """
        cell = check_int("cell", cell, 0, len(self.cells) - 1)
        return np.flatnonzero(np.asarray(self.matrix.cell) == cell)

    def shuffle(self, seed: int) -> ProbeDataset:
        """Shuffles the questions.

        Args:
            seed: seed of the order.

        Returns:
            A dataset of the same questions.

        Raises:
            InputError: the seed is not a whole number of at least 0.
        """
        seed = check_int("seed", seed)
        return self.select(np.random.default_rng(seed).permutation(len(self)))

    def split(self, fraction: float, seed: int) -> tuple[ProbeDataset, ProbeDataset]:
        """Splits the questions into two disjoint datasets.

        Questions with the same text (one question answered by several models) go to the same side, so that
        a held-out question was never seen.

        Args:
            fraction: share of the distinct questions that go to the first side, between 0 and 1.
            seed: seed of the draw.

        Returns:
            The two sides.

        Raises:
            InputError: a side would be empty, or the seed or the fraction is not a number that can be one.
        """
        seed, fraction = check_int("seed", seed), check_float("fraction", fraction)
        texts = sorted({question.text for question in self.questions})
        take = round(fraction * len(texts))
        if not 0 < take < len(texts):
            raise InputError(
                f"a split of {len(texts)} distinct questions at {fraction} leaves a side empty; "
                "choose a fraction that leaves at least one question on each"
            )
        chosen = np.random.default_rng(seed).permutation(len(texts))[:take]
        first = {texts[i] for i in chosen}
        inside = np.array([question.text in first for question in self.questions])
        return self.select(np.flatnonzero(inside)), self.select(np.flatnonzero(~inside))


def stack(datasets: Sequence[ProbeDataset]) -> ProbeDataset:
    """Stacks several datasets into one; a question keeps its cell.

    Smaller matrices are padded to the longest branch and the largest number of branches; the padding is never
    read, because a branch order holds only the branches that its cell has. Signals that all datasets have are
    kept; of others an `InputWarning` says that they are left out.

    Args:
        datasets: the datasets, at least one.

    Returns:
        One dataset of all questions, in the order given.

    Raises:
        InputError: there is no dataset, a cell occurs twice, the encodings differ, or they are too large
            together.
    """
    if not datasets:
        raise InputError("no dataset to stack")
    if len(datasets) == 1:
        return datasets[0]
    encodings = {dataset.encoding for dataset in datasets}
    if len(encodings) > 1:
        raise InputError(f"datasets with different encodings cannot be stacked: {sorted(encodings)}")
    cells = [cell for dataset in datasets for cell in dataset.cells]
    seen: dict[str, Cell] = {}
    for cell in cells:
        if cell.name in seen:
            raise InputError(
                f"cell {cell.name} occurs twice, from {seen[cell.name].source} and {cell.source}; "
                "give each (model, benchmark) once"
            )
        seen[cell.name] = cell
    num_branches = max(dataset.matrix.num_branches for dataset in datasets)
    max_depth = max(dataset.matrix.max_depth for dataset in datasets)
    count = sum(len(dataset) for dataset in datasets)
    shown = [set(dataset.matrix.signals) for dataset in datasets]
    names = set.intersection(*shown)
    lacking = [set.union(*shown) - own for own in shown]
    if any(lacking):
        absent, first = next(pair for pair in zip(lacking, datasets, strict=True) if pair[0])
        warnings.warn(
            f"{first.cells[0].name} has no signal {', '.join(sorted(absent))}, so all the data together has "
            "none; give data that has it alone to keep it",
            InputWarning,
            stacklevel=2,
        )
    if count * num_branches * max_depth * (1 + len(names)) > MAX_ENTRIES:
        arrays = f" × {1 + len(names)} arrays, the answers and signals," if names else ","
        raise InputError(
            f"{count:,} questions × {num_branches:,} branches × {max_depth:,} depths{arrays} as many as the "
            f"largest dataset has, are more than {MAX_ENTRIES:,}; give fewer datasets at a time"
        )
    vocabulary = max(dataset.matrix.vocabulary for dataset in datasets)
    parts, first_cell = [], 0
    for dataset in datasets:
        matrix = dataset.matrix
        branches = (0, num_branches - matrix.num_branches)
        depths = (0, max_depth - matrix.max_depth)
        padding = ((0, 0), branches, depths)
        parts.append(
            dataclasses.replace(
                matrix,
                answers=np.pad(matrix.answers, padding, constant_values=NONE),
                lengths=np.pad(matrix.lengths, ((0, 0), branches), constant_values=0),
                tokens=np.pad(matrix.tokens, ((0, 0), branches), constant_values=0),
                cell=matrix.cell + np.int32(first_cell),
                vocabulary=vocabulary,
                signals={
                    name: np.pad(matrix.signals[name], padding, constant_values=np.nan)
                    for name in sorted(names)
                },
            )
        )
        first_cell += len(dataset.cells)
    return ProbeDataset(
        matrix=jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts),
        questions=tuple(question for dataset in datasets for question in dataset.questions),
        cells=tuple(cells),
        encoding=encodings.pop(),
    )
