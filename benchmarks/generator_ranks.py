"""Whether controllers rank on synthetic data as on recorded cells, by their mean objectives.

Each recorded cell is compared with each synthetic model by Spearman's rank correlation. "itself" is
what the cell's own questions determine of the ranking: the correlation between random halves of them, stepped
up to all by the formula of Spearman and Brown. More than that cannot be expected of other data.

    python benchmarks/generator_ranks.py 'path/to/replay/*/*.json'
"""

import sys

import numpy as np
from scipy.stats import spearmanr

import autotts_jax as at
from autotts_jax.replay import synthetic

CONTROLLERS = [
    *(f"sc@{branches}" for branches in (1, 4, 8, 16, 32, 64)),
    *(f"asc@{branches}" for branches in (8, 16, 64)),
    *(f"esc@{branches}" for branches in (16, 64)),
    "parallel-probe",
    *(f"cmc@{beta}" for beta in (0.1, 0.3, 0.5, 0.7, 0.9)),
]
GAMMAS = (1e-5, 3e-5, 1e-4, 3e-4)
QUESTIONS, HALVES = 150, 200
FIELDS = ("correct", "intervals")


def played(data, seeds):
    """Share of right answers and mean intervals of each controller on each question: (P, Q) both."""
    plays = at.evaluate(data, CONTROLLERS, seeds=seeds).plays
    columns = [np.concatenate([np.mean(getattr(play, name), 1) for play in plays]) for name in FIELDS]
    return columns, np.asarray(data.matrix.cell)


def itself(worth):
    """How well the ranking is determined by the questions of a cell."""
    rng = np.random.default_rng(0)
    halves = []
    for _ in range(HALVES):
        one, other = np.array_split(rng.permutation(worth.shape[1]), 2)
        halves.append(spearmanr(worth[:, one].mean(1), worth[:, other].mean(1))[0])
    half = np.mean(halves)
    return 2 * half / (1 + half)


def main():
    recorded = at.load(sys.argv[1:])
    (right, cost), cell = played(recorded, seeds=10)
    made = synthetic(seed=3, questions=QUESTIONS)
    (right_made, cost_made), cell_made = played(made, seeds=2)
    names = " | ".join(one.model for one in made.cells)
    print(f"| γ | cell | {names} | itself |\n|{'---|' * (len(made.cells) + 3)}")
    for gamma in GAMMAS:
        of_made = right_made - gamma * cost_made
        for index, one in enumerate(recorded.cells):
            worth = (right - gamma * cost)[:, cell == index]
            found = [
                spearmanr(worth.mean(1), of_made[:, cell_made == model].mean(1))[0]
                for model in range(len(made.cells))
            ]
            shown = " | ".join(f"{rank:.2f}" for rank in (*found, itself(worth)))
            print(f"| {gamma:g} | {one.name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
