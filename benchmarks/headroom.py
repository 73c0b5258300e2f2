"""How much is left to win on a task of the benchmark: one branch, published controllers, an oracle.

The oracle knows each question's recorded branches, but not their order: it plays the best plan for the
question, which is to open n branches, to read each up to depth d, and to take the majority of their latest
answers, or to answer nothing at no cost. Who knows as much and reacts to what is revealed can do better.

    python benchmarks/headroom.py laptop easy medium hard
"""

import sys

import numpy as np

import autotts_jax as at
from autotts_jax.experiments import TASKS, Objective
from autotts_jax.intervals import equal_weights
from autotts_jax.replay import part_of
from autotts_jax.replay.orders import repo100_orders

SEEDS = 20
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 10_000)


def plans(answers, lengths, gold, orders, width):
    """Whether each plan is right, and its intervals; shape (orders, branches, depths) each."""
    right = np.zeros((len(orders), width, len(DEPTHS)), bool)
    cost = np.zeros(right.shape, np.int64)
    for row, order in enumerate(orders):
        chosen, ends = answers[order[:width]], lengths[order[:width]]
        for column, depth in enumerate(DEPTHS):
            # The answer at the end is one place behind the last probe.
            place = np.where(ends <= depth, ends, depth - 1)
            latest = chosen[np.arange(width), place]
            votes = np.cumsum(latest[:, None] == np.arange(answers.max() + 1), axis=0)
            # Among answers with as many votes, the one that was opened first.
            first = np.where((latest[:, None] == np.arange(votes.shape[1])), np.arange(width)[:, None], width)
            first = np.minimum.accumulate(first, axis=0)
            right[row, :, column] = np.argmax(votes * (width + 1) - first, axis=1) == gold
            cost[row, :, column] = np.cumsum(np.minimum(ends, depth))
    return right, cost


def oracle(dataset, width, gammas):
    """Mean objective of the best plan for each question, averaged over γ. Shape (Q,)."""
    matrix = dataset.matrix
    branches = np.array([cell.num_branches for cell in dataset.cells])[np.asarray(matrix.cell)]
    worth = np.zeros(len(dataset))
    for question in range(len(dataset)):
        orders = repo100_orders(int(branches[question]), range(SEEDS))
        right, cost = plans(
            np.asarray(matrix.answers)[question],
            np.asarray(matrix.lengths)[question],
            int(matrix.gold[question]),
            orders,
            width,
        )
        best = [max(0.0, (right.mean(0) - gamma * cost.mean(0)).max()) for gamma in gammas]
        worth[question] = np.mean(best)
    return worth


def tuned(result, family):
    """Mean objective of a family on the scored questions, its setting chosen for each γ on the others."""
    (play,) = (one for one in result.evaluation.plays if one.player.name == f"reference {family}")
    dataset = result.evaluation.dataset
    scored, cell = part_of(dataset) == result.part, np.asarray(dataset.matrix.cell)
    found = []
    for gamma in result.task.gammas:
        worth = Objective(gamma).of(play, dataset).mean(axis=1)  # (settings, questions)
        best = np.argmax(worth[:, ~scored] @ equal_weights(cell[~scored]))
        found.append(worth[best, scored] @ equal_weights(cell[scored]))
    return float(np.mean(found))


def main():
    print("| task | sc@1 | SC | CMC | published | oracle | gap of CMC |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or [name for name, task in TASKS.items() if task.data]:
        task = TASKS[name]
        whole = task.load()
        # Many questions need few orders.
        result = at.bench(task, seeds=5 if len(whole) > 1000 else SEEDS)
        low, best = (score.objective for score in result.scores[:2])
        sc, cmc = tuned(result, "sc"), tuned(result, "cmc")
        dataset = whole.select(np.flatnonzero(part_of(whole) == result.part))
        weight = equal_weights(np.asarray(dataset.matrix.cell))
        top = float(oracle(dataset, task.max_branches, task.gammas) @ weight)
        shown = " | ".join(f"{one:.3f}" for one in (low, sc, cmc, best, top, top - cmc))
        print(f"| `{name}` | {shown} |", flush=True)


if __name__ == "__main__":
    main()
