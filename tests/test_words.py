"""The prose is idiomatic: phrases that we have replaced do not come back."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    "autotts_jax",
    "docs",
    "examples",
    "benchmarks",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
)
PHRASES = {
    r"tokens an episode": "tokens per episode",
    r"(?<![Tt]here )\bis no (?=(checkpoint|file|list|pytree|program|number|record|array))": "is not a",
    r"plays players": "evaluates controllers",
    r"code of others|[Oo]thers' code": "untrusted code",
    r"by rooms?\b": "by module",
    r"goes on where it was": "resumes",
    r"[Oo]thers' (clients|trainers)": "third-party clients",
    r"tells nothing of others|say nothing of other": "does not generalise",
    r"cannot tell from\s+(no )?chance": "not significant",
    r"that nobody wrote": "new controllers",
    r"what people pay|that people pay": "real cost",
    r"Reading goes on by": "Branches advance by",
    r"What is still to be computed": "Unevaluated arithmetic",
    r"Messages of vLLM": "vLLM errors",
}
"""Patterns, and what to write instead."""


@pytest.mark.parametrize("pattern", PHRASES)
def test_replaced_phrases_do_not_come_back(pattern):
    listed = subprocess.run(
        ["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = []
    for name in listed.stdout.split():
        if Path(name).suffix not in (".npz", ".png", ".parquet", ".csv"):
            text = (ROOT / name).read_text(encoding="utf-8")
            found += [f"{name}:{text.count(chr(10), 0, at.start()) + 1}" for at in re.finditer(pattern, text)]
    assert not found, f"write {PHRASES[pattern]!r}: {found}"


def test_every_command_has_a_summary_that_fits_and_an_example():
    from autotts_jax.cli.app import app, data, discover
    from autotts_jax.cli.summaries import SUMMARIES

    commands = [command for part in (app, data.app, discover.app) for command in part.registered_commands]
    names = {command.name or command.callback.__name__ for command in commands} | {"data", "discover"}
    assert names == set(SUMMARIES)
    assert all(
        len(summary) <= 60 and example.startswith("autotts-jax ") for summary, example in SUMMARIES.values()
    )
