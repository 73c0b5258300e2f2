"""The proposer that has Claude edit files: what the agent is given, what it may do, and what is paid."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotts_jax.discovery import ClaudeProposer, Writer, Written
from autotts_jax.discovery.proposers.claude import FILE, refusal
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.errors import InputError

METRICS = {"objective": 0.5, "cost": 4.0, "width": 8.0}
HISTORY = [
    Written(3, "# three\n", METRICS, "feedback of three"),
    Written(4, "# four\n", METRICS | {"objective": 0.6}, "feedback of four"),
    Written(5, None, None, "no file"),
    Written(6, "# six (\n", None, "SyntaxError"),
]
KEY = "sk-ant-not-to-be-written"


class Agents:
    """Stands in for the SDK: edits the file as it is told, and counts."""

    def __init__(self, edit="# better\n", dollars=0.25, error=None, sleeps=0, **result):
        self.edit, self.dollars, self.error = edit, dollars, error
        self.sleeps, self.result = sleeps, result
        self.asked = []

    async def query(self, prompt, options):
        folder = Path(options["cwd"])
        files = {path.name: path.read_text() for path in folder.rglob("*")}
        self.asked.append((prompt, options, files))
        await asyncio.sleep(self.sleeps)
        if self.error:
            raise self.error
        if self.edit is not None:
            (folder / FILE).write_text(self.edit)
        yield SimpleNamespace(content=[])
        usage = {"input_tokens": 100, "output_tokens": 20, "service_tier": "standard"}
        result = {"total_cost_usd": self.dollars, "usage": usage, "subtype": "success", "is_error": False}
        yield SimpleNamespace(**result | self.result)


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")


def write(agents, folder, history=HISTORY, number=0, **fields):
    return ClaudeProposer(query=agents.query, **{"count": 1, **fields}).write(history, folder, number, 16)


def test_the_agent_is_given_the_history_and_nothing_else(tmp_path):
    agents = Agents()
    (draft,) = write(agents, tmp_path)
    ((prompt, options, files),) = agents.asked
    assert files == {
        "candidate00003.py": "# three\n",
        "candidate00003.md": "feedback of three",
        "candidate00004.py": "# four\n",
        "candidate00004.md": "feedback of four",
        "candidate00005.md": "no file",
        "candidate00006.py": "# six (\n",
        "candidate00006.md": "SyntaxError",
        FILE: "# four\n",
    }
    assert "candidate00004.py" in prompt
    assert set(options["tools"]) == {"Read", "Edit", "Write"}
    assert (options["permission_mode"], options["setting_sources"]) == ("dontAsk", [])
    assert options["env"]["OPENAI_API_KEY"] == ""
    assert not {"PATH", "HOME", "ANTHROPIC_API_KEY"} & set(options["env"])
    assert not Path(options["cwd"]).exists()
    assert (draft.source, draft.parents, draft.dollars, draft.tokens) == ("# better\n", (4,), 0.25, 120)
    write(agents, tmp_path / "new", history=[])
    assert "class FirstFinishers" in agents.asked[1][2][FILE]


@pytest.mark.parametrize(
    ("tool", "asked", "allowed"),
    [
        ("Read", {"file_path": "candidate00003.py"}, True),
        ("Edit", {"file_path": FILE}, True),
        ("Write", {"file_path": "{place}/candidate.py"}, True),
        ("Write", {"file_path": "candidate00003.py"}, False),
        ("Write", {"file_path": "sub/candidate.py"}, False),
        ("Read", {"file_path": "/etc/passwd"}, False),
        ("Read", {"file_path": "/proc/self/environ"}, False),
        ("Read", {"file_path": "../secret"}, False),
        ("Read", {"file_path": "link"}, False),
        ("Read", {"file_path": "nul\0"}, False),
        ("Read", {}, False),
        ("Read", None, False),
        ("Bash", {"command": "ls", "file_path": FILE}, False),
        ("WebFetch", {"url": "http://127.0.0.1"}, False),
    ],
)
def test_tools_reach_the_folder_alone(tmp_path, tool, asked, allowed):
    place = tmp_path.resolve()
    (place / "link").symlink_to("/etc/passwd")
    if asked:
        asked = {name: value.replace("{place}", str(place)) for name, value in asked.items()}
    assert (refusal(tool, asked, place) is None) == allowed


@pytest.mark.parametrize(
    ("agents", "failure", "dollars"),
    [
        (Agents(edit=None), "has not changed candidate.py", 0.25),
        (Agents(is_error=True, errors=["out of turns"]), "the agent failed: out of turns", 0.25),
        (Agents(error=RuntimeError(f"broken {KEY}")), "the agent failed: broken [key]", 1.0),
        (Agents(dollars=None), "without a result", 1.0),
    ],
)
def test_a_failure_of_the_agent_is_a_failed_draft(tmp_path, agents, failure, dollars):
    (draft,) = write(agents, tmp_path)
    assert draft.source is None
    assert failure in draft.failure
    assert draft.dollars == dollars
    assert all(KEY not in path.read_text() for path in tmp_path.rglob("*.json"))


@pytest.mark.parametrize(("dollars", "paid"), [(True, 1.0), (-1, 1.0), (0.5, 0.5)])
def test_what_cannot_be_paid_counts_as_the_dearest(tmp_path, dollars, paid):
    usage = {"input_tokens": -100, "output_tokens": True, "cached_tokens": 7}
    (draft,) = write(Agents(dollars=dollars, usage=usage), tmp_path)
    assert draft.dollars == paid
    assert draft.tokens in (0, 7)


def test_an_agent_that_takes_too_long_is_ended(tmp_path):
    (draft,) = write(Agents(sleeps=60), tmp_path, seconds=0.05)
    assert draft.failure == "the agent was not done after 0.05 s"
    assert draft.dollars == 1.0


def test_agents_are_ended_at_a_signal(tmp_path):
    ended = []

    async def query(*_):
        os.kill(os.getpid(), signal.SIGINT)
        try:
            yield await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        write(SimpleNamespace(query=query), tmp_path)
    assert ended


def test_text_of_an_agent_that_is_no_unicode_is_made_so(tmp_path):
    (draft,) = write(Agents(is_error=True, errors=["\ud800"]), tmp_path)
    assert draft.failure == "the agent failed: ?"


def test_a_limit_in_dollars_holds_though_agents_run_at_a_time(tmp_path):
    agents = Agents(dollars=0.5)
    rounds = 0
    while write(agents, tmp_path, number=rounds, count=3, dollars=0.5, max_dollars=2.2):
        rounds += 1
    assert len(agents.asked) == 4
    assert ClaudeProposer().paid(tmp_path) == 2.0
    assert ClaudeProposer(dollars=0.5, max_dollars=2.2).spent(0, 2.0) == 1


def test_a_killed_run_does_not_pay_twice(tmp_path):
    agents = Agents()
    first = write(agents, tmp_path, count=2)
    assert write(agents, tmp_path, count=2) == first
    assert len(agents.asked) == 2
    path = next((tmp_path / "transcripts" / "claude").glob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"response": None}))
    assert ClaudeProposer().paid(tmp_path) == 1.25
    again = write(agents, tmp_path, count=2)
    assert [draft.source for draft in again] == [draft.source for draft in first]
    assert len(agents.asked) == 3
    assert ClaudeProposer().paid(tmp_path) == 1.5


def test_an_agent_that_cannot_be_started_costs_nothing(tmp_path):
    with pytest.raises(InputError, match="cannot be started"):
        write(Agents(error=InputError("Claude cannot be started")), tmp_path)
    assert ClaudeProposer().paid(tmp_path) == 0


def test_proposers_by_name():
    assert as_proposer("claude") == ClaudeProposer()
    found = as_proposer("claude:some-model")
    assert isinstance(found, Writer)
    assert (found.model, found.name) == ("some-model", "claude:some-model")
    with pytest.raises(InputError, match="max_dollars is 0"):
        ClaudeProposer(max_dollars=0)
    with pytest.raises(InputError, match="dollars is '1', but it must be a finite number"):
        ClaudeProposer(dollars="1")
    with pytest.raises(InputError, match="dollars is 2, but a run may pay 1"):
        ClaudeProposer(dollars=2, max_dollars=1)


CLI = """#!{python}
import json, os, sys
print("2.1.0") if "-v" in sys.argv or "--version" in sys.argv else None

