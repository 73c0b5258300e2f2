"""Loads a server of the simulated engine, which it starts for that on 127.0.0.1.

    python benchmarks/serve_load.py measure

Clients ask random controllers from the moment the server is ready; it starts with an empty compilation cache,
so it still compiles most of them. Every fourth client leaves in the middle of its streams. Meanwhile a
process of its own asks ``/health`` 20 times a second. Then the server's counts have to be the clients'.
Afterwards fewer clients ask until they have had a number of answers, which shows whether its memory grows.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import httpx
import numpy as np
import psutil
import typer
from prometheus_client.parser import text_string_to_metric_families

SERVE = [sys.executable, "-c", "from autotts_jax.cli.main import main; main()", "serve", "--port", "0"]
OPTIONS = ["--engine", "simulated", "--name", "sim", "--interval", "20", "--max-tokens", "400"]
FEW = 16
"""Clients that ask while memory is measured."""

app = typer.Typer(add_completion=False)


class Server:
    """A server in a process of its own, and what it says."""

    def __init__(self, cache: str):
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        self.process = subprocess.Popen(
            [*SERVE, *OPTIONS], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.lines = self._lines()
        self.address = (
            next(line for line in self.lines if "serving at" in line).split()[-1].removesuffix("/v1")
        )
        self.compiled = float("inf")
        threading.Thread(target=self._listen, daemon=True).start()

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        yield from self.process.stderr

    def _listen(self) -> None:
        for line in self.lines:
            if "all controllers are compiled" in line:
                self.compiled = time.time()
            elif not line.startswith("INFO"):
                print(line, end="")

    @property
    def memory(self) -> int:
        return psutil.Process(self.process.pid).memory_info().rss


class Load:
    """Clients of a server, and what they were told."""

    def __init__(self, address: str):
        self.address = address
        self.statuses: collections.Counter[int | str] = collections.Counter()
        self.left = 0
        self._draw = random.Random(0)

    async def ask(self, client: httpx.AsyncClient, leaves: bool) -> int:
        """Asks a question that was not asked before, of any controller; leaves after the first decision."""
        model = self._draw.choice(self.models)
        question = f"What is {self._draw.random()}?"
        body = {"model": model, "messages": [{"role": "user", "content": question}], "stream": True}
        async with client.stream("POST", f"{self.address}/v1/chat/completions", json=body) as reply:
            self.statuses[reply.status_code] += 1
            async for line in reply.aiter_lines():
                if '"error"' in line and reply.status_code == 200:
                    self.statuses["error in a stream"] += 1
                if leaves and "reasoning_content" in line:
                    self.left += 1
                    break
        return reply.status_code

    async def visit(self, client: httpx.AsyncClient, leaves: bool, until: float) -> None:
        """Asks one question after the other, and waits a little where there is no room."""
        while time.perf_counter() < until:
            if await self.ask(client, leaves) == 429:
                await asyncio.sleep(0.5)

    @contextlib.asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[list[httpx.AsyncClient]]:
        async with contextlib.AsyncExitStack() as stack:
            made = [await stack.enter_async_context(httpx.AsyncClient(timeout=120)) for _ in range(count)]
            listed = (await made[0].get(f"{self.address}/v1/models")).json()["data"]
            self.models = [model["id"] for model in listed]
            yield made

    async def press(self, clients: int, seconds: float) -> None:
        """Has clients ask for a while, a quarter of which leave."""
        async with self.clients(clients) as asking:
            until = time.perf_counter() + seconds
            await asyncio.gather(*(self.visit(client, i % 4 == 0, until) for i, client in enumerate(asking)))

    async def ask_in_all(self, count: int) -> None:
        """Has questions asked by few clients until there were so many answers."""
        left = itertools.count(self.statuses[200])

        async def visit(client: httpx.AsyncClient) -> None:
            while next(left) < count:
                await self.ask(client, leaves=False)

        async with self.clients(FEW) as asking:
            await asyncio.gather(*map(visit, asking))


@app.command()
def measure(
    clients: Annotated[int, typer.Option(help="Clients at once.")] = 32,
    seconds: Annotated[float, typer.Option(help="How long they ask.")] = 60,
    first: Annotated[int, typer.Option(help="Requests after which memory is measured.")] = 500,
    last: Annotated[int, typer.Option(help="Requests after which it is measured again.")] = 5000,
) -> None:
    with tempfile.TemporaryDirectory() as cache:
        server = Server(cache)
        try:
            load = Load(server.address)
            begun = time.time()
            watching = subprocess.Popen(
                [sys.executable, __file__, "watch", server.address, str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
            asyncio.run(load.press(clients, seconds))
            watched, _ = watching.communicate()
            tell(
                load,
                [tuple(map(float, line.split())) for line in watched.splitlines()],
                begun,
                server.compiled,
            )
            compare(load)
            memory = Load(server.address)
            sizes = []
            for count in (first, last):
                asyncio.run(memory.ask_in_all(count))
                sizes.append(server.memory / 2**20)
            for count, size in zip((first, last), sizes, strict=True):
                print(f"memory after {count:,} answers: {size:.0f} MiB ({size / sizes[0] - 1:+.1%})")
        finally:
            server.process.terminate()
            server.process.wait()
            print(f"exit status {server.process.returncode}")


def compare(load: Load) -> None:
    """Compares the server's counts with those of the clients, once nothing is under way."""
    with httpx.Client(timeout=120) as client:
        while client.get(f"{load.address}/health").json()["requests"]:
            time.sleep(0.1)
        text = client.get(f"{load.address}/metrics").text
    replies: collections.Counter[int | str] = collections.Counter()
    outcomes: collections.Counter[str] = collections.Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "autotts_requests_total" and sample.labels["endpoint"] == "chat":
                replies[int(sample.labels["status"])] += int(sample.value)
            elif sample.name == "autotts_questions_total":
                outcomes[sample.labels["outcome"]] += int(sample.value)
    agree = (
        replies == load.statuses
        and outcomes.total() == replies[200]
        and set(outcomes) <= {"answered", "left"}
    )
    print(f"/metrics: {dict(replies)}, {dict(outcomes)}: {'adds up' if agree else 'DOES NOT ADD UP'}")


@app.command()
def watch(address: str, seconds: float) -> None:
    """Asks how the server is, and prints when and how long that took, in seconds."""
    until = time.time() + seconds
    with httpx.Client(timeout=120) as client:
        while (begun := time.time()) < until:
            client.get(f"{address}/health").raise_for_status()
            print(begun, time.time() - begun)
            time.sleep(0.05)


def tell(load: Load, health: list[tuple[float, ...]], begun: float, compiled: float) -> None:
    """Prints what clients were told."""
    print(f"{os.cpu_count()} cores, on which clients and others run too; load {os.getloadavg()[0]:.1f}")
    print(f"statuses: {dict(load.statuses)}; {load.left} clients left in the middle")
    compiled = min(compiled, health[-1][0])
    for name, until in (
        (f"first {compiled - begun:.0f} s, while controllers compile", compiled),
        ("all", np.inf),
    ):
        taken = [duration for at, duration in health if at <= until]
        p50, p99, most = np.percentile(taken, [50, 99, 100])
        print(f"/health, {name}: {len(taken)} times; p50 {p50:.3f} s, p99 {p99:.3f} s, at most {most:.3f} s")


if __name__ == "__main__":
    app()
