"""What live pools show of signals, compared with a collection of the same seeds."""

import jax.numpy as jnp
import numpy as np

from autotts_jax.collect import MathGrader, Trajectories
from autotts_jax.collect.answers import extractor
from autotts_jax.core.stepping import Operation
from autotts_jax.live.answering import LiveExecutor


def assert_live_shows(engine, plan, data, whole):
    """Reads all branches live, at once or interval by interval, and compares each revealed value."""
    width, names = plan.num_branches, plan.sampling.signals
    assert set(data.matrix.signals) == set(names)
    for row, question in enumerate(plan.questions):
        trajectories = Trajectories(
            engine, question.text, plan.sampling, extractor(plan.answers, question.text)
        )
        shown = 0
        with MathGrader(1) as grader:
            live = LiveExecutor(trajectories, plan.sampling, grader, width, None, signals=names)
            live.carry_out(Operation("read" if whole else "open", jnp.int32(width)))
            while True:
                depth = np.asarray(live.pool.revealed_depth)
                assert (depth > 0).all()
                for name in names:
                    told = np.take_along_axis(data.matrix.signals[name][row], depth[:, None] - 1, axis=1)[
                        :, 0
                    ]
                    np.testing.assert_array_equal(np.asarray(live.pool.signal(name)), told, name)
                shown += 1
                if not (going := np.asarray(live.pool.live)).any():
                    break
                live.carry_out(Operation("advance", jnp.asarray(going, jnp.int32)))
        assert shown == 1 if whole else shown > 2
