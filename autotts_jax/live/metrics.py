"""What a server has done, in Prometheus' text format."""

from __future__ import annotations

import functools
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotts_jax.errors import InputError
from autotts_jax.live.answering import Answer

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
except ImportError as error:
    raise InputError("serving needs prometheus-client: pip install 'autotts-jax[serve]'") from error


class Metrics:
    """Counts of one server. Labels have few values: names of controllers, statuses and reasons.

    Args:
        under_way: gives the number of questions that are being answered.
        in_engine: gives the number of requests that the engine works on.
    """

    def __init__(self, under_way: Callable[[], int], in_engine: Callable[[], int]):
        self._registry = CollectorRegistry()
        count = functools.partial(Counter, namespace="autotts", registry=self._registry)
        gauge = functools.partial(Gauge, namespace="autotts", registry=self._registry)
        self._requests = count("requests", "HTTP requests, by what they ask for.", ["endpoint", "status"])
        self._questions = count("questions", "Questions, by how they ended.", ["controller", "outcome"])
        self._branches = count("branches", "Branches opened.", ["controller"])
        self._charged = count("tokens_charged", "Tokens charged to controllers.", ["controller"])
        self._saved = count(
            "tokens_saved",
            "Estimated further tokens that reading opened branches to their ends would have cost.",
            ["controller"],
        )
        self._stops = count("stops", "Episodes, by why they ended.", ["controller", "reason"])
        self._engine = count("engine_tokens", "Tokens that the engine read and wrote.", ["kind"])
        gauge("questions_under_way", "Questions that are being answered.").set_function(under_way)
        gauge("engine_requests", "Requests that the engine works on.").set_function(in_engine)

    def replied(self, endpoint: str, status: int) -> None:
        """Counts a reply.

        Args:
            endpoint: name of what was asked for, one of few.
            status: HTTP status.
        """
        self._requests.labels(endpoint, status).inc()

    def ended(self, controller: str, outcome: str) -> None:
        """Counts a question.

        Args:
            controller: name of the controller.
            outcome: ``answered``, ``left``, ``timed_out``, ``dropped``, ``refused`` or ``failed``.
        """
        self._questions.labels(controller, outcome).inc()

    def answered(self, controller: str, answer: Answer, interval: int) -> None:
        """Counts what an answer took.

        Args:
            controller: name of the controller.
            answer: the answer.
            interval: Δ.
        """
        self._branches.labels(controller).inc(len(answer.texts))
        self._charged.labels(controller).inc(answer.tokens)
        self._saved.labels(controller).inc(tokens_saved(answer, interval))
        self._stops.labels(controller, answer.stop_reason.name.lower()).inc()
        usage = answer.usage
        for kind in ("prompted", "cached", "generated", "forced"):
            self._engine.labels(kind).inc(getattr(usage, kind))

    def passed(self, controller: str, usage: Mapping[str, Any]) -> None:
        """Counts what a reply took that another server has made.

        Args:
            controller: name of what was asked for.
            usage: the usage of the reply, as far as it has one.
        """
        kinds = {"prompt_tokens": "prompted", "completion_tokens": "generated"}
        counts = {kind: usage.get(name) for name, kind in kinds.items()}
        for kind, count in counts.items():
            if type(count) is int and count >= 0:
                self._engine.labels(kind).inc(count)
        self._branches.labels(controller).inc()
        if type(count := counts["generated"]) is int and count >= 0:
            self._charged.labels(controller).inc(count)

    def text(self) -> Response:
        """Gives all counts."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class CountedReplies:
    """Middleware that counts replies."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and counts the reply."""

        def count(status: int) -> None:
            # The router puts what was found into the scope.
            self._metrics.replied(getattr(scope.get("endpoint"), "__name__", "none"), status)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            count(500)  # which Starlette replies outside of all middleware
            raise


def tokens_saved(answer: Answer, interval: int) -> float:
    """Estimates what reading all opened branches to their ends would have cost besides.

    Branches that were not read to their ends are taken to be as long as those that were, on average; where
    there are none of those, nothing is known.

    Returns:
        Tokens.
    """
    read: Tally[int] = Tally()
    for decision in answer.decisions:
        read.update(dict(zip(decision.branches, decision.intervals, strict=True)))
    ended = [read[branch] for branch, end in enumerate(answer.ends) if end is not None]
    if not ended:
        return 0.0
    mean = sum(ended) / len(ended)
    left = (mean - read[branch] for branch, end in enumerate(answer.ends) if end is None)
    return interval * sum(max(0.0, intervals) for intervals in left)
