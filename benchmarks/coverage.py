"""Measures how often 95 % intervals over questions hold, and how wide they are, for twelve methods.

    python benchmarks/coverage.py --data path/to/replay/Qwen3-8B/aime24.json --data path/to/…

The options are given once a file; of each model, all benchmarks make one population.

A population is a set of gains (or accuracies), one a question. Samples of n questions are drawn from it with
replacement; an interval holds if it has the population's mean in it. Synthetic populations need no files.
Released ones are the gains of controllers over sc@64 on the questions of all benchmarks, for each model and
in the mean of the models, and those of sc@8 over sc@64 in sets of final answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.stats
import typer

import autotts_jax as at
from autotts_jax.core import devices
from autotts_jax.intervals import UNSEEN, random_weights, reach

SIZES = (5, 10, 30, 60, 200)
DRAWS = 1_000
CONTROLLERS = ("cmc@0.2", "cmc@0.5", "cmc@1", "parallel-probe@64", "sprt@64", "neural@5e-5", "short-m@8")
SHARE = (0.27, 0.4)
"""Shares of questions with a gain that count as a third."""

Interval = Callable[[np.ndarray, tuple[float, float]], tuple[np.ndarray, np.ndarray]]
"""Ends of intervals, of samples (samples, n) and the bounds of a value."""


def student(samples: np.ndarray, _: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The t interval."""
    number = samples.shape[1]
    half = scipy.stats.t.ppf(0.975, number - 1) * samples.std(axis=1, ddof=1) / np.sqrt(number)
    return samples.mean(axis=1) - half, samples.mean(axis=1) + half


def counts(number: int) -> np.ndarray:
    """The resamples of a bootstrap. Shape (R, n)."""
    return np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), DRAWS) / number


def percentile(samples: np.ndarray, _: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The percentile bootstrap."""
    low, high = np.quantile(counts(samples.shape[1]) @ samples.T, (0.025, 0.975), axis=0)
    return low, high


def bca(samples: np.ndarray, _: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The bias-corrected and accelerated bootstrap (Efron 1987)."""
    number = samples.shape[1]
    means = np.sort(counts(number) @ samples.T, axis=0)
    centred = samples - samples.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1)
    skew = (centred**3).sum(axis=1) / np.where(spread > 0, 6 * spread**1.5, 1)
    below = (means < samples.mean(axis=1)).mean(axis=0).clip(1 / DRAWS, 1 - 1 / DRAWS)
    shift = scipy.stats.norm.ppf(below)
    ends = []
    for z in scipy.stats.norm.ppf((0.025, 0.975)):
        level = scipy.stats.norm.cdf(shift + (shift + z) / (1 - skew * (shift + z)))
        place = (level * DRAWS).astype(int).clip(0, DRAWS - 1)
        ends.append(np.take_along_axis(means, place[None], axis=0)[0])
    return ends[0], ends[1]


