"""How models mark the thinking that their replies begin with."""

from __future__ import annotations

import dataclasses
import itertools
import re

_MARKS = re.compile(r"<[^<>]*>|[^<]+")


@dataclasses.dataclass(frozen=True)
class Thinking:
    """The marks of a thinking part.

    Attributes:
        end: the text that ends it.
        close: the text that is put after a reply to end it; it has ``end`` in it.
        start: the text that it begins with, unless the prompt ends with that.
    """

    end: str
    close: str
    start: str = ""

    def split(self, text: str) -> tuple[str, str]:
        """Splits a reply into its thinking and what it says afterwards.

        Args:
            text: the reply, which may have been cut anywhere.

        Returns:
            Both, without the marks; all of the text is said if its thinking has no end.
        """
        thought, mark, said = text.rpartition(self.end)
        if not mark:
            return "", text
        before_end = self.close.partition(self.end)[0].strip()
        return thought.strip().removeprefix(self.start).removesuffix(before_end).strip(), said.lstrip()

    def closing(self, written: str) -> str:
        """Finds what ends the thinking of a reply that was cut.

        Args:
            written: the end of the reply.

        Returns:
            `close`, without the marks of it that the reply ends with.
        """
        marks = list(itertools.accumulate(_MARKS.findall(self.close)))
        begun = [text for text in marks if "<" in text and written.endswith(text)]
        return self.close.removeprefix(max(begun, key=len, default=""))


def tags(end: str) -> Thinking:
    """Describes thinking that a tag ends.

    Args:
        end: the tag.

    Returns:
        The marks.
    """
    return Thinking(end, f"\n{end}\n\n", end.replace("/", "", 1))


TAGS = tags("</think>")
"""Qwen3, DeepSeek and most others."""

CHANNELS = Thinking(
    end="<|channel|>final<|message|>",
    close="<|end|><|start|>assistant<|channel|>final<|message|>",
    start="<|channel|>analysis<|message|>",
)
"""gpt-oss."""


def find_thinking(template: str) -> Thinking | None:
    """Finds how a model thinks by its chat template.

    Args:
        template: the chat template.

    Returns:
        The marks; None if the template has none.
    """
    if "<|channel|>analysis" in template:
        return CHANNELS
    return TAGS if TAGS.end in template else None
