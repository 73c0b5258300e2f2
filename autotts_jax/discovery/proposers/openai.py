"""A language model behind an OpenAI-compatible server as a proposer of whole files.

Every call is a file in the run's folder, under ``transcripts``: written as pending before the call, with what
it can cost at most, and again with the reply before that is used. A run that is resumed reads them instead of
paying again, and counts a call whose reply was lost as if it had cost the most.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from autotts_jax.checks import check_address, check_int, check_text
from autotts_jax.discovery.archive.transcripts import TRANSCRIPTS, Transcript
from autotts_jax.discovery.population import Written
from autotts_jax.discovery.proposers.prompts import code_of, prompt
from autotts_jax.discovery.proposers.protocol import Draft
from autotts_jax.discovery.proposers.replies import api_key, ask, in_background, open_client, was_sent
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.keys import ADDRESS, all_hidden, password_of
from autotts_jax.terminal import quoted

OPENAI = "openai"
"""Name of the proposer, with the model after a colon."""

MESSAGE_TOKENS = 64
"""Tokens that a server may add to each message."""

MAX_FILES = 128
"""Files that a round can ask for."""


class PaidTokens(NamedTuple):
    """Tokens of prompts and of replies."""

    prompt: int
    reply: int

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt + self.reply

    def plus(self, other: PaidTokens) -> PaidTokens:
        """Adds costs."""
        return PaidTokens(self.prompt + other.prompt, self.reply + other.reply)


class ModelReply(NamedTuple):
    """What a model replied.

    Attributes:
        text: the text; None where there is none.
        failure: why there is none.
        cut_off: whether it has reached the most tokens of a reply.
        transcript: name of the file that holds what was asked and replied.
        tokens: tokens that were paid for it.
        dollars: what they cost; None where nobody knows.
    """

    text: str | None
    failure: str
    cut_off: bool
    transcript: str
    tokens: int
    dollars: float | None


@dataclasses.dataclass(frozen=True)
class OpenAIProposer:
    """Asks a language model for whole files.

    The API key is read from the environment (``OPENAI_API_KEY``) and is written nowhere.

    Attributes:
        model: the name under which the server serves the model.
        base_url: the server, e.g. ``http://127.0.0.1:8000/v1``; ``OPENAI_BASE_URL`` or OpenAI's own if None.
        count: files that a round asks for, all at a time, each in a thread; at most `MAX_FILES`.
        temperature: of sampling; the server's own if None.
        reply_tokens: tokens of a reply at most.
        max_tokens: tokens that a run may pay for, prompts and replies of all models together.
        max_dollars: dollars that a run may pay for all models together; None for no limit.
        prices: dollars for a million tokens of prompts and of replies, by model. A model without a price is
            unpriced, not free: there cannot be a limit in dollars.
        seconds: seconds in which a server has to say something; a call may take twice as many.
        pause: seconds before a busy server is asked for the second time; doubles with each time.

    Raises:
        InputError: the arguments do not fit together.
    """

    model: str
    base_url: str | None = None
    count: int = 4
    temperature: float | None = None
    reply_tokens: int = 8192
    max_tokens: int = 1_000_000
    max_dollars: float | None = None
    prices: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    seconds: float = 600.0
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not check_text("the model", self.model):
            raise InputError("there is no model; give one, as openai:MODEL")
        if self.base_url is not None:
            check_address("base_url", self.base_url)
        elif served := os.environ.get(ADDRESS):
            check_address(ADDRESS, served)
        check_int("count", self.count, 1, MAX_FILES)
        for name in ("reply_tokens", "max_tokens"):
            check_int(name, getattr(self, name), 1)
        price = self.prices.get(self.model)
        if price is not None and not all(0 <= dollars < 1e6 for dollars in price):
            raise InputError(f"the price of {self.model} is {price}; give dollars for a million tokens")
        if self.max_dollars is not None:
            if not 0 < self.max_dollars < float("inf"):
                raise InputError(f"max_dollars is {self.max_dollars}, but it must be a finite number above 0")
            self._check_priced(self.model)

    @property
    def name(self) -> str:
        """Its name in records."""
        return f"{OPENAI}:{self.model}"

    def dollars(self, cost: PaidTokens) -> Decimal | None:
        """Computes what tokens cost, to the last digit.

        Args:
            cost: the tokens.

        Returns:
            Dollars; None for a model without a price.
        """
        return self._dollars(self.model, cost) if self.model in self.prices else None

    def paid(self, folder: Path) -> PaidTokens:
        """Adds up what a run has paid for; calls whose replies were lost count as if they had cost the most.

        Args:
            folder: the run's folder.

        Raises:
            DataError: a transcript is damaged.
        """
        total = PaidTokens(0, 0)
        for cost in self._paid(folder).values():
            total = total.plus(cost)
        return total

    def spent(self, tokens: float, dollars: float) -> float:
        """Computes the share of the limit that is nearest."""
        of_dollars = 0.0 if self.max_dollars is None else dollars / max(self.max_dollars, 1e-9)
        return min(max(tokens / self.max_tokens, of_dollars), 1.0)

    def write(
        self,
        tried: Sequence[Written],
        folder: Path,
        round: int,  # noqa: A002
        max_branches: int,
        beta: bool = True,
    ) -> list[Draft]:
        """Asks for as many files as the run can still pay for, all at a time.

        Raises:
            InputError: the server refuses, or does not answer.
            DataError: a transcript is damaged.
        """
        prompts = {
            f"round{round:05}-{place}": prompt(tried, place, max_branches, beta)
            for place in range(self.count)
        }
        replies = self.ask({name: asked.messages for name, asked in prompts.items()}, folder)
        return [self._draft(reply, prompts[name].parents) for name, reply in replies.items()]

    def ask(self, asked: Mapping[str, list[dict[str, str]]], folder: Path) -> dict[str, ModelReply]:
        """Asks as much as the run can still pay for, all at a time; what was answered before is not asked.

        Args:
            asked: messages by the name of their transcript.
            folder: the run's folder.

        Returns:
            Replies by name; none where there is no money left.

        Raises:
            InputError: the server refuses, or does not answer.
            DataError: a transcript is damaged.
        """
        with needs("discover", f"the proposer {OPENAI}"):
            import openai  # noqa: F401
        calls = [self._call(messages, folder / TRANSCRIPTS, name) for name, messages in asked.items()]
        paid, kept = self._paid(folder), {}
        for name, call in zip(asked, calls, strict=True):
            after = paid | {self.model: paid.get(self.model, PaidTokens(0, 0)).plus(call.most)}
            if call.transcript.response is not None:
                kept[name] = call
            elif self._affordable(after):
                kept[name] = call
                paid = after
        key = api_key()
        secrets = [key, *password_of(self.base_url or os.environ.get(ADDRESS, ""))]
        with open_client(key, self.base_url, self.seconds) as client:
            answers = {
                name: in_background(functools.partial(self._ask, client, call, secrets))
                for name, call in kept.items()
            }
            wait(answers.values())
        return {name: self._read(kept[name], answer.result()) for name, answer in answers.items()}

    # --- money ---------------------------------------------------------------------------------------------

    def _paid(self, folder: Path) -> dict[str, PaidTokens]:
        """What a run has paid for, by model."""
        paid: dict[str, PaidTokens] = {}
        for path in sorted((folder / TRANSCRIPTS).glob("*.json")):
            transcript = Transcript.read(path)
            model = transcript.request["model"]
            paid[model] = paid.get(model, PaidTokens(0, 0)).plus(PaidTokens(*transcript.cost))
        return paid

    def _affordable(self, paid: Mapping[str, PaidTokens]) -> bool:
        if sum(cost.tokens for cost in paid.values()) > self.max_tokens:
            return False
        if self.max_dollars is None:
            return True
        for model in paid:
            self._check_priced(model)
        dollars = sum(self._dollars(model, cost) for model, cost in paid.items())
        return dollars <= Decimal(str(self.max_dollars))

    def _dollars(self, model: str, cost: PaidTokens) -> Decimal:
        prompt, reply = (Decimal(str(dollars)) for dollars in self.prices[model])
        return (prompt * cost.prompt + reply * cost.reply) / 1_000_000

    def _check_priced(self, model: str) -> None:
        if model not in self.prices:
            raise InputError(
                f"{model} has no price, so a limit in dollars cannot hold; give "
                f"prices={{{model!r}: (prompt, reply)}} in dollars for a million tokens, or limit tokens"
            )

    # --- one call ------------------------------------------------------------------------------------------

    def _call(self, messages: list[dict[str, str]], folder: Path, name: str) -> _Call:
        request: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.reply_tokens}
        if self.temperature is not None:
            request["temperature"] = self.temperature
        content = sum(len(message["content"].encode()) for message in messages)
        # No token is shorter than a byte.
        most = PaidTokens(content + MESSAGE_TOKENS * len(messages), self.reply_tokens)
        path, transcript = Transcript.of_call(request, most, folder, name)
        return _Call(path, most, transcript)

    def _ask(self, client: Any, call: _Call, secrets: Sequence[str]) -> Transcript:
        """Makes a call, unless it was made and answered before."""
        import openai

        if call.transcript.response is not None:
            return call.transcript
        pending = call.transcript.begin(call.path)
        try:
            response = ask(client, pending.request, secrets, self.seconds, self.pause, call.most)
        except openai.APIError as error:
            if isinstance(error, openai.APIStatusError) or not was_sent(error):
                pending.withdraw(call.path)
            said = quoted(all_hidden(str(error), secrets))
            raise InputError(
                f"the server of {self.model} does not answer: {said}; what was paid for is kept: check the "
                "address, the name of the model and the key, and call again to go on"
            ) from None
        answered = dataclasses.replace(pending, response=response)
        answered.write(call.path)
        return answered

    def _read(self, call: _Call, transcript: Transcript) -> ModelReply:
        assert transcript.response is not None
        cost = PaidTokens(*transcript.cost)
        dollars = self.dollars(cost)
        return ModelReply(
            transcript.response.get("text"),
            failure=transcript.response.get("failure", ""),
            cut_off=transcript.response.get("finish") == "length",
            transcript=call.path.name,
            tokens=cost.tokens,
            dollars=None if dollars is None else float(dollars),
        )

    def _draft(self, reply: ModelReply, parents: tuple[int, ...]) -> Draft:
        source = None if reply.text is None else code_of(reply.text)
        failure = reply.failure
        if not failure and source is None:
            failure = "the reply holds no code block; reply with one ```python block"
            if reply.cut_off:
                failure = f"the reply was cut off after {self.reply_tokens} tokens"
        return Draft(source, failure, parents, reply.transcript, reply.tokens, reply.dollars)


class _Call(NamedTuple):
    """A call that is to be made: its file, what it can cost, and what is known of it."""

    path: Path
    most: PaidTokens
    transcript: Transcript
