"""``benchmarks/plain_c.py``: scalar C plays the episodes of rollouts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "plain_c.py"


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is installed")
def test_plain_c_plays_the_same_episodes():
    command = [sys.executable, str(SCRIPT), "--seconds", "0.1", "--seeds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith("%")]
    assert [row[0] for row in rows] == ["sc@64", "asc@64", "esc@64", "parallel-probe@64", "cmc@0.5,cmc@1"]
