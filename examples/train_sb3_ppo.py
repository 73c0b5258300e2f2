"""PPO of Stable-Baselines3. It knows no masks: inadmissible parts of an action are drawn, and do nothing.

Run it as ``python examples/train_sb3_ppo.py``; it needs ``pip install autotts-jax[examples]``.
Weights are random at first.
"""

import functools

from common import run, train_sb3
from stable_baselines3 import PPO

train = functools.partial(train_sb3, PPO)

if __name__ == "__main__":
    run(__doc__, sb3=train)
