"""Claude as a proposer of whole files: an agent that edits one file in a folder that shows what was tried.

The folder has the files that the search has tried, each with its feedback, and the file that the agent edits;
no data and no gold answers. The agent has tools to read and to edit files; whatever is outside the folder is
refused to it, and so is every other tool.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autotts_jax.checks import check_float, check_int
from autotts_jax.discovery.archive.transcripts import TRANSCRIPTS, Transcript
from autotts_jax.discovery.judging.measuring import MAX_SOURCE
from autotts_jax.discovery.population import Written
from autotts_jax.discovery.proposers.prompts import CONTRACT, code_of, prompt
from autotts_jax.discovery.proposers.protocol import Draft
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.keys import hidden
from autotts_jax.parsing import parse_json

CLAUDE = "claude"
"""Name of the proposer, with or without a model after a colon."""

KEY = "ANTHROPIC_API_KEY"
"""The variable of the environment that the API key comes from, unless one is signed in."""

KEPT = ("HOME", "LANG", "PATH", "TMPDIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")
"""Variables of the environment that the agent's process gets, besides those of `PREFIXES`."""

PREFIXES = ("ANTHROPIC_", "CLAUDE_")

FILE = "candidate.py"
"""The file that the agent edits."""

TOOLS = ("Read", "Edit", "Write")
"""The agent's tools."""

MAX_FILES = 40
"""How many of the files that were tried the folder holds: the latest."""

_TASK = """\
Do not reply with the file: edit {file}, which {begins}. Make it a better candidate; the file must be whole
when you stop. You can read and edit, but not run it. These files show what was tried, each with its feedback:

{files}

Feedback has the traces of episodes in which a candidate loses. Stop when {file} is done."""

Query = Callable[[str, dict[str, Any]], AsyncIterator[Any]]
"""Runs an agent: given a prompt and the options of `ClaudeAgentOptions`, gives the SDK's messages."""


