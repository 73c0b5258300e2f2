"""How long branches are, and how often they are probed: what policies are trained on, and play."""

from __future__ import annotations

import dataclasses

import numpy as np

from autotts_jax.replay.matrix import ProbeMatrix


@dataclasses.dataclass(frozen=True)
class Scale:
    """How long the branches of some questions are, and how often they are probed.

    Attributes:
        least_interval: the smallest Δ, tokens between two probes.
        most_interval: the largest Δ.
        depth: K, the largest depth that a branch can have.
    """

    least_interval: int
    most_interval: int
    depth: int

    @classmethod
    def of(cls, matrix: ProbeMatrix) -> Scale:
        """Measures the questions of a probe matrix.

        Args:
            matrix: the matrix.
        """
        interval = np.asarray(matrix.interval)
        return cls(int(interval.min()), int(interval.max()), int(np.max(matrix.lengths)) + 1)

    def beyond(self, known: Scale) -> str | None:
        """Tells where questions are far from known ones.

        Args:
            known: the scale of the known ones.

        Returns:
            What is far, in words: a Δ of less than half or more than twice theirs, or a larger depth; None if
            nothing is.
        """
        far = []
        if 2 * self.least_interval < known.least_interval or self.most_interval > 2 * known.most_interval:
            far.append(f"{known._between} tokens between two probes, and here there are {self._between}")
        if self.depth > known.depth:
            far.append(f"branches of up to {known.depth} intervals, and here they have up to {self.depth}")
        return "; and on ".join(far) or None

    @property
    def _between(self) -> str:
        least, most = self.least_interval, self.most_interval
        return f"{least}" if least == most else f"{least} to {most}"
