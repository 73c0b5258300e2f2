"""Whether controllers rank on generated questions as on recorded cells that these were not fitted to.

Each recorded cell is compared, by Spearman's rank correlation of the controllers' mean objectives, with the
questions of all fitted models but its own ("others"), with those of its own ("own"), and with the other
recorded cells of its kind ("recorded"). "itself" is what the cell's questions determine of the ranking: the
correlation between random halves of them, stepped up to all by the formula of Spearman and Brown. On cells
without probes only the controllers play that read branches to their ends.

    python benchmarks/generator_ranks.py path/to/replay/*/*.json path/to/finals/*.jsonl
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import autotts_jax as at
from autotts_jax.replay import stack, synthetic
from autotts_jax.replay.generator import FITTED_MODELS

TO_THE_END = [
    *(f"sc@{branches}" for branches in (1, 4, 8, 16, 32, 64)),
    *(f"asc@{branches}" for branches in (8, 16, 64)),
    *(f"esc@{branches}" for branches in (16, 64)),
]
PROBING = ["parallel-probe", *(f"cmc@{beta}" for beta in (0.1, 0.3, 0.5, 0.7, 0.9))]
GAMMAS = (1e-4, 3e-4, 5e-4, 1e-3)
QUESTIONS, HALVES = 30, 200
AT_MOST = 100  # questions of a cell of final answers, evenly spaced
FIELDS = ("correct", "intervals")


def played(data, controllers, seeds):
    """Share of right answers and mean intervals of each setting on each question: (P, Q) both, by cell."""
    plays = at.evaluate(data, controllers, seeds=seeds, max_branches=64).plays
    columns = [np.concatenate([np.mean(getattr(play, name), 1) for play in plays]) for name in FIELDS]
    return [[column[:, data.cell_questions(cell)] for column in columns] for cell in range(len(data.cells))]


def some(data):
    """Evenly spaced questions of a cell, at most `AT_MOST`."""
    return data.select(np.arange(0, len(data), -(-len(data) // AT_MOST)))


def itself(worth):
    """How well the ranking is determined by the questions of a cell."""
    rng = np.random.default_rng(0)
    halves = []
    for _ in range(HALVES):
        one, other = np.array_split(rng.permutation(worth.shape[1]), 2)
        halves.append(spearmanr(worth[:, one].mean(1), worth[:, other].mean(1))[0])
    half = np.mean(halves)
    return 2 * half / (1 + half)


def table(names, recorded, made):
    """Prints the rank correlations of cells of one kind."""
    print("| γ | cell | others | own | recorded | itself |\n|---|---|---|---|---|---|")
    for gamma in GAMMAS:
        worths = [right - gamma * cost for right, cost in recorded]
        means = np.array([worth.mean(1) for worth in worths])
        made_means = {
            name: (right - gamma * cost).mean(1)[: means.shape[1]]
            for name, (right, cost) in zip(FITTED_MODELS, made, strict=True)
        }
        for index, (name, worth) in enumerate(zip(names, worths, strict=True)):
            others = np.mean([one for model, one in made_means.items() if model != name], axis=0)
            rest = np.delete(means, index, axis=0).mean(0)
            found = [spearmanr(means[index], one)[0] for one in (others, made_means[name], rest)]
            shown = " | ".join(f"{rank:.2f}" for rank in (*found, itself(worth)))
            print(f"| {gamma:g} | {name} | {shown} |", flush=True)


def main():
    made = synthetic(3, list(FITTED_MODELS.values()), QUESTIONS, 64)
    made = played(made, [*TO_THE_END, *PROBING], seeds=1)
    files = [Path(file) for file in sys.argv[1:]]
    if probed := [file for file in files if file.suffix == ".json"]:
        data = stack([at.load(file) for file in probed])
        names = [cell.name.replace("/", "-") for cell in data.cells]
        table(names, played(data, [*TO_THE_END, *PROBING], seeds=10), made)
    if finals := [file for file in files if file.suffix == ".jsonl"]:
        names = [file.stem.removeprefix("analysis_").replace("_", "-", 1) for file in finals]
        cells = [played(some(at.import_answers(file).dataset), TO_THE_END, seeds=4)[0] for file in finals]
        table(names, cells, made)


if __name__ == "__main__":
    main()
