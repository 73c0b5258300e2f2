"""MaskablePPO of sb3-contrib, which never draws an inadmissible part of an action.

Run it as ``python examples/train_maskable_ppo.py``; it needs ``pip install autotts-jax[examples]``.
Weights are random at first.
"""

import functools

from common import run, train_sb3
from sb3_contrib import MaskablePPO

train = functools.partial(train_sb3, MaskablePPO)

if __name__ == "__main__":
    run(__doc__, maskable=train)
