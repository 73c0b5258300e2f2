"""What a language model is asked that writes whole files, and how the file is found in its reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from autotts_jax.discovery.judging.judge import PRICES, SEARCH_BETAS
from autotts_jax.discovery.judging.measuring import TRACE
from autotts_jax.discovery.population import Written

SHOWN = 3
"""Candidates that a prompt shows in full, and failures that it names."""

CONTRACT = Path(__file__).with_name("contract.md")
"""What a model is told of the candidates that it is to write."""

FAMILIES = """\
Each candidate is a family over one number β in [0, 1], from which all its constants follow. A larger β must
spend more tokens on average. The objective is the mean over β = {betas} of accuracy minus a price times
tokens; a branch of mean length costs {first} of accuracy at β = 0 and {last} at β = 1, log-linear in between.
So be frugal at β = 0 and thorough at β = 1."""
"""What it is told of β."""

CONSTANT = """\
Each candidate is one controller with constants that you choose freely; it is played at β = 0.5 alone, so it
can ignore β. The objective is the mean over {prices} prices of accuracy minus the price times tokens; a
branch of mean length costs {first} of accuracy at the highest price and {last} at the lowest."""
"""What it is told instead where candidates have no β."""

_OPENS = re.compile(
    r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w{}.+#-]*+)(?:[\s:,][^`]*+)?"
)
"""A line that opens a code block. It gives nothing back, for that takes hours on a line of many blanks."""

_PYTHON = ("python", "python3", "py")
"""What a block's first line may call its language."""


class Prompt(NamedTuple):
    """What a model is asked.

    Attributes:
        messages: the messages.
        parents: numbers of the candidates that they show.
    """

    messages: list[dict[str, str]]
    parents: tuple[int, ...]


def prompt(tried: Sequence[Written], place: int, max_branches: int, beta: bool = True) -> Prompt:
    """Writes a prompt: the contract, the best candidates so far with their feedback, and what failed.

    Args:
        tried: the files that were tried so far, in order.
        place: number of the prompt in its round; each shows the best candidates in another order.
        max_branches: branches that an episode can open.
        beta: whether candidates are families over β; else each is one controller.
    """
    ranked = sorted(
        (written for written in tried if written.metrics is not None),
        key=lambda written: (-written.score, written.number),
    )[:SHOWN]
    first = place % max(len(ranked), 1)
    shown = [*ranked[first:], *ranked[:first]]
    failed = [written for written in tried if written.metrics is None][-SHOWN:]
    contract = CONTRACT.read_text(encoding="utf-8").replace("{candidates}", FAMILIES if beta else CONSTANT)
    terms = {
        "width": f"{max_branches}",
        "first": f"{PRICES[0]:g}",
        "last": f"{PRICES[1]:g}",
        "betas": ", ".join(f"{beta:g}" for beta in SEARCH_BETAS),
        "prices": f"{len(SEARCH_BETAS)}",
    }
    for name, value in terms.items():
        contract = contract.replace(f"{{{name}}}", value)
    messages = [{"role": "system", "content": contract}]
    messages.append({"role": "user", "content": "\n\n".join(_request(shown, failed))})
    return Prompt(messages, tuple(written.number for written in shown))


def _request(shown: Sequence[Written], failed: Sequence[Written]) -> Iterable[str]:
    for written in shown:
        yield f"Candidate {written.number}:\n\n```python\n{written.source}\n```\n\n{written.feedback}"
    for written in failed:
        yield f"Candidate {written.number} failed:\n{written.feedback}"
    if shown:
        traced = "; the traces show where it loses" if TRACE in shown[0].feedback else ""
        yield (
            f"Write a better candidate. Start from candidate {shown[0].number}, or from an idea of your own"
            f"{traced}. Reply with the whole file."
        )
    else:
        yield "Write a first candidate that is better than the example. Reply with the whole file."


def code_of(reply: str) -> str | None:
    """Finds the file in a reply: its last block of Python or, without one, the last of no language.

    Args:
        reply: the text of the reply, in Markdown.
    """
    blocks = [block for block in _blocks(reply) if block.code.strip()]
    python = [block.code for block in blocks if block.language in _PYTHON]
    found = python or [block.code for block in blocks if not block.language]
    return found[-1] if found else None


class _Block(NamedTuple):
    language: str
    code: str


def _blocks(reply: str) -> Iterable[_Block]:
    """Gives a reply's code blocks, but for one that nothing closes, which may have been cut off."""
    opened, lines = None, list[str]()
    for line in reply.replace("\r\n", "\n").split("\n"):
        if opened is None:
            opened, lines = _OPENS.fullmatch(line), []
        elif _closes(line, opened["fence"]):
            language = opened["language"].strip("{.}").lower()
            yield _Block(language, "".join(f"{text}\n" for text in lines))
            opened = None
        else:
            indent = len(opened["indent"])
            lines.append(line[:indent].lstrip() + line[indent:])


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])
