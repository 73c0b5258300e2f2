"""The endpoints of a server, and a request's way from a question to an answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import threading
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.engine import Cancelled, ChatMessage, Engine, EngineError
from autotts_jax.collect.graders import open_grader
from autotts_jax.collect.thinking import TAGS
from autotts_jax.collect.trajectories import ContextError, Sampling, Trajectories
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live.access import check_access, check_host
from autotts_jax.live.answering import Answer, NoBudgetError, answer
from autotts_jax.live.chat import Chat, Reply, RequestError, event
from autotts_jax.live.compiling import Compiler
from autotts_jax.live.metrics import Metrics
from autotts_jax.live.page import page
from autotts_jax.live.published import DEFAULT, PLAIN, PUBLISHED, published
from autotts_jax.live.settings import ServerSettings
from autotts_jax.policies.player import Player
from autotts_jax.terminal import printable

MAX_BODY = 1 << 20
"""Bytes that a request may have."""

_LOG = logging.getLogger("uvicorn.error")


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a request comes to."""

    question: str | tuple[ChatMessage, ...]
    player: Player
    sampling: Sampling
    budget: int


class Service:
    """The endpoints, and the questions under way.

    Args:
        engine: the model.
        settings: what is served.

    Raises:
        InputError: no question fits into the model's context, or a setting is wrong.
    """

    def __init__(self, engine: Engine, settings: ServerSettings):
        self._engine = engine
        self._settings = settings
        self._grader = open_grader(settings.grader)
        self._threads = ThreadPoolExecutor(settings.max_requests, "answer")
        self._under_way: set[threading.Event] = set()  # what cancels each
        self._ending = False
        self._engine_failed = False
        self._compiler = Compiler(settings, self._grader)
        self.counts = Metrics(lambda: len(self._under_way), lambda: engine.running)
        self._begun = int(time.time())
        self._names: list[str] = []
        self._check_length("", settings.sampling)

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Compiles before the first request comes; at the end no thread and no process is left."""
        player = published(DEFAULT, self._settings.max_branches)
        with self._grader:
            await asyncio.to_thread(self._compiler.compile, player)
            self._names = await asyncio.to_thread(self._find_names)
            with self._compiler:
                yield
                self.stop()
                await asyncio.to_thread(self._threads.shutdown)

    def stop(self) -> None:
        """Drops the questions under way, and refuses others."""
        self._ending = True
        self._compiler.stop()
        for cancel in self._under_way:
            cancel.set()

    # --- endpoints -----------------------------------------------------------------------------------

    async def health(self, _request: Request) -> Response:
        """How much is under way, and whether the engine failed when it was last asked."""
        status = {
            "status": "engine failed" if self._engine_failed else "ok",
            "api_key": self._settings.api_key is not None,
            "requests": len(self._under_way),
            "max_requests": self._settings.max_requests,
            "engine_requests": self._engine.running,
        }
        return JSONResponse(status, 503 if self._engine_failed else 200)

    async def page(self, request: Request) -> Response:
        """A page that asks and shows what becomes of the branches; it brings no key and needs none."""
        check_host(request, self._settings)
        return page()

    async def metrics(self, request: Request) -> Response:
        """What was done since the start, for Prometheus."""
        check_access(request, self._settings)
        return self.counts.text()

    async def models(self, request: Request) -> Response:
        """What can be asked for as a model: the name alone, and the name with each controller."""
        check_access(request, self._settings)
        return JSONResponse({"object": "list", "data": [self._shown(name) for name in self._names]})

    async def model(self, request: Request) -> Response:
        """One model, by whatever name can be asked for."""
        check_access(request, self._settings)
        name = request.path_params["name"]
        self._player(name)
        return JSONResponse(self._shown(name))

    def _shown(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._begun, "owned_by": "autotts-jax"}

    def _find_names(self) -> list[str]:
        """The model's name alone, and with each controller; loads the controllers."""
        names = [self._settings.name]
        for controller in PUBLISHED:
            with contextlib.suppress(InputError):
                published(controller, self._settings.max_branches)
                names.append(f"{self._settings.name}:{controller}")
        return names

    async def chat(self, request: Request) -> Response:
        """Answers a question."""
        check_access(request, self._settings)
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        chat = Chat.read(await _body(request, deadline))
        player = self._player(chat.model)
        several = player.width != 1
        task = _Task(chat.question, player, self._sampling(chat, several), self._budget(chat))
        reply = self._reply(chat, player, several)
        news = self._answered(task, request, deadline)
        # What fails before the first decision is told by the status.
        first = await anext(news)
        if chat.stream:
            sent = _stream(reply, first, news, chat.stream_options.include_usage)
            return StreamingResponse(sent, media_type="text/event-stream", headers=reply.headers)
        *_, answer = [first, *[later async for later in news]]
        assert isinstance(answer, Answer)
        return JSONResponse(reply.whole(answer), headers=reply.headers)

    # --- what is asked -------------------------------------------------------------------------------

    def _player(self, model: str) -> Player:
        """The player that is named."""
        known, width = self._settings.name, self._settings.max_branches
        if model != known and not model.startswith(f"{known}:"):
            raise RequestError(
                404, f"there is no model {model!r:.80}; GET /v1/models lists them", "model_not_found"
            )
        try:
            return published(model[len(known) + 1 :] or DEFAULT, width)
        except InputError as error:
            raise RequestError(404, str(error), "model_not_found") from None

    def _reply(self, chat: Chat, player: Player, several: bool) -> Reply:
        plain = player.name == PLAIN
        return Reply(
            model=f"{self._settings.name}:{player.names[0]}",
            form=chat.autotts.reply or ("branch" if plain else self._settings.reply),
            decisions=chat.autotts.decisions,
            ignored=chat.ignored(several, plain),
            plain=plain,
            stops=chat.stops if plain else (),
            thinking=self._engine.tokenizer.thinking or TAGS,
        )

    def _sampling(self, chat: Chat, several: bool) -> Sampling:
        wanted: dict[str, Any] = {
            "temperature": None if chat.greedy and several else chat.temperature,
            "top_p": chat.top_p,
            "top_k": None if chat.top_k is None else max(chat.top_k, 0),  # -1 is all tokens, too
            "min_p": chat.min_p,
            "seed": chat.seed,
            "system": chat.system,
        }
        changes = {name: value for name, value in wanted.items() if value is not None}
        try:
            return dataclasses.replace(self._settings.sampling, **changes)
        except InputError as error:
            raise RequestError(400, str(error)) from None

    def _budget(self, chat: Chat) -> int:
        # A limit that is never reached, rather than none, which would have to be compiled for.
        asked = (chat.max_tokens, chat.max_completion_tokens, chat.autotts.budget)
        limits = (self._settings.budget, *asked, MAX_TOKENS)
        return min(limit for limit in limits if limit is not None)

    # --- answering -----------------------------------------------------------------------------------

    async def _answered(
        self, task: _Task, request: Request, deadline: float
    ) -> AsyncGenerator[Decision | Answer, None]:
        """The decisions when they are taken, and then the answer."""
        if self._ending:
            raise RequestError(503, "the server is ending")
        if len(self._under_way) >= self._settings.max_requests:
            message = f"{len(self._under_way)} questions are being answered, and that is the limit; try again"
            raise RequestError(429, message, "rate_limit_exceeded", {"Retry-After": "1"})
        loop = asyncio.get_running_loop()
        cancel = threading.Event()
        news: asyncio.Queue[Decision | asyncio.Future[Answer]] = asyncio.Queue()

        def tell(decision: Decision) -> None:
            loop.call_soon_threadsafe(news.put_nowait, decision)

        self._under_way.add(cancel)
        work = loop.run_in_executor(self._threads, self._answer, task, tell, cancel)
        work.add_done_callback(functools.partial(self._finish, task, cancel))
        work.add_done_callback(news.put_nowait)
        left = asyncio.create_task(_left(request))
        left.add_done_callback(lambda _: cancel.set())
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    latest = await news.get()
                if isinstance(latest, asyncio.Future):
                    break
                yield latest
            yield latest.result()
        except Exception as error:
            raise self._error(error) from error
        finally:
            cancel.set()
            left.cancel()

    def _answer(self, task: _Task, tell: Callable[[Decision], None], cancel: threading.Event) -> Answer:
        """Answers a question, in a thread."""
        try:
            self._check_length(task.question, task.sampling)
        except ContextError as error:
            raise RequestError(400, str(error), "context_length_exceeded") from None
        except InputError as error:
            raise RequestError(400, str(error)) from None
        self._compiler.compile(task.player)
        try:
            return answer(
                self._engine,
                task.question,
                task.player,
                grader=self._grader,
                sampling=task.sampling,
                answers=self._settings.answers,
                max_branches=self._settings.max_branches,
                budget=task.budget,
                fall_back=True,
                on_decision=tell,
                cancel=cancel,
            )
        except NoBudgetError as error:
            raise RequestError(400, f"{error}, as max_tokens", "budget_too_small") from None

    def _check_length(self, question: str | tuple[ChatMessage, ...], sampling: Sampling) -> None:
        """Raises an `InputError` if the model's context or its chat template does not take a question."""
        Trajectories(self._engine, question, sampling, extractor(self._settings.answers))

    def _finish(self, task: _Task, cancel: threading.Event, work: asyncio.Future[Answer]) -> None:
        """Counts a question as done, which it is when its thread is, and not when its client is told."""
        self._under_way.discard(cancel)
        controller, outcome, error = task.player.name, "failed", work.exception()
        if error is None:
            outcome = "answered"
            self._engine_failed = False
            self.counts.answered(controller, work.result(), task.sampling.interval)
        elif isinstance(error, EngineError):
            self._engine_failed = True
            _LOG.error("the engine failed: %s", printable(error))
        elif isinstance(error, Cancelled):
            outcome = "cancelled"
        elif isinstance(error, RequestError):
            outcome = "refused"
        else:
            how = "".join(traceback.format_exception(error))
            _LOG.error("a question could not be answered:\n%s", printable(how, lines=True))
        self.counts.ended(controller, outcome)

    def _error(self, error: Exception) -> RequestError:
        """What a client is told of an error."""
        match error:
            case RequestError():
                return error
            case TimeoutError():
                message = f"there was no answer within {self._settings.timeout:g} seconds"
                # A client that tried again would wait for as long again.
                return RequestError(504, message, "timeout", {"x-should-retry": "false"})
            case Cancelled():
                return RequestError(503, "the server is ending")
            case EngineError():
                return RequestError(503, "the engine failed; the server's log says why", "engine_failed")
        return RequestError(500, "the question could not be answered; the server's log says why")


async def _stream(
    reply: Reply, first: Decision | Answer, news: AsyncGenerator[Decision | Answer, None], usage: bool
) -> AsyncIterator[str]:
    """Server-sent events: the decisions as reasoning, and then the answer as content."""
    yield reply.begin()
    latest = first
    async with contextlib.aclosing(news):
        try:
            while isinstance(latest, Decision):
                yield reply.progress(latest)
                latest = await anext(news)
        except RequestError as error:
            yield event(error.body)
            return
    yield reply.end(latest, usage)


async def _body(request: Request, deadline: float) -> bytes:
    """The body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # Any page in a user's browser may send other types here.
        raise RequestError(415, "the content type must be application/json")
    body = b""
    try:
        async with asyncio.timeout_at(deadline):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise RequestError(413, f"the request is larger than {MAX_BODY:,} bytes")
    except (TimeoutError, ClientDisconnect):
        raise RequestError(408, "the request did not come to its end") from None
    return body


async def _left(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
