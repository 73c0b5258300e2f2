"""Proposers by name."""

from __future__ import annotations

from autotts_jax.checks import check_text
from autotts_jax.discovery.proposers.claude import CLAUDE, ClaudeProposer
from autotts_jax.discovery.proposers.constants import CONSTANTS, Constants
from autotts_jax.discovery.proposers.evolution import Random, Rules
from autotts_jax.discovery.proposers.openai import OPENAI, OpenAIProposer
from autotts_jax.discovery.proposers.protocol import Proposer, Writer
from autotts_jax.errors import InputError

PROPOSERS: dict[str, Proposer] = {proposer.name: proposer for proposer in (Rules(), Random())}
"""Proposers that a bare name stands for."""


def as_proposer(proposer: str | Proposer | Writer) -> Proposer | Writer:
    """Finds a proposer.

    Raises:
        InputError: there is no such proposer.
    """
    if not isinstance(proposer, str):
        if isinstance(proposer, type) or not isinstance(proposer, Proposer | Writer):
            raise InputError(
                f"a proposer is {proposer!r:.60}, but it must be a name, or an object that has a name and "
                "propose or write"
            )
        name = check_text("the name of a proposer", proposer.name)
        if not (name and name.isprintable()) or PROPOSERS.get(name, proposer) != proposer:
            raise InputError(f"a proposer is called {name!r:.60}; give it a printable name that is not taken")
        return proposer
    kind, colon, rest = proposer.partition(":")
    if kind == OPENAI and colon:
        return OpenAIProposer(rest)
    if kind == CONSTANTS:
        return Constants.read(rest) if colon else Constants()
    if kind == CLAUDE:
        return ClaudeProposer(rest or None)
    if proposer not in PROPOSERS:
        known = ", ".join([*PROPOSERS, f"{CONSTANTS}[:FILE]", f"{OPENAI}:MODEL", f"{CLAUDE}[:MODEL]"])
        raise InputError(f"unknown proposer {proposer!r}; known are {known}")
    return PROPOSERS[proposer]
