"""Certificates: the cheapest setting whose loss is provably small on questions like those that were tried.

Learn-then-Test (arXiv 2110.01052) with fixed-sequence testing: the settings are tested from the most costly
one down, each at the full level, until one fails.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float
from rich.console import RenderableType

from autotts_jax import files
from autotts_jax.checks import check_choice, check_float
from autotts_jax.collect.answers import source_sha256
from autotts_jax.collect.graders import MATH
from autotts_jax.collect.loading import loaded
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.evaluation import OnProgress, evaluate, provenance, widest, within
from autotts_jax.experiments.files import rows_table
from autotts_jax.experiments.tables import Table, add_row, numbers_table, thousands
from autotts_jax.policies.player import ControllerPlayer, Play, Player, name_of
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.policies.self_consistency import SelfConsistency
from autotts_jax.replay.dataset import EQUIV, EXACT, ProbeDataset
from autotts_jax.risk import betting_p_value, binomial_p_value, losses_needed
from autotts_jax.terminal import styled

FORMAT, VERSION = "autotts_jax certificate", 1

DISAGREEMENT, ACCURACY = "disagreement", "accuracy"
LOSSES = (DISAGREEMENT, ACCURACY)
"""What a setting can lose on the full budget: its answer, or its accuracy."""


@dataclasses.dataclass(frozen=True)
class Tested:
    """A setting, and what came of testing it.

    Attributes:
        setting: its name, as `autotts_jax.evaluate` takes it.
        loss: its mean loss on the calibration questions.
        tokens: mean tokens per episode.
        p_value: p-value of the hypothesis that its true loss is above ε.
        certified: whether it is certified: its p-value and those of all more costly settings are at most δ.
        questions: how many questions like these it would take to certify it; None where its loss is not below
            ε, or more than a million would not do.
    """

    setting: str
    loss: float
    tokens: float
    p_value: float
    certified: bool
    questions: int | None


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The content of a certificate's file.

    Attributes:
        format: `FORMAT`.
        version: `VERSION`.
        claim: what is certified, in words.
        setting: the certified setting.
        model: the model that the branches are of.
        interval: Δ, tokens between two probes; None where the branches have none.
        encoding: when answers are equal.
        max_branches: W, branches that an episode can open; the full budget reads them all.
        loss: a name of `LOSSES`.
        epsilon: ε, the largest loss.
        delta: δ, the largest probability that the loss is above ε all the same.
        questions: the number of calibration questions.
        seeds: episodes that the loss on a question is the mean of.
        tests: the settings that were tested, the cheapest first.
        player_sha256: hash of the file that the setting is in, if it is in one.
        made_with: versions, devices, the command and the data.
    """

    format: str
    version: int
    claim: str
    setting: str
    model: str
    interval: int | None
    encoding: str
    max_branches: int
    loss: str
    epsilon: float
    delta: float
    questions: int
    seeds: int
    tests: list[Tested]
    player_sha256: str | None
    made_with: dict[str, Any]

    def check_live(
        self, *, model: str, interval: int, grader: str, max_branches: int, budget: int | None
    ) -> None:
        """Checks that the setting can be played live as it was certified.

        Args:
            model: name of the model.
            interval: Δ.
            grader: which answers are equal: ``math`` stands for the encoding ``equiv``, others for ``exact``.
            max_branches: W.
            budget: token budget of a question.

        Raises:
            InputError: something differs.
        """
        here = {
            "model": (self.model, model),
            "interval": (self.interval, self.interval and interval),
            "encoding (grader)": (self.encoding, EQUIV if grader == MATH else EXACT),
            "max_branches": (self.max_branches, max_branches),
            "budget": (None, budget),
            "file of the setting": (self.player_sha256, source_sha256(self.setting)),
        }
        differences = [f"{name}: {was} there, {now} here" for name, (was, now) in here.items() if was != now]
        if differences:
            raise InputError(
                f"the certificate of {self.setting} does not hold here ({'; '.join(differences)}); play it "
                "as it was certified, or certify it again"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Certification:
    """What `certify` found.

    Attributes:
        dataset: the calibration questions.
        tests: the settings in order of cost, the cheapest first.
        loss: a name of `LOSSES`.
        epsilon: ε.
        delta: δ.
        seeds: S, episodes that the loss on a question is the mean of.
        max_branches: W, the branches of the full budget.
        least_questions: questions that it takes where a setting loses nothing; None for more than a million.
        named: whether every setting can be named in a file, and is no object of this process.
    """

    dataset: ProbeDataset
    tests: tuple[Tested, ...]
    loss: str
    epsilon: float
    delta: float
    seeds: int
    max_branches: int
    least_questions: int | None
    named: bool

    @property
    def setting(self) -> str | None:
        """The cheapest certified setting; None where none is certified."""
        return next((test.setting for test in self.tests if test.certified), None)

    @property
    def claim(self) -> str:
        """What is certified, in words; or why nothing is."""
        count, bound = len(self.dataset), f"{100 * self.epsilon:g} %"
        if self.setting is None:
            safest = self.tests[-1]
            return (
                f"No setting can be certified at ε = {bound} and δ = {100 * self.delta:g} % on {count} "
                f"questions. A setting that loses nothing takes {_number(self.least_questions)}; "
                f"{safest.setting}, which loses {100 * safest.loss:.2g} %, "
                + (
                    f"takes about {_number(safest.questions)} like these."
                    if safest.loss < self.epsilon
                    else "will not be certified on any number like these."
                )
            )
        full = f"the majority of {self.max_branches} branches"
        what = (
            f"the answer of {self.setting} differs from {full} with a probability of at most {bound}"
            if self.loss == DISAGREEMENT
            else f"{self.setting} is at most {100 * self.epsilon:g} points less accurate than {full}"
        )
        model, interval = self.dataset.cells[0].model, _interval(self.dataset)
        probed = "" if interval is None else f", probed every {interval} tokens"
        return (
            f"On a question drawn as the {count} calibration questions were, and branches of {model} sampled "
            f"as theirs{probed}, {what}. At most {100 * self.delta:g} % of such calibrations certify a "
            "setting of which this is false."
        )

    def table(self) -> Table:
        """Shows each setting's loss, tokens, p-value and whether it is certified, and the claim.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
        return Table(self._parts)

    def summary(self) -> pa.Table:
        """Gives the tests.

        Returns:
            An Arrow table with the attributes of `Tested` as columns.
        """
        return rows_table(Tested, self.tests)

    def save(self, path: str | Path) -> Path:
        """Writes the certificate, for ``serve --setting`` and ``answer --setting``.

        Args:
            path: the file; an existing one is replaced.

        Returns:
            The file.

        Raises:
            InputError: no setting is certified, the setting is an object of this process that a file cannot
                name, or the file cannot be written.
        """
        if self.setting is None:
            raise InputError(f"there is no certificate to write. {self.claim}")
        if not self.named:
            raise InputError(
                f"{self.setting} is an object of this process, and a certificate names what it certifies; "
                "give certify its name, or its place as path/to/file.py:NAME"
            )
        certificate = Certificate(
            FORMAT,
            VERSION,
            self.claim,
            self.setting,
            model=self.dataset.cells[0].model,
            interval=_interval(self.dataset),
            encoding=self.dataset.encoding,
            max_branches=self.max_branches,
            loss=self.loss,
            epsilon=self.epsilon,
            delta=self.delta,
            questions=len(self.dataset),
            seeds=self.seeds,
            tests=list(self.tests),
            player_sha256=source_sha256(self.setting),
            made_with=provenance(self.dataset),
        )
        text = json.dumps(dataclasses.asdict(certificate), indent=1, ensure_ascii=False)
        files.write_atomically(path, f"{text}\n".encode())
        return Path(path)

    def __repr__(self) -> str:
        return f"Certification: {self.claim}"

    def _repr_html_(self) -> str:
        return self.table().html()

    def _parts(self, _: int) -> Iterator[RenderableType]:
        title = f"{self.loss}, ε = {self.epsilon:g}, δ = {self.delta:g}"
        table = numbers_table(title, ["loss, %", "ktokens", "p-value", "certified"])
        for test in self.tests:
            add_row(
                table,
                test.setting,
                f"{100 * test.loss:.2f}",
                thousands(test.tokens),
                f"{test.p_value:.2g}",
                "yes" if test.certified else "no",
            )
        yield table
        yield styled(self.claim)


def certify(
    calibration: ProbeDataset | str | Path | Sequence[str | Path],
    family: Any,
    *,
    epsilon: float,
    delta: float = 0.05,
    loss: str = DISAGREEMENT,
    seeds: int = 100,
    max_branches: int | None = None,
    sealing: Sealing = SEALED,
    on_progress: OnProgress | None = None,
) -> Certification:
    """Finds the cheapest setting whose loss against the full budget is at most ε, with confidence 1 - δ.

    The full budget is the majority of W branches. An episode loses 1 where its answer is not that of the full
    budget on the same branches; or, for accuracy, 1 where it is wrong and the full budget right, and -1 the
    other way round. Each question counts with the mean over seeds. Questions are taken as independent draws
    from a population, and what is bounded is the mean loss of an episode on a new one. The settings are
    tested in the order of the family, the last one first, until one fails; so the order, which is to be that
    of cost, must not have been chosen by these questions.

    Args:
        calibration: the questions, of one model and one Δ: a dataset, or whatever `autotts_jax.load` takes.
            They must not have served to build or to choose the settings.
        family: the settings, in order of cost: a family such as ``"asc"``, or a list of settings.
        epsilon: ε, the largest loss, between 0 and 1.
        delta: δ, the largest probability that a setting is certified whose loss is above ε.
        loss: ``"disagreement"``, which needs no reference answers, or ``"accuracy"``.
        seeds: S, episodes of each question. With one, a disagreement is tested by the exact binomial
            distribution; otherwise losses are tested by betting.
        max_branches: W, as in `autotts_jax.evaluate`.
        sealing: how code from files and modules is run, as in `autotts_jax.evaluate`.
        on_progress: as in `autotts_jax.evaluate`.

    Returns:
        The certification: ``setting``, ``claim``, ``table()``, ``summary()`` and ``save(file)``.

    Raises:
        InputError: the arguments do not fit together, the cheapest setting is not the first, the questions
            are of several models or Δ, one of them comes twice, or a setting failed.

    Example:
        >>> import autotts_jax as at
        >>> found = at.certify("smollm2", ["sc@4", "asc@16", "asc@64"], epsilon=0.3, seeds=10)
        >>> print(found.setting)
        asc@64
    """
    data = loaded(calibration)
    epsilon, delta = (_check_share(name, value) for name, value in (("epsilon", epsilon), ("delta", delta)))
    check_choice("loss", loss, LOSSES)
    max_branches = widest(data, max_branches)
    _check_population(data)
    several = isinstance(family, Sequence) and not isinstance(family, str | bytes)
    given = list(family) if several else [family]
    if not given:
        raise InputError("there are no settings; give a family, as 'asc', or a list of settings")
    kept = within([as_player(one, sealing=sealing) for one in given], max_branches)
    players = [player for player in kept if player is not None]
    full = ControllerPlayer("full budget", (SelfConsistency(max_branches),))
    result = evaluate(
        data,
        [full, *players],
        seeds=seeds,
        max_branches=max_branches,
        sealing=sealing,
        on_progress=on_progress,
    )
    if result.refused:
        raise InputError("; ".join(f"{name}: {problem}" for name, problem in result.refused.items()))
    reference, *plays = result.plays
    names = [name for one, player in zip(given, kept, strict=True) if player for name in _names(one, player)]
    losses = np.concatenate([_losses(play, reference, loss) for play in plays])
    tokens = np.concatenate([play.tokens.mean(axis=(1, 2)) for play in plays])
    if tokens[-1] < tokens[0]:
        raise InputError(
            f"settings come in order of cost, the cheapest first, but {names[-1]} takes fewer tokens than "
            f"{names[0]}; turn them round"
        )
    p_value = test_of(loss, result.seeds, epsilon, delta)
    tests = []
    for name, lost, spent, p, certified in zip(
        names, losses, tokens, *fixed_sequence(losses, p_value, delta), strict=True
    ):
        needed = losses_needed(p_value, lost, delta) if lost.mean() < epsilon else None
        tests.append(Tested(name, float(lost.mean()), float(spent), float(p), bool(certified), needed))
    return Certification(
        data,
        tuple(tests),
        loss,
        epsilon,
        delta,
        result.seeds,
        max_branches,
        losses_needed(p_value, np.zeros(1), delta),
        all(isinstance(one, str | Path) for one in given),
    )


PValue = Callable[[Float[np.ndarray, " Q"]], float]
"""Tests that the mean of losses is below ε."""


def test_of(loss: str, seeds: int, epsilon: float, delta: float) -> PValue:
    """Chooses the test of a loss.

    Args:
        loss: a name of `LOSSES`.
        seeds: S, episodes that the loss on a question is the mean of.
        epsilon: ε.
        delta: δ.

    Returns:
        The exact binomial test where losses are 0 or 1, and betting elsewhere.
    """
    if loss == DISAGREEMENT and seeds == 1:
        return functools.partial(binomial_p_value, bound=epsilon)
    least = 0.0 if loss == DISAGREEMENT else -1.0
    return functools.partial(betting_p_value, bound=epsilon, delta=delta, least=least)


def fixed_sequence(
    losses: Float[np.ndarray, "V Q"], p_value: PValue, delta: float
) -> tuple[Float[np.ndarray, " V"], Bool[np.ndarray, " V"]]:
    """Tests settings one after another, from the last one, until one fails.

    Args:
        losses: the loss of each setting on each question, in order of cost.
        p_value: the test.
        delta: δ.

    Returns:
        The p-value of each, and whether it and all after it are at most δ, so that it is certified. The
        probability that any setting is certified whose mean loss is above ε is at most δ.
    """
    p_values = np.array([p_value(lost) for lost in losses])
    return p_values, np.logical_and.accumulate((p_values <= delta)[::-1])[::-1]


def read_certificate(path: str | Path) -> Certificate:
    """Reads a certificate.

    Args:
        path: the file.

    Returns:
        Its content.

    Raises:
        DataError: it cannot be read, or is no certificate.
    """
    try:
        certificate = parse_as(Certificate, files.read_bytes(path))
    except SchemaError as error:
        raise DataError(path, f"it is no certificate: {error}; write one with autotts-jax certify") from error
    if (certificate.format, certificate.version) != (FORMAT, VERSION):
        raise DataError(path, f"it is not {FORMAT} version {VERSION}; write one with autotts-jax certify")
    return certificate


def _check_population(data: ProbeDataset) -> None:
    """Raises an `InputError` where the questions are not a sample of one population."""
    if len({cell.model for cell in data.cells}) > 1:
        raise InputError(
            f"a certificate is about one model, and the data has {', '.join(c.name for c in data.cells)}; "
            "give the files of one"
        )
    if _interval(data) is not None and len(set(np.asarray(data.matrix.interval).tolist())) > 1:
        raise InputError("a certificate is for one Δ, and the data has several; give the files of one")
    if len({question.text for question in data.questions}) < len(data):
        raise InputError("a question comes twice, but a certificate takes independent ones; keep one of them")


def _check_share(name: str, value: Any) -> float:
    if (share := check_float(name, value, above=0)) >= 1:
        raise InputError(f"{name} is {share:g}, but it must be below 1, as 0.05")
    return share


def _interval(data: ProbeDataset) -> int | None:
    return int(np.asarray(data.matrix.interval)[0]) if all(cell.probes for cell in data.cells) else None


def _names(given: Any, player: Player) -> tuple[str, ...]:
    """The names by which the settings of a player can be selected: of code in a file, with its place."""
    if not isinstance(given, str | Path):
        return player.names
    place, colon, last = str(given).rpartition(":")
    return tuple(name_of(place + colon + last.partition("@")[0], value) for value in player.values)


def _number(questions: int | None) -> str:
    return "more than a million questions" if questions is None else f"{questions:,} questions"


def _losses(play: Play, full: Play, loss: str) -> Float[np.ndarray, "V Q"]:
    """The loss of each setting on each question, the mean over seeds."""
    if loss == DISAGREEMENT:
        return np.asarray(play.answer != full.answer, float).mean(axis=1)
    return (full.correct.astype(float) - play.correct).mean(axis=1)
