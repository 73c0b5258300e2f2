"""What runs a program and its tests, in a sandbox: the program first, then one test at a time."""

from __future__ import annotations

from typing import Any

from autotts_jax.sandbox.channel import Channel


def main(channel: Channel) -> None:
    """Runs what the parent sends, and tells of each whether it raised nothing, until the parent ends.

    The program is run before it could see a test.

    Args:
        channel: to the parent.
    """
    # Not "__main__": what a program does when it is run alone is not part of the answer.
    namespace: dict[str, Any] = {"__name__": "answer"}
    while True:
        says, _ = channel.receive()
        channel.send({"passed": _runs(says["code"], namespace)})


def _runs(code: str, namespace: dict[str, Any]) -> bool:
    try:
        exec(compile(code, "<answer>", "exec"), namespace)
    except BaseException:  # a program may raise SystemExit, or what it derives from BaseException
        return False
    return True
