"""The endpoints of a server, and a request's way from a question to an answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
import threading
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from autotts_jax.checks import check_text
from autotts_jax.collect.answers import extractor
from autotts_jax.collect.engine import (
    BusyError,
    Cancelled,
    ChatMessage,
    Engine,
    EngineError,
    RefusedError,
    writes_whole,
)
from autotts_jax.collect.graders import open_grader
from autotts_jax.collect.http_engine import HttpEngine
from autotts_jax.collect.thinking import TAGS
from autotts_jax.collect.trajectories import ContextError, Sampling, Trajectories
from autotts_jax.collect.upstream import Upstream
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live.access import check_access, check_host
from autotts_jax.live.answering import Answer, LiveExecutor, ProbingError, answer, check_continues
from autotts_jax.live.chat import ALIVE, DONE, Chat, Reply, RequestError, Speech, event, read_object
from autotts_jax.live.compiling import Compiler
from autotts_jax.live.metrics import Metrics
from autotts_jax.live.page import page
from autotts_jax.live.passing import Passed, body_for, pass_on
from autotts_jax.live.published import DEFAULT, DEFAULT_OF_WHOLE, PLAIN, PUBLISHED, published
from autotts_jax.live.readiness import Readiness
from autotts_jax.live.responses import ResponsesChat, ResponsesReply
from autotts_jax.live.settings import ServerSettings
from autotts_jax.live.texts import Text, complete
from autotts_jax.policies.player import Player
from autotts_jax.terminal import printable

MAX_BODY = 1 << 20
"""Bytes that a request may have."""

ALIVE_SECONDS = 10.0
"""After so long without news a stream says that it is alive: proxies cut silent connections."""

STREAMED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers of streams, so that proxies pass on each part as it comes."""

LEFT = 499
"""The status, as proxies have it, that is counted where a client left before its reply; nobody gets it."""

