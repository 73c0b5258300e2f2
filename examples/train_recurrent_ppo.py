"""PPO with a memory: that of ``train_purejaxrl_ppo.py``, with a gated recurrent unit.

Run it as ``python examples/train_recurrent_ppo.py``. Gradients flow back through the rounds of an update.
Weights are random at first.
"""

import functools

from common import run
from train_purejaxrl_ppo import train as train_either

train = functools.partial(train_either, recurrent=True)

if __name__ == "__main__":
    run(__doc__, recurrent=train)
