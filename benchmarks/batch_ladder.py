"""Scores allocators on the batches of the ladder: accuracy on `test` under a task's budget, and under two.

    python benchmarks/batch_ladder.py

Each column is a model and a budget in tokens. Beside the accuracy in % stands the share of the oracle's gain
over `uniform` that is reached, with the ends of the 95 % interval of the gain. `trained` has weights that are
learned on `train`.
"""

from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax.core import devices
from autotts_jax.envs.registry import BATCH_TOKENS, TASK_ENVIRONMENTS
from autotts_jax.experiments import ORACLE, BatchRow
from autotts_jax.policies import ALLOCATORS
from autotts_jax.replay import select_part
from autotts_jax.training import train_allocator


def main(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks; all with batches when none.")] = None,
    seeds: Annotated[int, typer.Option(help="Branch orders to play.")] = 20,
) -> None:
    devices.configure()
    for task in tasks or BATCH_TOKENS:
        settings = TASK_ENVIRONMENTS[f"WidthDepthBatch-{task.title()}-Test-v0"].settings
        whole = at.load(settings["data"])
        trained = train_allocator(select_part(whole, "train"))
        result = at.evaluate_batch(
            select_part(whole, "test"),
            [*ALLOCATORS, trained, ORACLE],
            budgets=[settings["budget"], 2 * settings["budget"]],
            seeds=seeds,
            max_branches=settings["max_branches"],
            at_once=settings["at_once"],
        )
        rows = {(row.name, row.model, row.budget): row for row in result.rows}
        columns = [of[1:] for of in rows if of[0] == ORACLE]
        heads = [f"{model}, {budget / 1e6:g} M" for model, budget in columns]
        print(f"\n{task}, trained: {trained}\n\n| allocator | {' | '.join(heads)} |\n|---|---|---|---|---|")
        for play in result.plays:
            shown = [show(rows[play.name, *of], rows[ORACLE, *of]) for of in columns]
            name = "trained" if play.name == type(trained).__name__ else play.name
            print(f"| {name} | {' | '.join(shown)} |")


def show(row: BatchRow, oracle: BatchRow) -> str:
    share, low, high = (gain / oracle.gain for gain in (row.gain, row.gain_low, row.gain_high))
    ends = f" [{low:.2f}, {high:.2f}]" if row.gain else ""
    return f"{100 * row.accuracy:.1f}; {share:.2f}{ends}"


if __name__ == "__main__":
    typer.run(main)