_LOG = logging.getLogger("uvicorn.error")


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a request comes to."""

    question: str | tuple[ChatMessage, ...]
    player: Player
    sampling: Sampling
    budget: int
    stops: tuple[str, ...] = ()


class _Work:
    """A question under way, in a thread."""

    def __init__(
        self,
        controller: str,
        work: Callable[[Callable[[Any], None], threading.Event], Any],
        threads: ThreadPoolExecutor,
    ):
        loop = asyncio.get_running_loop()
        self.controller = controller
        self.cancel = threading.Event()
        self.left = self.late = False
        self.news: asyncio.Queue[Any] = asyncio.Queue()

        def tell(latest: Any) -> None:
            loop.call_soon_threadsafe(self.news.put_nowait, latest)

        self.future = loop.run_in_executor(threads, work, tell, self.cancel)
        self.future.add_done_callback(self.news.put_nowait)


class Service:
    """The endpoints, and the questions under way.

    Raises:
        InputError: no question fits into the model's context, or a setting is wrong.
    """

    def __init__(self, engine: Engine, settings: ServerSettings):
        self._engine = engine
        self._settings = settings
        self._default = settings.controller or (DEFAULT_OF_WHOLE if writes_whole(engine) else DEFAULT)
        self._grader = open_grader(settings.grader)
        self._threads = ThreadPoolExecutor(settings.max_requests, "answer")
        self._under_way: set[_Work] = set()
        self._ending = False
        self._readiness = Readiness(engine)
        self._compiler = Compiler(settings, self._grader)
        self.counts = Metrics(lambda: len(self._under_way), lambda: engine.running)
        self._begun = int(time.time())
        self._names: list[str] = []
        self._trajectories("", settings.sampling)

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Compiles before the first request comes; at the end no thread and no process is left."""
        player = published(self._default, self._settings.max_branches)
        with self._grader:
            await asyncio.to_thread(self._compiler.compile, player)
            self._names = await asyncio.to_thread(self._find_names)
            with self._compiler:
                async with self._readiness.watching():
                    yield
                    self.stop()
                    await asyncio.to_thread(self._threads.shutdown)

    def stop(self) -> None:
        """Drops the questions under way, and refuses others."""
        self._ending = True
        self._compiler.stop()
        for work in self._under_way:
            work.cancel.set()

    # --- endpoints -----------------------------------------------------------------------------------

    async def live(self, _request: Request) -> Response:
        """That this process serves, whatever its engine does."""
        return JSONResponse({"status": "ok"})

    async def health(self, _request: Request) -> Response:
        """How much is under way, and whether the engine answers."""
        ready = self._readiness.look()
        status = {
            "status": "ok" if ready else "engine failed",
            "api_key": self._settings.api_key is not None,
            "requests": len(self._under_way),
            "max_requests": self._settings.max_requests,
            "engine_requests": self._engine.running,
        }
        return JSONResponse(status, 200 if ready else 503)

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
                player = published(controller, self._settings.max_branches)
                self._check_continues(player, self._trajectories("", self._settings.sampling))
                names.append(f"{self._settings.name}:{controller}")
        return names

    async def chat(self, request: Request) -> Response:
        """Answers a question."""
        return await self._converse(request, Chat, Reply)

    async def responses(self, request: Request) -> Response:
        """Answers a question of the Responses API."""
        return await self._converse(request, ResponsesChat, ResponsesReply)

    async def _converse(self, request: Request, kind: type[Chat], replying: type[Reply]) -> Response:
        check_access(request, self._settings)
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        body = await _body(request, deadline)
        given = read_object(body)
        player = self._player(given.get("model"))
        if player.name == PLAIN and self._upstream is not None and kind.passed:
            return await self._pass_on(self._upstream, given, request, deadline)
        chat = kind.read(body, kind.way_out.format(self._way_out))
        plain, several = player.name == PLAIN, player.width != 1
        if chat.n > 1 and not several:
            message = f"n: {chat.model!r:.80} opens a single branch; ask a controller that opens several"
            raise RequestError(400, message, param="n")
        stops = chat.stops if plain else ()
        task = _Task(chat.question, player, self._sampling(chat, several), self._budget(chat), stops)
        reply = self._reply(replying, chat, player, several)
        try:
            speech = reply.speech(await asyncio.to_thread(self._check, task, chat))
        except RequestError:
            self.counts.ended(player.name, "refused")
            raise
        # What fails from here on is told in the stream, if there is one: its head goes out at once.
        work = self._begin(player.name, functools.partial(self._answer, task))
        news = self._followed(work, request, deadline)
        if chat.stream:
            sent = _stream(reply, speech, news)
            return StreamingResponse(sent, media_type="text/event-stream", headers=STREAMED | reply.headers)
        *_, answer = [latest async for latest in news]
        return JSONResponse(reply.whole(answer), headers=reply.headers)

    async def completions(self, request: Request) -> Response:
        """Continues a prompt with the model alone."""
        check_access(request, self._settings)
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        body = await _body(request, deadline)
        given = read_object(body)
        if self._player(given.get("model")).name != PLAIN:
            message = (
                f"a controller answers chats alone, at /v1/chat/completions; for a completion, ask "
                f"{self._settings.name}:{PLAIN}"
            )
            raise RequestError(400, message, param="model")
        if self._upstream is not None:
            return await self._pass_on(self._upstream, given, request, deadline)
        asked = Text.read(body, self._way_out)
        settings = self._settings

        def work(tell: Callable[[Any], None], cancel: threading.Event) -> Passed:
            reply = complete(self._engine, asked, settings.sampling, settings.budget, cancel)
            tell(event(reply) + DONE)
            return Passed(reply, reply["usage"])

        return await self._passed(self._begin(PLAIN, work), asked.stream, request, deadline)

    async def _pass_on(
        self, upstream: Upstream, given: dict[str, Any], request: Request, deadline: float
    ) -> Response:
        """Has the server behind the engine answer."""
        body = body_for(given, self._engine.model, self._settings)

        def work(tell: Callable[[Any], None], cancel: threading.Event) -> Passed:
            return pass_on(upstream, request.url.path, body, given["model"], tell, cancel)

        return await self._passed(self._begin(PLAIN, work), bool(body.get("stream")), request, deadline)

    async def _passed(self, work: _Work, streamed: bool, request: Request, deadline: float) -> Response:
        news = self._followed(work, request, deadline)
        if streamed:
            return StreamingResponse(_passed_stream(news), media_type="text/event-stream", headers=STREAMED)
        *_, passed = [latest async for latest in news]
        return JSONResponse(passed.reply)

    # --- what is asked -------------------------------------------------------------------------------

    @property
    def _way_out(self) -> str:
        """What takes what a controller does not."""
        plain = f"{self._settings.name}:{PLAIN}"
        if self._upstream is not None:
            return f"ask {plain}, which passes it on to the model's server"
        return f"{plain} passes it on where the model is behind --engine server or chat"

    @property
    def _upstream(self) -> Upstream | None:
        """The server that answers for the model alone."""
        return self._engine.upstream if isinstance(self._engine, HttpEngine) else None

    def _player(self, model: Any) -> Player:
        """The player that is named."""
        known, width = self._settings.name, self._settings.max_branches
        try:
            check_text("model", model)
        except InputError as error:
            raise RequestError(400, f"{error}; GET /v1/models lists them", param="model") from None
        if model != known and not model.startswith(f"{known}:"):
            raise RequestError(
                404,
                f"there is no model {model!r:.80}; GET /v1/models lists them",
                "model_not_found",
                param="model",
            )
        try:
            return published(model[len(known) + 1 :] or self._default, width)
        except InputError as error:
            raise RequestError(404, str(error), "model_not_found", param="model") from None

    def _reply(self, kind: type[Reply], chat: Chat, player: Player, several: bool) -> Reply:
        plain = player.name == PLAIN
        return kind(
            model=f"{self._settings.name}:{player.names[0]}",
            form=chat.autotts.reply or ("branch" if plain else self._settings.reply),
            decisions=chat.autotts.decisions,
            ignored=chat.ignored(several, plain),
            plain=plain,
            stops=chat.stops if plain else (),
            json=chat.form(self._way_out),
            choices=chat.n,
            usage=chat.stream_options.include_usage,
            thinking=self._engine.tokenizer.thinking or TAGS,
        )

    def _sampling(self, chat: Chat, several: bool) -> Sampling:
        changes = chat.sampled
        if chat.greedy and several:
            del changes["temperature"]
        if chat.system is not None:
            changes["system"] = chat.system
        try:
            return dataclasses.replace(self._settings.sampling, **changes)
        except InputError as error:
            named = next((name for name in changes if str(error).startswith(name)), None)
            raise RequestError(400, str(error), param=named) from None

    def _budget(self, chat: Chat) -> int:
        # A limit that is never reached, rather than none, which would have to be compiled for.
        asked = (chat.max_tokens, chat.max_completion_tokens, chat.autotts.budget)
        limits = (self._settings.budget, *asked, MAX_TOKENS)
        return min(limit for limit in limits if limit is not None)

    # --- answering -----------------------------------------------------------------------------------

    def _begin(self, controller: str, work: Callable[[Callable[[Any], None], threading.Event], Any]) -> _Work:
        """Begins to answer a question, unless there are too many."""
        if self._ending:
            raise RequestError(503, "the server is ending")
        if len(self._under_way) >= self._settings.max_requests:
            message = f"{len(self._under_way)} questions are being answered, and that is the limit; try again"
            raise RequestError(429, message, "rate_limit_exceeded", {"Retry-After": "1"})
        begun = _Work(controller, work, self._threads)
        self._under_way.add(begun)
        begun.future.add_done_callback(functools.partial(self._finish, begun))
        return begun

    async def _followed(self, work: _Work, request: Request, deadline: float) -> AsyncGenerator[Any, None]:
        """The news of a question, None where there is none for long, and then what it comes to."""
        clock = asyncio.get_running_loop().time
        left = asyncio.create_task(_left(request))
        left.add_done_callback(functools.partial(_leave, work))
        try:
            while True:
                try:
                    async with asyncio.timeout_at(min(deadline, clock() + ALIVE_SECONDS)):
                        latest = await work.news.get()
                except TimeoutError:
                    if clock() >= deadline:
                        raise
                    latest = None
                if isinstance(latest, asyncio.Future):
                    break
                yield latest
            yield latest.result()
        except Exception as error:
            work.late = isinstance(error, TimeoutError)
            raise self._error(work, error) from error
        finally:
            work.left |= not (work.late or work.future.done())  # whoever follows a stream gave it up
            work.cancel.set()
            left.cancel()

    def _answer(self, task: _Task, tell: Callable[[Any], None], cancel: threading.Event) -> Answer:
        """Answers a question, in a thread."""
        self._compiler.compile(task.player)
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
            stop=task.stops,
            on_decision=tell,
            on_text=tell if task.player.name == PLAIN else None,
            cancel=cancel,
        )

    def _check(self, task: _Task, chat: Chat) -> bool:
        """Raises an error if the model does not take a question; tells whether its prompt begins to think."""
        if task.budget == 0:
            message = f"a budget of 0 tokens is enough for no branch; give 1 at least, as {chat.limit}"
            raise RequestError(400, message, "budget_too_small", param=chat.limit)
        try:
            trajectories = self._trajectories(task.question, task.sampling)
            self._check_continues(task.player, trajectories)
            return trajectories.thinking_begun
        except ProbingError as error:
            raise RequestError(400, str(error), "unsupported_controller", param="model") from None
        except ContextError as error:
            raise RequestError(400, str(error), "context_length_exceeded", param=chat.turns) from None
        except InputError as error:
            raise RequestError(400, str(error), param=chat.turns) from None

    def _check_continues(self, player: Player, trajectories: Trajectories) -> None:
        """Raises a `ProbingError` for a player that needs more than the engine writes."""
        if writes_whole(self._engine):
            width = player.width or self._settings.max_branches
            executor = LiveExecutor(trajectories, self._settings.sampling, self._grader, width, None)
            check_continues(self._engine, player, executor)

    def _trajectories(self, question: str | tuple[ChatMessage, ...], sampling: Sampling) -> Trajectories:
        return Trajectories(self._engine, question, sampling, extractor(self._settings.answers))

    def _finish(self, work: _Work, done: asyncio.Future[Any]) -> None:
        """Counts a question as done, which it is when its thread is, and not when its client is told."""
        self._under_way.discard(work)
        outcome, error = "failed", done.exception()
        if error is None:
            outcome = "answered"
            self._readiness.heard()
            if isinstance(found := done.result(), Answer):
                self.counts.answered(work.controller, found, self._settings.sampling.interval)
            elif isinstance(found, Passed):
                self.counts.passed(work.controller, found.usage)
        elif isinstance(error, RequestError):
            outcome = "refused"
        elif isinstance(error, RefusedError | BusyError):
            outcome = "refused"
            self._readiness.heard()
        elif isinstance(error, EngineError):
            self._readiness.doubt()
            _LOG.error("the engine failed: %s", printable(error))
        elif isinstance(error, Cancelled):
            outcome = "left" if work.left else "timed_out" if work.late else "dropped"
            if work.late:
                self._readiness.doubt()
        else:
            how = "".join(traceback.format_exception(error))
            _LOG.error("a question could not be answered:\n%s", printable(how, lines=True))
        self.counts.ended(work.controller, outcome)

    def _error(self, work: _Work, error: Exception) -> RequestError:
        """What a client is told of an error."""
        match error:
            case RequestError():
                return error
            case TimeoutError():
                message = f"there was no answer within {self._settings.timeout:g} seconds"
                # A client that tried again would wait for as long again.
                return RequestError(504, message, "timeout", {"x-should-retry": "false"})
            case Cancelled():
                if work.left:
                    return RequestError(LEFT, "the client left before there was an answer")
                return RequestError(503, "the server is ending")
            case RefusedError():
                code = "context_length_exceeded" if error.too_long else None
                return RequestError(400, f"the model's server refuses the request: {error.reason}", code)
            case BusyError():
                seconds = math.ceil(1.0 if error.retry_after is None else error.retry_after)
                message = f"the model's server has too much to do; try again in {seconds} s"
                return RequestError(429, message, "rate_limit_exceeded", {"Retry-After": str(seconds)})
            case EngineError():
                return RequestError(503, "the engine failed; the server's log says why", "engine_failed")
        return RequestError(500, "the question could not be answered; the server's log says why")


def _leave(work: _Work, left: asyncio.Task[None]) -> None:
    """Gives a question up because its client has left."""
    work.left |= not left.cancelled()
    work.cancel.set()


async def _stream(reply: Reply, speech: Speech, news: AsyncGenerator[Any, None]) -> AsyncIterator[str]:
    """Server-sent events: what is done meanwhile, and then the answer."""
    yield reply.begin()
    told = False
    async with contextlib.aclosing(news):
        try:
            async for latest in news:
                match latest:
                    case Answer():
                        rest = reply.more(speech.add("", last=True)) if told else ""
                        yield rest + reply.end(latest, told)
                    case Decision():
                        yield reply.progress(latest)
                    case str():
                        told = True
                        yield reply.more(speech.add(latest))
                    case _:
                        yield ALIVE
        except RequestError as error:
            yield event(error.body)


async def _passed_stream(news: AsyncGenerator[Any, None]) -> AsyncIterator[str]:
    """The stream of another server as it comes."""
    yield ALIVE
    async with contextlib.aclosing(news):
        try:
            async for latest in news:
                if not isinstance(latest, Passed):
                    yield latest or ALIVE
        except RequestError as error:
            yield event(error.body)


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
