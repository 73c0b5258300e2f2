"""A model's own tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autotts_jax.collect.engine import Message, Tokens
from autotts_jax.errors import InputError
from autotts_jax.extras import needs


class HubTokenizer:
    """A tokenizer of the transformers library.

    Args:
        tokenizer: a ``PreTrainedTokenizerBase``.

    Raises:
        InputError: the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.thinks = "</think>" in str(tokenizer.chat_template)
        if not tokenizer.chat_template:
            raise InputError(
                f"{tokenizer.name_or_path}: its tokenizer has no chat template; use an instruct model"
            )

    @classmethod
    def from_pretrained(cls, model: str) -> HubTokenizer:
        """Opens the tokenizer of a model.

        Args:
            model: the model's folder or Hugging Face id.

        Returns:
            The tokenizer.

        Raises:
            InputError: there is none, it has no chat template, or transformers is not installed.
        """
        with needs("collecting", "a model's tokenizer"):
            from transformers import AutoTokenizer
        try:
            return cls(AutoTokenizer.from_pretrained(model))
        except (OSError, ValueError) as error:
            raise InputError(
                f"no tokenizer at {model}: {error}; name a model's folder or Hugging Face id"
            ) from error

    def chat(self, messages: Sequence[Message]) -> Tokens:
        with needs("collecting", "a model's chat template"):
            from jinja2 import TemplateError
        shown = [dataclasses.asdict(message) for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(shown, add_generation_prompt=True, tokenize=False)
        except TemplateError as error:
            raise InputError(f"the model's chat template refuses the messages: {error}") from error
        return self.encode(text)

    def encode(self, text: str) -> Tokens:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)
