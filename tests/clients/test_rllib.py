"""PPO of RLlib on the environments, by id alone."""

import math

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed; make test-clients has an environment with it")
ppo = pytest.importorskip("ray.rllib.algorithms.ppo", reason="RLlib is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("name", ["WidthDepthSmall-v0", "WidthDepthRoundsSmall-v0"])
def test_ppo_learns_from_flat_observations(name):
    config = (
        ppo.PPOConfig()
        .environment(f"autotts_jax:{name}")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1)
    )
    algorithm = config.build_algo()
    result = algorithm.train()
    algorithm.stop()
    assert result["num_env_steps_sampled_lifetime"] >= 128
    assert math.isfinite(result["env_runners"]["episode_return_mean"])
