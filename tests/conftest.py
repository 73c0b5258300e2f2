"""Fixtures that several test modules share."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _shared(name: str) -> Path:
    directory = SHARED / name
    if not directory.is_dir():
        pytest.skip(f"the released data is not here: no directory {directory}")
    return directory


@pytest.fixture(scope="session")
def replay_dir() -> Path:
    """``<model>/<benchmark>.json`` for each released cell."""
    return _shared("replay")


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """``episodes/<cell>.npz`` and ``sweeps/<model>/*.csv``, measured with the released evaluator."""
    return _shared("golden")
