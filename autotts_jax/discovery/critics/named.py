"""Critics by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autotts_jax.discovery.critics.critic import Critic
from autotts_jax.discovery.critics.nearest import NEAREST, Nearest
from autotts_jax.discovery.critics.openai import OpenAICritic
from autotts_jax.discovery.proposers.openai import OPENAI, OpenAIProposer
from autotts_jax.discovery.proposers.protocol import Writer
from autotts_jax.errors import InputError


def as_critic(critic: str | Critic | None, proposers: Sequence[Any]) -> Critic | None:
    """Finds a critic.

    Raises:
        InputError: there is no such critic, or nobody writes the files that it judges.
    """
    if critic is None or isinstance(critic, Critic):
        return critic
    if not isinstance(critic, str):
        raise InputError(f"critic is {critic!r:.60}, but it must be a name, or have a name and judge")
    kind, colon, model = critic.partition(":")
    if kind == OPENAI and colon:
        if not any(isinstance(one, Writer) for one in proposers):
            raise InputError(f"{critic} judges files, but no proposer writes any; {NEAREST} judges programs")
        account = next((one for one in proposers if isinstance(one, OpenAIProposer)), None)
        return OpenAICritic(dataclasses.replace(account, model=model) if account else OpenAIProposer(model))
    if critic != NEAREST:
        raise InputError(f"unknown critic {critic!r}; known are {NEAREST}, {OPENAI}:MODEL")
    return Nearest()
