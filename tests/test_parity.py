"""The compiled path against the released evaluator, episode by episode."""

import csv
import hashlib
from pathlib import Path

import jax
import numpy as np
import pytest

import autotts_jax as at
from autotts_jax import discovery, replay
from autotts_jax.policies import CONTROLLERS

pytestmark = pytest.mark.shipped

# Accuracy in percent and thousands of tokens of SC@64, as the paper prints them.
PAPER_SC = {
    "Qwen3-0.6B/aime24": (21.4, 1008.6),
    "Qwen3-1.7B/aime24": (72.5, 1025.8),
    "Qwen3-4B/aime24": (80.0, 886.8),
    "Qwen3-8B/aime24": (80.4, 910.8),
    "Qwen3-0.6B/aime25": (28.9, 890.5),
    "Qwen3-1.7B/aime25": (44.4, 1054.1),
    "Qwen3-4B/aime25": (76.6, 1088.1),
    "Qwen3-8B/aime25": (76.7, 1124.4),
}
SWEPT = {
    "ASCMethod": "asc",
    "ESCMethod": "esc",
    "Parallel_Probe": "parallel-probe",
    "OptimalController": "cmc",
}


GOLDEN = {
    "asc64": ("asc", 64),
    "esc64": ("esc", 64),
    "parallel_probe64": ("parallel-probe", 64),
    "cmc_beta0.5": ("cmc", 0.5),
    "cmc_beta1.0": ("cmc", 1.0),
}
"""The methods in the golden files, as families of controllers and their values."""

EMBEDDED_GOLDEN = Path(__file__).parent / "golden"
EMBEDDED_SEEDS = 20
EMBEDDED_DIGESTS = {
    "synthetic": "b4dbdd86773c54186fedca4ee820b907fa74b95ade313b07ad97f5dec0dca1ef",
    "smollm2": "6792f391350af5ce98866d79bee67ac2db6df006ba3ba2cf1e1c3edc251f279d",
}
"""SHA-256 of the probe matrices that the released evaluator played."""


def embedded(name):
    """The embedded data as the released evaluator played it: `smollm2` was graded anew since then."""
    return replay.read_files(EMBEDDED_GOLDEN / "smollm2.npz") if name == "smollm2" else at.load(name)


def digest(matrix):
    """SHA-256 of the dtypes, shapes and bytes of a probe matrix."""
    found = hashlib.sha256()
    for name in ("answers", "lengths", "tokens", "gold", "interval", "cell"):
        array = np.asarray(getattr(matrix, name))
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", EMBEDDED_DIGESTS)
def test_every_embedded_episode_equals_the_released_evaluator(name):
    data = embedded(name)
    assert digest(data.matrix) == EMBEDDED_DIGESTS[name], "see tests/golden/README.md"
    players = [f"{family}@{value:g}" for family, value in GOLDEN.values()]
    plays = at.evaluate(data, players, seeds=EMBEDDED_SEEDS).plays
    for golden, play in zip(GOLDEN, plays, strict=True):
        for what in ("correct", "tokens"):
            for cell, ours in by_cell(data, getattr(play, what)[0]).items():
                theirs = np.load(EMBEDDED_GOLDEN / f"{cell.replace('/', '_')}.npz")[f"{golden}/{what}"]
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{cell} {golden} {what}")


@pytest.fixture(scope="module")
def plays(released):
    """Plays whole families over all released cells and seeds; keyed by family."""
    families = ["asc", "esc", "parallel-probe", "cmc"]
    return dict(zip(families, at.evaluate(released, families).plays, strict=True))


def by_cell(data, per_episode):
    """Splits (…, S, Q) into cells, each (…, S, questions of the cell)."""
    return {cell.name: per_episode[..., data.cell_questions(index)] for index, cell in enumerate(data.cells)}


@pytest.mark.slow
@pytest.mark.parametrize("golden", GOLDEN)
def test_every_episode_equals_the_released_evaluator(plays, released, golden_dir, golden):
    family, value = GOLDEN[golden]
    member = CONTROLLERS[family].values.index(value)
    for name in ("correct", "tokens"):
        for cell, ours in by_cell(released, getattr(plays[family], name)[member]).items():
            theirs = np.load(golden_dir / "episodes" / f"{cell.replace('/', '_')}.npz")[f"{golden}/{name}"]
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{cell} {golden} {name}")


@pytest.mark.slow
def test_the_program_of_cmc_equals_the_released_evaluator(released, golden_dir):
    """CMC as a program of the space that discovery searches."""
    ours = [(embedded(name), EMBEDDED_GOLDEN, EMBEDDED_SEEDS) for name in EMBEDDED_DIGESTS]
    for data, folder, seeds in [*ours, (released, golden_dir / "episodes", 100)]:
        (play,) = at.evaluate(data, discovery.family("program", discovery.cmc()), seeds=seeds).plays
        for golden in ("cmc_beta0.5", "cmc_beta1.0"):
            member = play.player.values.index(GOLDEN[golden][1])
            for name in ("correct", "tokens"):
                for cell, ours in by_cell(data, getattr(play, name)[member]).items():
                    theirs = np.load(folder / f"{cell.replace('/', '_')}.npz")[f"{golden}/{name}"]
                    np.testing.assert_array_equal(ours, theirs, err_msg=f"{cell} {golden} {name}")


@pytest.mark.slow
def test_released_sweeps_agree_to_their_digits(plays, released, golden_dir):
    checked = 0
    for file in sorted((golden_dir / "sweeps").glob("*/*.csv")):
        for row in csv.DictReader(file.read_text().splitlines()):
            config = eval(row["config"])  # a dict of numbers, as the release printed it
            value = next(config[key] for key in ("beta", "max_samples", "num_chains") if key in config)
            family = SWEPT[row["Method"]]
            play, member = plays[family], CONTROLLERS[family].values.index(value)
            cell = f"{file.parent.name}/{file.stem.split('_')[0]}"
            accuracy = by_cell(released, play.correct[member])[cell].mean()
            tokens = by_cell(released, play.tokens[member])[cell].mean()
            where = f"{cell} {row['Method']} {value}"
            assert f"{100 * accuracy:.2f}" == f"{float(row['Acc']):.2f}", where
            assert int(tokens) == int(row["Cost"]), where
            checked += 1
    assert checked == 4 * (11 + 15)


def test_self_consistency_equals_the_paper(released):
    (play,) = at.evaluate(released, "sc@64").plays
    correct, tokens = by_cell(released, play.correct[0]), by_cell(released, play.tokens[0])
    for cell, (accuracy, ktokens) in PAPER_SC.items():
        assert round(100 * correct[cell].mean(), 1) == accuracy, cell
        assert round(tokens[cell].mean() / 1000, 1) == ktokens, cell


@pytest.mark.slow
def test_double_precision_changes_nothing(replay_dir, golden_dir):
    data = at.load(replay_dir / "Qwen3-0.6B" / "aime24.json")
    golden = np.load(golden_dir / "episodes" / "Qwen3-0.6B_aime24.npz")
    with jax.enable_x64(True):
        (play,) = at.evaluate(data, "cmc@0.5").plays
    np.testing.assert_array_equal(play.correct[0], golden["cmc_beta0.5/correct"])
    np.testing.assert_array_equal(play.tokens[0], golden["cmc_beta0.5/tokens"])
