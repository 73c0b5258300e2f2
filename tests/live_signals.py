"""What live pools show of signals, compared with a collection of the same seeds."""

import numpy as np

from autotts_jax.collect import MathGrader, Trajectories
from autotts_jax.collect.answers import extractor
from autotts_jax.core import Action
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
            first = "read" if whole else "open"
            live.carry_out(first, Action(**{first: width}))
            while True:
                view = live.view()
                depth = np.asarray(view.revealed_depth)
                assert (depth > 0).all()
                for name in names:
                    told = np.take_along_axis(data.matrix.signals[name][row], depth[:, None] - 1, axis=1)[
                        :, 0
                    ]
                    np.testing.assert_array_equal(np.asarray(view.signal(name)), told, name)
                shown += 1
                if not (going := np.asarray(view.live)).any():
                    break
                live.carry_out("advance", Action(advance=going.astype(np.int32)))
        assert shown == 1 if whole else shown > 2
