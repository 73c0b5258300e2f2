"""Connections that send no request, or too many of them; the application behind them is trivial."""

import contextlib
import re
import select
import socket
import threading

import h11
import httpx
import pytest
import uvicorn
from serving import until

from autotts_jax.live import connections
from autotts_jax.live.access import WellFormed
from autotts_jax.live.connections import Connections, _StrictConnection, most_connections

MOST = 8
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"


left = threading.Event()
"""Set when a client left that waited for a reply."""


async def hello(scope, receive, send):
    """Says hello when the body has come; to whoever asks for /never, not before he leaves."""
    assert scope["type"] == "http"
    while (message := await receive()).get("more_body"):
        pass
    if scope["path"] == "/never":
        while message["type"] == "http.request":
            message = await receive()
        left.set()
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


@contextlib.contextmanager
def served():
    """The port of a server in a thread."""
    protocol = Connections(MOST).protocol
    config = uvicorn.Config(
        WellFormed(hello), port=0, http=protocol, loop="asyncio", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def opened(port, begun, count=1):
    """Connections that begin to send something."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)))
            made[-1].sendall(begun)
        yield made


def is_closed(connection):
    """Waits until the server sends something, and tells whether that is the end."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(connections, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(connections, "_LOG_SECONDS", 0.05)


@pytest.mark.parametrize("begun", [b"", HEAD, HEAD + b"\r\n", HEAD + b"\r\n12345"])
@pytest.mark.usefixtures("impatient")
def test_a_request_that_does_not_come_ends_its_connection(begun, caplog):
    with served() as port, opened(port, begun, 3) as three:
        assert all(map(is_closed, three))
        until(lambda: sum(map(int, re.findall(r"closed (\d+) connections", caplog.text))) == 3)
    assert "no request came within 0.1 seconds, and 0 early" in caplog.text


def test_a_request_of_two_lengths_is_refused_and_no_other_is_read_from_its_body():
    other = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % len(
        other
    )
    with served() as port, opened(port, head + other) as (connection,):
        reply = b""
        while part := connection.recv(1000):
            reply += part
    assert reply.startswith(b"HTTP/1.1 400")
    assert reply.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\nhost: x\n\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\n\r\n", b"400"),
        (b"GET / HTTP/1.1\nhost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\n", b"400"),
        (CHUNKED + b"5\n", b"400"),
        (CHUNKED + b"3\r\n\n\n\n\r\n0\r\nx: y\n", b"400"),
        (CHUNKED + b"0\r\nx: y\n\r\n", b"400"),
        (CHUNKED + b"0\r\n\n", b"400"),
        (CHUNKED + b"0\r\nx: y\r\nz: w\n\n", b"400"),
        (CHUNKED + b"0\r\nx: y\r\n\r\n", b"200"),
        (CHUNKED + b"3\r\n\n\n\n\r\n0\r\n\r\n", b"200"),
        (b"GET / HTTP/9.9\r\nhost: x\r\n\r\n", b"505"),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", b"505"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
    ],
)
@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n12345\n7890"])
def test_heads_are_read_as_the_standard_says(before, head, status):
    with served() as port, opened(port, before + head) as (connection,):
        reply = b""
        while part := connection.recv(1000):
            reply += part
    assert re.findall(rb"HTTP/1.1 (\d+)", reply) == [b"200"] * bool(before) + [status]


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_chunked_body_may_be_cut_anywhere(cut):
    body = b"3\r\n\n\n\n\r\n0\r\nx: y\r\n\r\n"
    connection = _StrictConnection(h11.SERVER)
    connection.receive_data(CHUNKED + body[:cut])
    while connection.next_event() is not h11.NEED_DATA:
        pass
    connection.receive_data(body[cut:])
    events = [connection.next_event() for _ in range(3)]
    assert h11.EndOfMessage in map(type, events)


@pytest.mark.usefixtures("impatient")
def test_a_second_request_has_as_long_as_the_first():
    with served() as port, opened(port, HEAD + b"\r\n1234567890") as (connection,):
        reply = b""
        while not reply.endswith(b"hello"):
            reply += connection.recv(1000)
        assert reply.startswith(b"HTTP/1.1 200")
        connection.sendall(HEAD)
        assert is_closed(connection)


@pytest.mark.parametrize(
    "begun", [HEAD, *(pytest.param(of, marks=pytest.mark.slow) for of in (b"", HEAD + b"\r\n12345"))]
)
def test_others_are_served_while_many_connections_say_nothing(begun, caplog):
    with served() as port, opened(port, begun, 5 * MOST) as many:
        for _ in range(3):
            assert httpx.post(f"http://127.0.0.1:{port}/", content=b"x").text == "hello"
        until(lambda: "closed" in caplog.text)
        assert all(map(is_closed, many[: 4 * MOST]))
        many[-1].sendall(b"67890" if b"12345" in begun else HEAD[len(begun) :] + b"\r\n1234567890")
        assert not is_closed(many[-1]), "the latest are left"
    closed = [record.getMessage() for record in caplog.records if "closed" in record.message]
    assert len(closed) == 1, "one line, and not one for each"


def test_unfinished_requests_hold_no_more_than_is_allowed(monkeypatch, caplog):
    monkeypatch.setattr(connections, "MAX_UNFINISHED", MOST * 1000)
    monkeypatch.setattr(connections, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(connections, "_LOG_SECONDS", 0.05)
    half = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000\r\n\r\n" + b"x" * 1900
    with served() as port, opened(port, half, MOST - 2) as many:
        until(lambda: len(told(many)) == 2)  # the others hold as much as is allowed
        for _ in range(3):  # which no finished request does any longer
            assert httpx.post(f"http://127.0.0.1:{port}/", content=b"x" * 1000).text == "hello"
        closed = told(many)
        assert len(closed) == 3
        assert all(map(is_closed, closed))
        for connection in set(many) - set(closed):
            connection.sendall(b"x" * 1100)
            assert not is_closed(connection)
        until(lambda: sum(map(int, re.findall(r"and (\d+) early", caplog.text))) == 3)
    assert "held more than 8000 bytes of unfinished requests" in caplog.text


def told(many):
    """The connections on which the server has sent something, or the end."""
    return select.select(many, [], [], 0)[0]


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
def test_who_ends_his_side_before_the_reply_is_told_and_counts_as_gone(method, caplog):
    left.clear()
    asked = method + b" /never HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
    with served() as port, opened(port, asked) as (connection,):
        connection.shutdown(socket.SHUT_WR)
        reply = b""
        while part := connection.recv(1000):
            reply += part
        assert left.wait(60)
    assert reply.startswith(b"HTTP/1.1 400")
    assert (b"keep it open" in reply) == (method == b"POST"), "a reply to HEAD has no content"
    assert not caplog.records


def test_who_ends_his_side_after_a_question_that_is_answered_at_once_gets_the_reply():
    with served() as port, opened(port, HEAD + b"\r\n1234567890") as (connection,):
        connection.shutdown(socket.SHUT_WR)
        reply = b""
        while part := connection.recv(1000):
            reply += part
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"hello")


def test_the_limit_leaves_descriptors(monkeypatch):
    allowed = [100_000, 0]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: allowed)
    assert most_connections() == connections.MAX_CONNECTIONS
    allowed[0] = 400
    assert 1 < most_connections() <= 200
    allowed[0] = 3
    assert most_connections() == 1