@dataclasses.dataclass(frozen=True)
class ClaudeProposer:
    """Has Claude edit files, by the Claude Agent SDK.

    Attributes:
        model: the model; the SDK's own choice if None.
        count: files that a round asks for, all at a time.
        dollars: dollars that one file may cost.
        max_dollars: dollars that a run may pay Claude.
        turns: turns of an agent at most.
        seconds: seconds that an agent may take.
        cli: the Claude Code program; the one that the SDK brings if None.
        query: runs an agent; by the SDK if None.

    Raises:
        InputError: the arguments do not fit together.
    """

    model: str | None = None
    count: int = 2
    dollars: float = 1.0
    max_dollars: float = 10.0
    turns: int = 40
    seconds: float = 1200.0
    cli: str | None = None
    query: Query | None = None

    def __post_init__(self) -> None:
        for name in ("count", "turns"):
            check_int(name, getattr(self, name), 1)
        for name in ("dollars", "max_dollars", "seconds"):
            check_float(name, getattr(self, name), above=0)
        if self.dollars > self.max_dollars:
            raise InputError(
                f"dollars is {self.dollars:g}, but a run may pay {self.max_dollars:g} (max_dollars); one "
                "file may cost that at most"
            )

    @property
    def name(self) -> str:
        """Its name in records."""
        return CLAUDE if self.model is None else f"{CLAUDE}:{self.model}"

    def spent(self, tokens: float, dollars: float) -> float:  # noqa: ARG002
        """Computes the share of the dollars that is spent; less than one file's is none."""
        return min(dollars / max(self.max_dollars - self.dollars, 1e-9), 1.0) if dollars else 0.0

    def paid(self, folder: Path) -> float:
        """Adds up the dollars that a run has paid; calls whose replies were lost count as the dearest.

        Args:
            folder: the run's folder.

        Raises:
            DataError: a transcript is damaged.
        """
        paths = sorted((folder / TRANSCRIPTS / CLAUDE).glob("*.json"))
        return sum(Transcript.read(path).cost[1] for path in paths)

    def write(
        self,
        tried: Sequence[Written],
        folder: Path,
        round: int,  # noqa: A002
        max_branches: int,
        beta: bool = True,
    ) -> list[Draft]:
        """Has as many files edited as the run can still pay for, all at a time.

        Raises:
            InputError: the agent cannot be started.
            DataError: a transcript is damaged.
        """
        spent, kept = self.paid(folder), []
        for place in range(self.count):
            task = _task(tried, place, max_branches, beta)
            call = self._call(task, folder / TRANSCRIPTS / CLAUDE, f"round{round:05}-{place}")
            if call.transcript.response is not None:
                kept.append(call)
            elif spent + self.dollars <= self.max_dollars:
                kept.append(call)
                spent += self.dollars
        with needs("claude", f"the proposer {CLAUDE}"):
            from anyio.from_thread import start_blocking_portal
        # In a thread of its own, as a notebook's has a loop; Ctrl-C ends the agents.
        with start_blocking_portal() as portal:
            done = portal.call(self._run_all, kept)
        return [_draft(call, transcript) for call, transcript in zip(kept, done, strict=True)]

    # --- one file ------------------------------------------------------------------------------------------

    def _call(self, task: _Task, folder: Path, name: str) -> _Call:
        files = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in task.files.items()}
        request = {"model": self.model, "system": task.system, "prompt": task.prompt, "files": files}
        return _Call(task, *Transcript.of_call(request, (0, self.dollars), folder, name))

    async def _run_all(self, calls: Sequence[_Call]) -> list[Transcript]:
        """Runs agents at a time; where one fails, the others are let end."""
        done = await asyncio.gather(*map(self._run, calls), return_exceptions=True)
        for failure in done:
            if isinstance(failure, BaseException):
                raise failure
        return [one for one in done if isinstance(one, Transcript)]

    async def _run(self, call: _Call) -> Transcript:
        """Runs an agent, unless it has run before."""
        if call.transcript.response is not None:
            return call.transcript
        key = os.environ.get(KEY, "")
        pending = call.transcript.begin(call.path)
        with tempfile.TemporaryDirectory(prefix="candidate-") as name:
            # Resolved, as the paths of tools are before they are compared with it.
            place = Path(name).resolve()
            for file, text in call.task.files.items():
                (place / file).write_text(text, encoding="utf-8")
            try:
                response = await self._edit(call.task, place)
            except InputError:
                pending.withdraw(call.path)
                raise
        text = json.dumps(response, ensure_ascii=False).encode(errors="replace").decode()
        response = parse_json(hidden(text, key))
        answered = dataclasses.replace(pending, response=response)
        answered.write(call.path)
        return answered

    async def _edit(self, task: _Task, place: Path) -> dict[str, Any]:
        options: dict[str, Any] = {
            "model": self.model,
            "system_prompt": task.system,
            "cwd": str(place),
            "cli_path": self.cli,
            "tools": list(TOOLS),
            "permission_mode": "dontAsk",
            "setting_sources": [],
            "strict_mcp_config": True,
            "max_turns": self.turns,
            "max_budget_usd": self.dollars,
            "env": dict.fromkeys(_not_for_agents(os.environ), ""),
        }
        response: dict[str, Any] = {"used": None}
        try:
            async with asyncio.timeout(self.seconds):
                async for message in (self.query or _by_sdk)(task.prompt, options):
                    if hasattr(message, "total_cost_usd"):
                        response |= _result(message)
        except TimeoutError:
            return response | {"failure": f"the agent was not done after {self.seconds:g} s"}
        except InputError:
            raise
        except Exception as error:
            return response | {"failure": f"the agent failed: {error!s:.300}"}
        if "failure" in response:
            return response
        if response["used"] is None:
            return response | {"failure": "the agent ended without a result"}
        return response | _edited(place / FILE, task.files[FILE])


class _Task(NamedTuple):
    """What an agent is asked, the files in its folder, and the candidate that it starts from."""

    system: str
    prompt: str
    files: dict[str, str]
    parents: tuple[int, ...]


class _Call(NamedTuple):
    """An agent that is to run, its transcript's file, and what is known of it."""

    task: _Task
    path: Path
    transcript: Transcript


