"""Offline learners, on what Minari has recorded of the benchmark's tasks: BC and CQL of d3rlpy."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of d3rlpy and Minari


@pytest.mark.parametrize("task", ["easy", "medium", "hard"])
def test_d3rlpy_learns_from_a_recording_and_plays_what_it_recovers(tmp_path, task):
    d3rlpy = pytest.importorskip(
        "d3rlpy", reason="d3rlpy is not installed; make test-clients has an environment with it"
    )
    minari = pytest.importorskip("minari")
    pytest.importorskip("torch").set_num_threads(1)  # The networks are too small to share among threads.
    options = ["--task", task, "--players", "cmc@0", "--episodes", "16"]
    subprocess.run(
        [sys.executable, EXAMPLES / "record_minari.py", *options],
        env=os.environ | {"MINARI_DATASETS_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        timeout=600,
    )
    recorded = minari.MinariDataset(tmp_path / f"autotts-jax/{task}-cmc-v0" / "data")
    episodes = list(recorded.iterate_episodes())
    names = {"actions": "actions", "rewards": "rewards", "terminals": "terminations"}
    columns = {name: np.concatenate([getattr(one, of) for one in episodes]) for name, of in names.items()}
    observations = np.concatenate([one.observations[:-1] for one in episodes])
    env = recorded.recover_environment()
    dataset = d3rlpy.dataset.MDPDataset(observations, **columns, action_size=env.action_space.n)
    for config in (d3rlpy.algos.DiscreteBCConfig, d3rlpy.algos.DiscreteCQLConfig):
        d3rlpy.seed(0)
        learner = config(batch_size=64).create(device=False)
        learner.fit(
            dataset,
            n_steps=300,
            n_steps_per_epoch=300,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        # Drawn at random, one action in fifty is the one that was recorded.
        assert np.mean(learner.predict(observations) == columns["actions"]) > 0.1
        observation, _ = env.reset(seed=0)
        for _ in range(20):
            (action,) = learner.predict(observation[None])
            observation, reward, terminated, truncated, _ = env.step(action)
            assert np.isfinite(reward)
            if terminated or truncated:
                break
