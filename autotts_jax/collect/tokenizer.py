"""A model's own tokenizer."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotts_jax.collect.engine import ChatMessage, Tokens
from autotts_jax.collect.thinking import CHANNELS, find_thinking, tags
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.terminal import quoted

TODAY = datetime.datetime(2026, 1, 1)
"""The day that chat templates are told: prompts, and so collections, are the same tomorrow."""
_TODAY = re.compile(r"""strftime_now\((['"])(.*?)\1\)""")

_OURS = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
"""Arguments of chat templates that are not the user's."""


def load_tokenizer(model: str, or_else: str = "") -> Any:
    """Loads a tokenizer of the transformers library.

    Args:
        model: a model's folder or Hugging Face id.
        or_else: what else to do where there is none, for the message.

    Returns:
        A ``PreTrainedTokenizerBase``.

    Raises:
        InputError: there is none, or transformers is not installed.
    """
    with needs("collecting", "a model's tokenizer"):
        from transformers import AutoTokenizer
    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no tokenizer at {model}: {quoted(error)}; name a model's folder or Hugging Face id{or_else}"
        ) from error


class HubTokenizer:
    """A tokenizer of the transformers library.

    Args:
        tokenizer: a ``PreTrainedTokenizerBase``.
        chat_kwargs: arguments of its chat template, e.g. ``{"enable_thinking": False}``.
        think_end: the text that ends the thinking part of replies, empty if they have none; by default the
            chat template tells.

    Raises:
        InputError: the tokenizer has no chat template, or the template does not use an argument.
    """

    def __init__(
        self, tokenizer: Any, chat_kwargs: Mapping[str, Any] | None = None, think_end: str | None = None
    ):
        self._tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise InputError(
                f"{tokenizer.name_or_path}: its tokenizer has no chat template; use an instruct model"
            )
        template = str(tokenizer.chat_template)
        self._template = _TODAY.sub(lambda call: repr(TODAY.strftime(call[2])), template)
        self._chat_kwargs = _checked(chat_kwargs or {}, template)
        if think_end is None:
            self.thinking = find_thinking(template)
        elif think_end == CHANNELS.end:
            self.thinking = CHANNELS
        else:
            self.thinking = tags(think_end) if think_end else None
        marks = self.encode(self.thinking.start + self.thinking.close) if self.thinking else ()
        added = tokenizer.added_tokens_decoder
        special = {*tokenizer.all_special_ids, *(token for token in added if added[token].special)}
        self._left_out = special.difference(marks)

    @classmethod
    def from_pretrained(
        cls, model: str, chat_kwargs: Mapping[str, Any] | None = None, think_end: str | None = None
    ) -> HubTokenizer:
        """Opens the tokenizer of a model.

        Args:
            model: the model's folder or Hugging Face id.
            chat_kwargs: arguments of its chat template.
            think_end: the text that ends the thinking part of replies; by default the chat template tells.

        Returns:
            The tokenizer.

        Raises:
            InputError: there is none, it has no chat template, the template does not use an argument, or
                transformers is not installed.
        """
        return cls(load_tokenizer(model, ", or give --tokenizer"), chat_kwargs, think_end)

    @property
    def end(self) -> int | None:
        return self._tokenizer.eos_token_id

    @property
    def vocab_size(self) -> int:
        return len(self._tokenizer)

    def chat(self, messages: Sequence[ChatMessage]) -> Tokens:
        with needs("collecting", "a model's chat template"):
            from jinja2 import TemplateError
        shown = [dataclasses.asdict(message) for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                shown,
                add_generation_prompt=True,
                tokenize=False,
                chat_template=self._template,
                **self._chat_kwargs,
            )
        except TemplateError as error:
            raise InputError(f"the model's chat template refuses the messages: {quoted(error)}") from error
        return self.encode(text)

    def encode(self, text: str) -> Tokens:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([token for token in tokens if token not in self._left_out])


def _checked(chat_kwargs: Mapping[str, Any], template: str) -> Mapping[str, Any]:
    """The arguments, unless one is not the template's, which would ignore it."""
    for name in chat_kwargs:
        if name in _OURS or not re.search(rf"(?<![\w.]){re.escape(name)}\b", template):
            raise InputError(
                f"the model's chat template takes no argument {name!r}; see the model's page for those of "
                "--chat-kwargs"
            )
    return chat_kwargs
