"""The training examples run, and print how their policy does beside code controllers."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TORCH, SB3 = ("torch",), ("torch", "stable_baselines3", "sb3_contrib")
SHORT = ["--steps", "1", "--orders", "2"]
FIGURE = r" +(-?\d+\.\d+)(?: ± \d+\.\d+)?"
ROW = re.compile(rf"^(\S.*?){FIGURE}{FIGURE}{FIGURE}{FIGURE}$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "needs", "options", "trained"),
    [
        ("train_purejaxrl_ppo.py", (), [], "PPO in one jit"),
        ("train_cleanrl_ppo.py", TORCH, ["--envs", "16"], "PPO in one file"),
        ("train_sb3_ppo.py", SB3, ["--envs", "16"], "PPO"),
        ("train_maskable_ppo.py", SB3, ["--envs", "16"], "MaskablePPO"),
    ],
)
def test_training_examples_run(script, needs, options, trained):
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install autotts-jax[examples]")
    command = [sys.executable, EXAMPLES / script, *SHORT, *options]
    pipes = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    rows = {name: [float(figure) for figure in figures] for name, *figures in ROW.findall(done.stdout)}
    assert list(rows) == ["sc@8", "cmc@0.2", "cmc@0.5", "untrained", trained], done.stdout
    accuracy, ktokens, objective, over = rows["sc@8"]
    assert 0 < accuracy < 100
    assert 0 < objective < accuracy / 100
    assert over == 0
    # Where policies start is nearly SC@8: they open all branches and read on.
    assert rows["untrained"][1] == pytest.approx(ktokens, rel=0.1)


def test_a_model_is_written_where_there_is_nothing(tmp_path):
    command = [sys.executable, EXAMPLES / "smollm2_model.py", tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path} exists; give another folder" in done.stderr
