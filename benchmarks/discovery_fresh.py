"""Judges what runs of discovery have come to on questions that no run has seen.

    python benchmarks/discovery_fresh.py RUN ... [--data PATH | --questions Q --seed S] [--seeds N]

Without data, it generates the synthetic benchmark anew with another seed. One line a run: whether it promoted
its result, the hypervolume of that, how much it exceeds CMC's, and the tokens that it needs for CMC's
accuracy at some β, as a share of CMC's. Intervals hold 95 % of a paired bootstrap over questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

SHOWN = (0.3, 0.5, 0.8, 1.0)


def main(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    data: Annotated[str | None, typer.Option(help="Questions in place of synthetic ones.")] = None,
    questions: Annotated[int, typer.Option(help="Synthetic questions of each cell.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic questions.")] = 7001,
    seeds: Annotated[int, typer.Option(help="Branch orders of each question.")] = 5,
) -> None:
    from autotts_jax.core import devices

    devices.configure()
    devices.pin_devices()
    import autotts_jax as at
    from autotts_jax.experiments.summary import ALL_MODELS
    from autotts_jax.replay import synthetic

    dataset = at.load(data) if data else synthetic(seed=seed, questions=questions)
    found = {str(number): at.read_run(folder) for number, folder in enumerate(runs)}
    families = [run.family(name) for name, run in found.items()]
    result = at.evaluate(dataset, ["cmc", *families], seeds=seeds)
    compared = [one for one in result.frontier().comparisons if one.model == ALL_MODELS]
    (area, *_) = (one.hypervolume for one in compared if one.controller == "cmc")
    print(
        f"{len(dataset)} questions, {len(dataset.cells)} cells, {seeds} orders; CMC's hypervolume {area:.4f}"
    )
    headings = " | ".join(f"β = {value:g}" for value in SHOWN)
    print(f"| run | promoted | hypervolume | less CMC's, points | {headings} |")
    print("|---" * (4 + len(SHOWN)) + "|")
    for name, run in found.items():
        lines = {one.value: one for one in compared if one.controller == name}
        one = lines[SHOWN[0]]
        gain, low, high = (
            100 * value
            for value in (one.hypervolume_gain, one.hypervolume_gain_low, one.hypervolume_gain_high)
        )
        ratios = (lines[value].cost_ratio for value in SHOWN)
        shown = " | ".join("not reached" if np.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios)
        promoted = "yes" if run.promoted else "no"
        more = f"{gain:+.2f} [{low:+.2f}, {high:+.2f}]"
        print(f"| {run.folder} | {promoted} | {one.hypervolume:.4f} | {more} | {shown} |")


if __name__ == "__main__":
    typer.run(main)
