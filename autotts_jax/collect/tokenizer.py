"""A model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotts_jax.collect.engine import Tokens
from autotts_jax.errors import InputError


class HubTokenizer:
    """A tokenizer of the transformers library.

    Raises:
        InputError: there is none at the path or of the name, or it has no chat format.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.thinks = "</think>" in str(tokenizer.chat_template)
        if not tokenizer.chat_template:
            raise InputError(
                f"{tokenizer.name_or_path}: its tokenizer has no chat template; use an instruct model"
            )

    @classmethod
    def load(cls, model: str) -> HubTokenizer:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise InputError(
                "a model's tokenizer needs transformers: pip install 'autotts-jax[collect]'"
            ) from error
        try:
            return cls(AutoTokenizer.from_pretrained(model))
        except (OSError, ValueError) as error:
            raise InputError(f"no tokenizer at {model}: {error}; name a model's folder or hub id") from error

    def chat(self, question: str, system: str | None) -> Tokens:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": question})
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.encode(text)

    def encode(self, text: str) -> Tokens:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)