def bootstrap_t(samples: np.ndarray, _: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The bootstrap of the t statistic."""
    number = samples.shape[1]
    weights = counts(number)
    means = weights @ samples.T
    errors = np.sqrt((weights @ (samples**2).T - means**2).clip(1e-12) / number)
    error = samples.std(axis=1) / np.sqrt(number)
    low, high = np.quantile((means - samples.mean(axis=1)) / errors, (0.025, 0.975), axis=0).clip(-20, 20)
    return samples.mean(axis=1) - high * error, samples.mean(axis=1) - low * error


def with_unseen(samples: np.ndarray, ends: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray]:
    """A Bayesian bootstrap with two unseen questions at the ends, shape (samples, 2), of some mass."""
    weights, values = random_weights(samples.shape[1], mass=mass), np.hstack([samples, ends])
    found, shares = np.empty((2, len(samples))), len(weights) // DRAWS
    for share in range(shares):  # what one share of the draws is off by, the others even out
        part = slice(share, None, shares)
        found[:, part] = np.quantile(weights[part] @ values[part].T, (0.025, 0.975), axis=0)
    return np.minimum(found[0], samples.mean(axis=1)), np.maximum(found[1], samples.mean(axis=1))


def at_bounds(mass: float) -> Interval:
    """Unseen questions of some mass at the bounds."""
    return lambda samples, bounds: with_unseen(samples, np.broadcast_to(bounds, (len(samples), 2)), mass)


def within_reach(mass: float) -> Interval:
    """As `Questions.gain`, or `Questions.mean` of accuracies, from a share of its draws."""

    def interval(samples: np.ndarray, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        far = np.array([[-reach(one), reach(one)] for one in samples])
        ends = far if bounds[0] < 0 else np.broadcast_to(bounds, far.shape)
        return with_unseen(samples, ends, mass)

    return interval


def unseen_t(samples: np.ndarray, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """T of the sample and one unseen question, halfway to either bound: the union."""
    ends = [student(np.hstack([samples, np.full((len(samples), 1), bound / 2)]), bounds) for bound in bounds]
    low, high = (np.array(of) for of in zip(*ends, strict=True))
    return low.min(axis=0), high.max(axis=0)


def bernstein(samples: np.ndarray, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Empirical Bernstein (Maurer and Pontil 2009)."""
    number, log = samples.shape[1], np.log(4 / 0.05)
    half = np.sqrt(2 * samples.var(axis=1, ddof=1) * log / number)
    half += 7 * (bounds[1] - bounds[0]) * log / (3 * (number - 1))
    return samples.mean(axis=1) - half, samples.mean(axis=1) + half


def betting(samples: np.ndarray, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Hedged capital (Waudby-Smith and Ramdas 2024), of the order in which questions were drawn."""
    width = bounds[1] - bounds[0]
    scaled = (samples - bounds[0]) / width
    number = samples.shape[1]
    seen = np.arange(1, number + 1)
    means = (0.5 + scaled.cumsum(axis=1)) / (seen + 1)
    variance = (0.25 + ((scaled - means) ** 2).cumsum(axis=1)) / (seen + 1)
    before = np.hstack([np.full((len(samples), 1), 0.25), variance[:, :-1]])
    bets = np.sqrt(2 * np.log(2 / 0.05) / (number * before))
    grid = np.linspace(0.005, 0.995, 100)
    inside = np.empty((len(samples), len(grid)), bool)
    for place, mean in enumerate(grid):
        up = np.log1p(np.minimum(bets, 0.5 / mean) * (scaled - mean)).sum(axis=1)
        down = np.log1p(-np.minimum(bets, 0.5 / (1 - mean)) * (scaled - mean)).sum(axis=1)
        inside[:, place] = np.maximum(up, down) < np.log(2 / 0.05)
    low, high = grid[inside.argmax(axis=1)], grid[len(grid) - 1 - inside[:, ::-1].argmax(axis=1)]
    return bounds[0] + width * (low - 0.01), bounds[0] + width * (high + 0.01)


METHODS: dict[str, Interval] = {
    "t": student,
    "percentile": percentile,
    "BCa": bca,
    "bootstrap-t": bootstrap_t,
    "¼ question at ±1": at_bounds(0.25),
    "½ question at ±1": at_bounds(0.5),
    "0.5 within reach": within_reach(0.5),
    "0.6 within reach": within_reach(0.6),
    f"this package: {UNSEEN:g} within reach": within_reach(UNSEEN),
    "t, one unseen at ±½": unseen_t,
    "empirical Bernstein": bernstein,
    "betting": betting,
}


def stretched(samples: np.ndarray, mean: float, share: float) -> tuple[np.ndarray, np.ndarray]:
    """T, by the one factor with which it holds that share of the time; chosen when the mean is known."""
    low, high = student(samples, (-1, 1))
    centre, half = samples.mean(axis=1), (high - low) / 2
    half *= np.quantile(np.abs(centre - mean) / half.clip(1e-9), share)
    return centre - half, centre + half


def least_width(number: int, share: float) -> float:
    """The least mean width, at any population, of intervals that hold that share of the time at every one.

    Let each question gain 1 instead with probability q. Then (1 - q)^n of the samples are those of the
    population itself, so an interval that misses at most m of the time has the new mean in it with a
    probability of at least 1 - m / (1 - q)^n there; likewise for losses. The mean width is the integral of
    this probability over the means, of q from 0 to where (1 - q)^n = m.
    """
    misses = 1 - share
    kept = misses ** (1 / number)
    return 2 * (1 - kept - misses * (kept ** (1 - number) - 1) / (number - 1))


def synthetic() -> dict[str, np.ndarray]:
    """Sparse, skewed and clustered gains, and accuracies."""
    rng = np.random.default_rng(1)
    number = 2_000
    sizes = {"1": np.ones(number), "0.1": np.full(number, 0.1), "Beta(1, 3)": rng.beta(1, 3, number)}
    sizes["Beta(½, ½)"] = rng.beta(0.5, 0.5, number)
    found = {}
    for share in (0.02, 0.05, 0.1, 0.2, 1 / 3, 0.6):
        for name, size in sizes.items():
            for gains in (1.0, 0.7):
                gain = (rng.random(number) < share) * size * np.where(rng.random(number) < gains, 1, -1)
                found[f"gain {name}, {share:.0%}, {gains:.0%} up"] = gain
    found["gain exponential"] = rng.exponential(0.1, number).clip(0, 1)
    found["gain log-normal"] = rng.lognormal(-3, 1.2, number).clip(0, 1)
    shared = (rng.random((number, 1)) < 0.25) * (rng.random((number, 4)) < 0.5)
    sign = np.where(rng.random((number, 4)) < 0.8, 1, -1)
    found["gain, mean of 4 models"] = (shared * rng.beta(1, 2, (number, 4)) * sign).mean(axis=1)
    found["accuracy 1 of 2"] = (rng.random(number) < 0.5).astype(float)
    found["accuracy 19 of 20"] = (rng.random(number) < 0.95).astype(float)
    found["accuracy Beta(0.2, 0.2)"] = rng.beta(0.2, 0.2, number)
    found["accuracy Beta(0.1, 1)"] = rng.beta(0.1, 1, number)
    return found


def released(files: list[Path]) -> dict[str, np.ndarray]:
    """Gains over sc@64, and its accuracy, of every model, and of the mean of the models by question."""
    data = at.load([*map(str, files)])
    result = at.evaluate(data, ["sc@64", *CONTROLLERS], seeds=30)
    models = np.array([cell.model for cell in data.cells])[np.asarray(data.matrix.cell)]
    _, text = np.unique([question.text for question in data.questions], return_inverse=True)
    first = result.plays[0].correct[0].mean(axis=0)
    found = {}
    for play in result.plays[1:]:
        gain = play.correct[0].mean(axis=0) - first
        groups = {model: gain[models == model] for model in dict.fromkeys(models)}
        groups["mean of models"] = np.bincount(text, gain) / np.bincount(text)
        found |= {f"gain {model} {play.player.names[0]}": of for model, of in groups.items() if of.any()}
    return found | {f"accuracy {model} sc@64": first[models == model] for model in dict.fromkeys(models)}


def final_answers(files: list[Path]) -> dict[str, np.ndarray]:
    """Gains of sc@8 over sc@64, and the accuracy of that, of each set of final answers."""
    found = {}
    for file in files:
        data = at.import_answers(file).dataset
        result = at.evaluate(data, ["sc@64", "sc@8"], seeds=30)
        first, second = (play.correct[0].mean(axis=0) for play in result.plays)
        name = file.stem.removeprefix("analysis_")
        found |= {f"gain {name} sc@8": second - first, f"accuracy {name}": first}
    return {name: of for name, of in found.items() if of.any()}


def main(
    data: Annotated[list[Path] | None, typer.Option(help="Released cells, an option each.")] = None,
    finals: Annotated[list[Path] | None, typer.Option(help="Sets of final answers, likewise.")] = None,
    samples: Annotated[int, typer.Option(help="Samples of each population and size.")] = 1_000,
) -> None:
    devices.configure()
    populations = synthetic() | (released(data) if data else {}) | (final_answers(finals) if finals else {})
    rng = np.random.default_rng(2)
    print(f"{len(populations)} populations, {samples:,} samples of each")
    print("coverage in percent: of the worst population, and the mean; width, where a third of the questions")
    print("has a gain: over that of t, the mean and the largest; and in points, the mean")
    for number in SIZES:
        share = 0.93 if number >= 30 else 0.9
        hindsight, floor = f"t, stretched to {share:.0%} in hindsight", f"least of any that holds {share:.0%}"
        covered, widths = (defaultdict[str, dict[str, float]](dict) for _ in range(2))
        for name, population in populations.items():
            drawn = rng.choice(population, (samples, number))
            bounds = (0.0, 1.0) if name.startswith("accuracy") else (-1.0, 1.0)
            mean = population.mean()
            third = bounds[0] < 0 and SHARE[0] < (population != 0).mean() < SHARE[1]
            for method, interval in METHODS.items():
                low, high = interval(drawn, bounds)
                covered[method][name] = 100 * ((low <= mean + 1e-9) & (mean - 1e-9 <= high)).mean()
                width = 100 * (high.clip(*bounds) - low.clip(*bounds)).mean()
                if third:
                    widths[method][name] = width
            if third:
                low, high = stretched(drawn, mean, share)
                widths[hindsight][name] = 100 * (high.clip(*bounds) - low.clip(*bounds)).mean()
                widths[floor][name] = 100 * least_width(number, share)
        print(f"\n| n = {number} | worst | mean | rows below 93 | width / t: mean | largest | points |")
        print("|---|---|---|---|---|---|---|")
        for method, of in widths.items():
            ratios = [width / widths["t"][name] for name, width in of.items()]
            held = covered[method]
            worst = min(held, key=lambda name: held[name], default="")
            shown = (
                f"{held[worst]:.0f} ({worst}) | {np.mean(list(held.values())):.1f} | "
                f"{sum(value < 93 for value in held.values())} of {len(held)}"
                if held
                else " | |"
            )
            print(
                f"| {method} | {shown} | "
                f"{np.mean(ratios):.2f} | {max(ratios):.2f} | {np.mean(list(of.values())):.1f} |"
            )


if __name__ == "__main__":
    typer.run(main)
