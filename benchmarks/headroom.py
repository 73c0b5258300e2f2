"""How much is left to win on a task of the benchmark: one branch, published controllers, an oracle.

The oracle knows each question's recorded branches, but not their order: it plays the plan that is best for
the question under 200 other orders, which is to open n branches, to read each up to depth d, and to take the
majority of their latest answers, or to answer nothing at no cost. Who knows as much and reacts to what is
revealed can do better.

    python benchmarks/headroom.py laptop easy medium hard
"""

import sys

import numpy as np

import autotts_jax as at
from autotts_jax.experiments import TASKS, Objective
from autotts_jax.intervals import equal_weights
from autotts_jax.replay import part_of
from autotts_jax.replay.orders import repo100_orders

SEEDS, OTHERS = 20, 200
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 10_000)


def plans(answers, lengths, gold, orders, width):
    """Whether each plan is right, and its intervals; shape (orders, branches, depths) each."""
    chosen, ends = answers[orders[:, :width]], lengths[orders[:, :width]]
    ids = np.arange(max(answers.max() + 1, 1))
    right = np.zeros((*ends.shape, len(DEPTHS)), bool)
    cost = np.zeros(right.shape, np.int64)
    for column, depth in enumerate(DEPTHS):
        # The answer at the end is one place behind the last probe.
        place = np.where(ends <= depth, ends, depth - 1)
        latest = np.take_along_axis(chosen, place[..., None], axis=2) == ids
        votes = np.cumsum(latest, axis=1)
        # Among answers with as many votes, the one that was opened first.
        first = np.minimum.accumulate(np.where(latest, np.arange(width)[:, None], width), axis=1)
        best = np.argmax(votes * (width + 1) - first, axis=2)
        right[..., column] = (best == gold) & (votes.max(axis=2) > 0)
        cost[..., column] = np.cumsum(np.minimum(ends, depth), axis=1)
    return right, cost


def oracle(dataset, width, gammas):
    """Mean objective of the best plan for each question, averaged over γ. Shape (Q,)."""
    matrix = dataset.matrix
    branches = np.array([cell.num_branches for cell in dataset.cells])[np.asarray(matrix.cell)]
    worth = np.zeros(len(dataset))
    for question in range(len(dataset)):
        # Chosen on other orders than it is scored on: the best of 208 plans on the same would gain by luck.
        orders = repo100_orders(int(branches[question]), range(SEEDS + OTHERS))
        right, cost = plans(
            np.asarray(matrix.answers)[question],
            np.asarray(matrix.lengths)[question],
            int(matrix.gold[question]),
            orders,
            width,
        )
        for gamma in gammas:
            objective = (right - gamma * cost).reshape(len(orders), -1)
            known = objective[SEEDS:].mean(axis=0)
            best = np.argmax(known)
            worth[question] += objective[:SEEDS, best].mean() / len(gammas) if known[best] > 0 else 0.0
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
