"""Compiling the controllers of a server, while it answers."""

from __future__ import annotations

import contextlib
import logging
import threading

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.engine import Cancelled
from autotts_jax.collect.grader import Grader
from autotts_jax.collect.simulated import SimulatedEngine
from autotts_jax.collect.trajectories import Sampling, Trajectories
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.errors import InputError
from autotts_jax.live.answering import LiveExecutor, telling_signals
from autotts_jax.live.published import PUBLISHED, published
from autotts_jax.live.settings import ServerSettings
from autotts_jax.policies.player import Player

_LOG = logging.getLogger("uvicorn.error")


def play_simulated(
    player: Player,
    sampling: Sampling,
    grader: Grader,
    width: int,
    budget: int | None,
    cancel: threading.Event | None = None,
) -> None:
    """Has a player play an episode without a model, which compiles it.

    Args:
        player: the player, with a single setting.
        sampling: how branches are sampled and probed.
        grader: tells which answers are equal.
        width: W, branches that may be opened.
        budget: token budget; None for no limit.
        cancel: once this is set, the episode is given up.

    Raises:
        Cancelled: ``cancel`` was set.
    """
    engine = SimulatedEngine(mean_tokens=5 * sampling.interval)
    sampling = telling_signals(sampling, player)
    trajectories = Trajectories(engine, "Which digit?", sampling, extractor("auto"), cancel)
    executor = LiveExecutor(trajectories, sampling, grader, width, budget, signals=player.signals)
    player.play_episode(executor)


class Compiler:
    """Has each published controller play once without a model, which compiles it.

    A request waits for the compilation of its own controller only. Use it as a context manager, inside that
    of the grader: it compiles all controllers in a thread, and at its end gives up what is not compiled.
    """

    def __init__(self, settings: ServerSettings, grader: Grader):
        self._settings = settings
        self._grader = grader
        self._locks = {name: threading.Lock() for name in PUBLISHED}
        self._compiled: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._compile_all, name="compile")

    def __enter__(self) -> Compiler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """Gives up what is not compiled."""
        self._ended.set()

    def compile(self, player: Player) -> None:
        """Compiles a controller if that is not done yet, or waits until another thread has done so.

        Raises:
            Cancelled: the compiler was stopped.
        """
        with self._locks[player.name]:
            if player.name in self._compiled:
                return
            width = player.width or self._settings.max_branches
            play_simulated(player, self._settings.sampling, self._grader, width, MAX_TOKENS, self._ended)
            self._compiled.add(player.name)

    def _compile_all(self) -> None:
        try:
            for name in PUBLISHED:
                with contextlib.suppress(InputError):  # it opens more branches than the server allows
                    self.compile(published(name, self._settings.max_branches))
        except Cancelled:
            return
        _LOG.info("all controllers are compiled")
