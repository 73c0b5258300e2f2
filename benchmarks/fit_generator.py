"""Fits a model of the synthetic data to each recorded cell, and writes the numbers that ship.

    python benchmarks/fit_generator.py path/to/replay/*/*.json path/to/finals/*.jsonl

Each parameter of a `SyntheticModel` follows from one statistic of the cell: ease from the counts of right
branches, by maximum likelihood; lure from how often two wrong branches agree; lengths from the odds of their
share of the longest, within and between questions; settling from the share of probes that equal the end of
their branch. Cells of final answers alone take what probes would tell from the mean of the others.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit, ndtri

import autotts_jax as at
from autotts_jax.replay import generator
from autotts_jax.replay.generator import SyntheticModel

FEWEST = 8  # branches that a statistic of a question is taken from
LONG = 10  # probes from which a branch has time to settle
SETTLES = (2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)
OF_PROBES = ("settle", "summary", "errors")
NORMALS = ndtri((np.arange(1000) + 0.5) / 1000)


def ease(right, branches):
    """Mean and standard deviation of the log-odds of a right branch."""

    def loss(parameters):
        odds = parameters[0] - np.exp(parameters[1]) * NORMALS
        of_one = (
            -np.logaddexp(0, -odds) * right[:, None] - np.logaddexp(0, odds) * (branches - right)[:, None]
        )
        return -np.logaddexp.reduce(of_one, axis=1).sum()

    found = [minimize(loss, (start, 1.0), method="Nelder-Mead") for start in (-2.0, 2.0)]
    mean, log_spread = min(found, key=lambda one: one.fun).x
    return mean, np.exp(log_spread)


def agreement(lure):
    """Chance that two wrong branches agree."""
    exponents = lure + generator.LURE_SPREAD * NORMALS[20::40, None]
    below = 1 - np.arange(1.0, generator.NUMBERS + 1) ** -exponents
    return np.mean(np.sum(np.diff(below / below[:, -1:], axis=1) ** 2, axis=1))


def settled(dataset, chosen):
    """Mean share of the probes that equal the end of their branch."""
    answers, lengths = np.asarray(dataset.matrix.answers), np.asarray(dataset.matrix.lengths)
    ends = np.take_along_axis(answers, lengths[..., None], axis=2)
    same = (answers == ends) & (np.arange(answers.shape[2]) < lengths[..., None])
    return np.mean((same.sum(axis=2) / np.maximum(lengths, 1))[chosen])


def long_and_right(dataset):
    matrix = dataset.matrix
    return (np.asarray(matrix.finals()) == np.asarray(matrix.gold)[:, None]) & (
        np.asarray(matrix.lengths) >= LONG
    )


def fitted(dataset, name):
    """A model of one cell."""
    matrix, branches = dataset.matrix, dataset.cells[0].num_branches
    answers, lengths = np.asarray(matrix.answers), np.asarray(matrix.lengths)
    ends = np.asarray(matrix.finals())
    right = ends == np.asarray(matrix.gold)[:, None]
    ability, spread = ease(right.sum(axis=1), branches)
    shares = np.minimum(lengths, generator.MAX_PROBES) / generator.LONGEST
    odds = [row[ok] if ok.sum() >= FEWEST else row for row, ok in zip(logit(shares), right, strict=True)]
    means, within = np.array([row.mean() for row in odds]), np.array([row.std() for row in odds])
    counts = [
        np.bincount(row[~ok & (row >= 0)])
        for row, ok in zip(ends, right, strict=True)
        if (~ok).sum() >= FEWEST
    ]
    agree = np.mean([(one * (one - 1)).sum() / (one.sum() * (one.sum() - 1)) for one in counts])
    between = means.var() - np.mean(within**2 / [len(row) for row in odds])
    model = SyntheticModel(
        name=name,
        ability=ability,
        spread=spread,
        length=generator.LONGEST * expit(means.mean()),
        length_spread=np.sqrt(max(between, 0.0)),
        wander=np.exp(np.mean(np.log(np.maximum(within, 0.05)))),
        settle=np.nan,
        summary=np.nan,
        errors=np.nan,
        lure=brentq(lambda lure: agreement(lure) - agree, -1.013, 6.013),
    )
    if not dataset.cells[0].probes:
        return model
    there = np.arange(answers.shape[2]) < lengths[..., None]
    guesses = there & (answers != ends[..., None])
    error = [
        question.vocabulary.index("ERR") if "ERR" in question.vocabulary else -2
        for question in dataset.questions
    ]
    chosen = long_and_right(dataset)
    made = [
        generator.synthetic(
            models=[dataclasses.replace(model, settle=one, summary=17, errors=0.05)],
            questions=60,
            branches=64,
        )
        for one in SETTLES
    ]
    of_made = [settled(one, long_and_right(one)) for one in made]
    beyond = np.asarray(matrix.tokens) - generator.INTERVAL * lengths + generator.OVERSHOOT
    return dataclasses.replace(
        model,
        settle=np.interp(settled(dataset, chosen), of_made, SETTLES),
        summary=np.median(beyond / lengths),
        errors=np.mean((answers == np.array(error)[:, None, None])[guesses]) / np.exp(0.5),
    )


def main():
    models = []
    for file in map(Path, sys.argv[1:]):
        finals = file.suffix == ".jsonl"
        dataset = at.import_answers(file).dataset if finals else at.load(file)
        cell = dataset.cells[0].name
        name = file.stem.removeprefix("analysis_").replace("_", "/", 1) if finals else cell
        models.append(fitted(dataset, name.replace("/", "-")))
        print(models[-1], file=sys.stderr, flush=True)
    means = {name: np.nanmean([getattr(one, name) for one in models]) for name in OF_PROBES}
    rows = []
    for model in models:
        values = dataclasses.asdict(model)
        for name, value in values.items():
            if name != "name":
                values[name] = round(float(means[name] if np.isnan(value) else value), 3)
        rows.append("  " + json.dumps(values))
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
