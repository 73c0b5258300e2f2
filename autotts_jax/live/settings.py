"""What a server serves, and within which limits."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, get_args

from autotts_jax.checks import check_choice, check_int, check_text
from autotts_jax.collect.answers import Extractor
from autotts_jax.collect.grader import Form
from autotts_jax.collect.graders import MATH
from autotts_jax.collect.trajectories import Sampling, check_differing
from autotts_jax.core.rollout import check_budget
from autotts_jax.errors import InputError
from autotts_jax.live.published import published

ReplyForm = Literal["branch", "answer"]
"""What a reply says: the text of a branch that gives the answer, or the answer alone."""

_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]+)?")


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """What is served, and within which limits.

    Attributes:
        name: what clients call the model.
        sampling: how branches are sampled and probed, where a request does not say otherwise.
        answers: finds the answer in a text, as `answers.extractor` takes it.
        grader: which answers are equal, as `autotts_jax.answer` takes it by name or as a function.
        controller: what answers where a client gives the model's name alone; when None ``cmc@0.5``, or
            self-consistency where the engine writes whole branches.
        reply: what a reply says, where a request does not say otherwise.
        max_branches: W.
        budget: tokens that a request may be charged; None for no limit.
        api_key: what clients must present; None to serve everybody.
        allowed_hosts: names by which clients may reach the server without a key, besides localhost and
            addresses. Otherwise a page in a browser could point a name of its own to the server.
        allowed_origins: origins whose pages may use the server in a browser, as
            ``https://chat.example``; ``*`` for all, which needs a key.
        max_requests: questions that are answered at once; more are refused.
        timeout: seconds that a request may take.
    """

    name: str
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    answers: str | Extractor = "auto"
    grader: str | Form = MATH
    controller: str | None = None
    reply: ReplyForm = "branch"
    max_branches: int = 64
    budget: int | None = None
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_requests: int = 32
    timeout: float = 600.0

    def __post_init__(self) -> None:
        for name in ("max_branches", "max_requests"):
            check_int(name, getattr(self, name), 1)
        if self.controller is not None:
            published(self.controller, self.max_branches)
        check_differing(self.sampling)
        check_choice("reply", self.reply, get_args(ReplyForm))
        if not self.timeout > 0:
            raise InputError(f"timeout is {self.timeout:g}; it must be above 0")
        if not check_text("the model's name", self.name):
            raise InputError("the model's name is empty; clients need one to ask for it")
        key = self.api_key
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise InputError("the API key is empty or holds characters that no key has; set another")
        for origin in self.allowed_origins:
            self._check_origin(origin)
        object.__setattr__(self, "budget", check_budget(self.budget))

    def _check_origin(self, origin: str) -> None:
        if origin == "*" and self.api_key is None:
            raise InputError(
                "without a key, '*' would let any web page that is open somewhere use the model; name origins"
            )
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise InputError(
                f"{origin!r:.80} is not an origin of web pages; give the scheme, the host and, if any, "
                "the port, as https://chat.example"
            )