def _task(tried: Sequence[Written], place: int, max_branches: int, beta: bool) -> _Task:
    asked = prompt(tried, place, max_branches, beta)
    shown = list(tried)[-MAX_FILES:]
    files: dict[str, str] = {}
    for written in tried:
        if written in shown or written.number in asked.parents:
            name = f"candidate{written.number:05}"
            files |= {} if written.source is None else {f"{name}.py": written.source}
            files[f"{name}.md"] = written.feedback
    parents = asked.parents[:1]
    begins = "holds an example"
    files[FILE] = code_of(CONTRACT.read_text(encoding="utf-8")) or ""
    if parents:
        begins = f"begins as candidate{parents[0]:05}.py, of those with the highest objective"
        files[FILE] = files[f"candidate{parents[0]:05}.py"]
    names = "\n".join(name for name in files if name != FILE) or "(none yet)"
    text = _TASK.format(file=FILE, begins=begins, files=names)
    return _Task(asked.messages[0]["content"], text, files, parents)


def _not_for_agents(environment: Iterable[str]) -> list[str]:
    """The variables, keys of others among them, that are emptied for the agent's process."""
    return [name for name in environment if name not in KEPT and not name.startswith(PREFIXES)]


def _result(message: Any) -> dict[str, Any]:
    """Extracts what a transcript keeps from the SDK's message about the result of an agent."""
    dollars, usage = message.total_cost_usd, getattr(message, "usage", None) or {}
    if type(dollars) not in (int, float) or not 0 <= dollars < float("inf"):
        dollars = None
    tokens = sum(
        count
        for name, count in usage.items()
        if name.endswith("_tokens") and type(count) is int and count >= 0
    )
    response: dict[str, Any] = {"used": None if dollars is None else [tokens, dollars]}
    if getattr(message, "is_error", False):
        errors = getattr(message, "errors", None) or [getattr(message, "result", None) or message.subtype]
        why = "; ".join(map(str, errors))
        response["failure"] = f"the agent failed: {why!s:.300}"
    return response


def _edited(path: Path, before: str) -> dict[str, Any]:
    """The file after the agent has edited it."""
    try:
        with path.open("rb") as file:
            source = file.read(MAX_SOURCE + 1).decode(errors="replace")
    except OSError:
        return {"failure": f"the agent has left no {FILE}"}
    if source == before:
        return {"failure": f"the agent has not changed {FILE}"}
    return {"text": source}


def _draft(call: _Call, transcript: Transcript) -> Draft:
    assert transcript.response is not None
    tokens, dollars = transcript.cost
    failure = transcript.response.get("failure", "")
    name = f"{CLAUDE}/{call.path.name}"
    return Draft(transcript.response.get("text"), failure, call.task.parents, name, int(tokens), dollars)


# --- the SDK --------------------------------------------------------------------------------------------


async def _by_sdk(text: str, options: dict[str, Any]) -> AsyncIterator[Any]:
    """Runs an agent by the SDK, which asks `refusal` before each use of a tool."""
    with needs("claude", f"the proposer {CLAUDE}"):
        import claude_agent_sdk as sdk
    place = Path(options["cwd"])

    async def guard(asked: Any, _: str | None, __: Any) -> Any:
        why = refusal(asked.get("tool_name"), asked.get("tool_input"), place)
        said = {"permissionDecision": "allow"} if why is None else {"permissionDecision": "deny"}
        reason = {} if why is None else {"permissionDecisionReason": why}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **said, **reason}}

    hooks = {"PreToolUse": [sdk.HookMatcher(hooks=[guard], on_failure="block")]}
    try:
        async for message in sdk.query(prompt=text, options=sdk.ClaudeAgentOptions(hooks=hooks, **options)):
            yield message
    except sdk.CLIConnectionError as error:
        raise InputError(
            f"Claude cannot be started: {error!s:.300}; install 'autotts-jax[claude]'"
        ) from error


def refusal(tool: Any, asked: Any, place: Path) -> str | None:
    """Decides whether an agent may use a tool.

    Args:
        tool: the tool's name.
        asked: what it is called with.
        place: the agent's folder, resolved.

    Returns:
        Why not; None where it may.
    """
    name = asked.get("file_path") if isinstance(asked, Mapping) else None
    if tool not in TOOLS or not isinstance(name, str):
        return f"there are no tools but {', '.join(TOOLS)}"
    try:
        path = (place / name).resolve()
    except (OSError, ValueError, RuntimeError):
        return "this is not a file"
    if tool == "Read":
        return None if path.parent == place else "only the files in this folder can be read"
    return None if path == place / FILE else f"only {FILE} can be edited"