def say(**message):
    print(json.dumps(message), flush=True)

guard = None
for line in sys.stdin:
    told = json.loads(line)
    if told["type"] == "control_request":
        guard = told["request"]["hooks"]["PreToolUse"][0]["hookCallbackIds"][0]
        answer = {{"hook_on_failure_supported": True, "hooks_applied": True}}
        reply = dict(subtype="success", request_id=told["request_id"], response=answer)
        say(type="control_response", response=reply)
    elif told["type"] == "user":
        asked = dict(hook_event_name="PreToolUse", tool_name="Read", tool_input=dict(file_path="/etc/passwd"))
        call = dict(subtype="hook_callback", callback_id=guard, input=asked)
        say(type="control_request", request_id="1", request=call)
    elif told["type"] == "control_response":
        said = json.dumps(dict(
            said=told["response"]["response"], argv=sys.argv[1:], key=os.environ.get("OPENAI_API_KEY")
        ))
        open("candidate.py", "w").write("# " + said)
        say(type="result", subtype="success", duration_ms=1, duration_api_ms=1, is_error=False, num_turns=1,
            session_id="s", total_cost_usd=0.125, usage=dict(input_tokens=7, output_tokens=3))
        break
"""
"""Stands in for Claude Code: asks whether it may read a file elsewhere, and notes what it is told."""


def test_the_sdk_asks_before_each_tool_and_gives_claude_no_other(tmp_path):
    pytest.importorskip("claude_agent_sdk")
    program = tmp_path / "claude"
    program.write_text(CLI.format(python=sys.executable))
    program.chmod(0o755)
    (draft,) = ClaudeProposer(cli=str(program), count=1).write(HISTORY, tmp_path / "run", 0, 16)
    assert draft.failure == ""
    noted = json.loads(draft.source.removeprefix("# "))
    assert noted["said"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert noted["key"] == ""
    said = dict(zip(noted["argv"], noted["argv"][1:], strict=False))
    assert (said["--tools"], said["--permission-mode"]) == ("Read,Edit,Write", "dontAsk")
    assert said["--max-budget-usd"] == "1.0"
    assert (draft.dollars, draft.tokens) == (0.125, 10)
