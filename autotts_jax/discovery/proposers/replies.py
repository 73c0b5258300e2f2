"""One call of a language model behind an OpenAI-compatible server, whatever that replies.

The client gives up where a server is silent for too long, but not where it says a byte now and then, and what
it cannot read it raises in many ways. Here a call ends in time, and what is not a reply is a failure.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from autotts_jax.keys import all_hidden, checked_key

T = TypeVar("T")

KEY = "OPENAI_API_KEY"
"""The variable of the environment that the API key comes from."""

ATTEMPTS = 6
"""How often a call is made that a server is too busy for."""

MAX_TEXT = 1 << 20
"""Characters of a reply at most."""

MAX_REPLY = 1 << 24
"""Bytes of a reply at most."""

_UNSENT = ("ConnectError", "ConnectTimeout", "UnsupportedProtocol")
"""What the client's transport, which differs between its versions, calls requests that were never sent."""

_NO_COMPLETION = {"failure": "the server's reply is not a chat completion", "used": None}


def api_key() -> str:
    """Reads the API key from the environment.

    Raises:
        InputError: it cannot be sent.
    """
    return checked_key(os.environ.get(KEY, ""), KEY)


class _UnreadError(Exception):
    """Why a reply is not read."""


def open_client(key: str, base_url: str | None, seconds: float) -> Any:
    """Opens the client, which by itself would hold a reply of any length in memory.

    Args:
        key: the key, empty for none.
        base_url: the server, as of `OpenAIProposer`.
        seconds: seconds in which the server has to say something.
    """
    import openai

    class Client(openai.DefaultHttpxClient):
        def send(self, request: Any, **options: Any) -> Any:
            content = bytearray()
            request.headers["accept-encoding"] = "identity"  # what is compressed may have any length
            with contextlib.closing(super().send(request, **{**options, "stream": True})) as reply:
                if reply.headers.get("content-encoding", "identity") != "identity":
                    raise _UnreadError("the reply is compressed")
                for part in reply.iter_raw():
                    content += part
                    if len(content) > MAX_REPLY:
                        raise _UnreadError(f"the reply has more than {MAX_REPLY} bytes")
            return type(reply)(
                reply.status_code, headers=reply.headers, content=bytes(content), request=request
            )

    # Servers of one's own need no key, but the client does.
    return openai.OpenAI(
        api_key=key or "none", base_url=base_url, max_retries=0, timeout=seconds, http_client=Client()
    )


def in_background(call: Callable[[], T]) -> Future[T]:
    """Calls a function in a thread of its own, which does not keep the process from ending, as at Ctrl-C."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def was_sent(error: Exception) -> bool:
    """Tells whether the server may have got the request."""
    return type(error.__cause__).__name__ not in _UNSENT


def ask(
    client: Any,
    request: Mapping[str, Any],
    secrets: Sequence[str],
    seconds: float,
    pause: float,
    most: Sequence[int],
) -> dict[str, Any]:
    """Makes a call, several times where the server is busy.

    Args:
        client: the client.
        request: what is asked.
        secrets: the key and others, which are taken out of what is kept.
        seconds: seconds in which the server has to say something; a call may take twice as many.
        pause: seconds before the second time; doubles with each time.
        most: the most tokens that the prompt and the reply can have.

    Returns:
        What is kept of the reply: ``text`` and ``finish``, or ``failure``; and tokens ``used``, of the prompt
        and of the reply, None where the server does not say, or says what cannot be.

    Raises:
        openai.APIError: the server refuses, or does not answer.
    """
    import openai

    for attempt in range(ATTEMPTS):
        try:
            reply = _within(2 * seconds, client.chat.completions.create, request)
            break
        except TimeoutError:
            return {"failure": f"no reply within {seconds:g} s", "used": None}
        except openai.APITimeoutError as error:
            if not was_sent(error):
                raise
            return {"failure": f"no reply within {seconds:g} s", "used": None}
        except (_UnreadError, openai.APIConnectionError) as error:
            unread = error.__cause__ or error  # Versions of the client differ in what they wrap.
            if not isinstance(unread, _UnreadError):
                raise
            return {"failure": str(unread), "used": None}
        except openai.BadRequestError as error:
            if "max_completion_tokens" not in str(error) or "max_tokens" not in request:
                raise
            renamed = {name: value for name, value in request.items() if name != "max_tokens"}
            request = {**renamed, "max_completion_tokens": request["max_tokens"]}
        except (openai.RateLimitError, openai.InternalServerError):
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(pause * 2**attempt)
        except (ValueError, RecursionError):  # It is not JSON.
            return _NO_COMPLETION
    return _kept(reply, secrets, most)


def _within(seconds: float, create: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Calls in a thread that is left to itself when time is up."""
    return in_background(functools.partial(create, **request)).result(seconds)


def _kept(reply: Any, secrets: Sequence[str], most: Sequence[int]) -> dict[str, Any]:
    """What is kept of a reply, which the client does not check."""
    usage = getattr(reply, "usage", None)
    used = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    counted = all(
        type(tokens) is int and 1 <= tokens <= limit for tokens, limit in zip(used, most, strict=True)
    )
    response: dict[str, Any] = {"used": used if counted else None}
    try:
        choice = reply.choices[0]
        text, finish = (
            all_hidden(str(said or ""), secrets).encode(errors="replace").decode()
            for said in (choice.message.content, choice.finish_reason)
        )
    except (AttributeError, IndexError, KeyError, TypeError, RecursionError):
        return _NO_COMPLETION | response
    if len(text) + len(finish) > MAX_TEXT:
        return response | {"failure": f"the reply has more than {MAX_TEXT} characters"}
    return response | {"text": text, "finish": finish}
