"""What ``--help`` says beside the options: summaries, examples, and the groups of options."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

SUMMARIES = {
    "evaluate": (
        "Accuracy and cost of controllers on recorded data.",
        "autotts-jax evaluate --data smollm2 --controllers sc@8,cmc@0.5 --out runs/first",
    ),
    "batch": (
        "Many questions under one token budget.",
        "autotts-jax batch --data smollm2 --budgets 20000,40000",
    ),
    "certify": (
        "Certify the cheapest setting whose loss is small.",
        "autotts-jax certify --data smollm2 --controllers sc@16,sc@64 --epsilon 0.3 --out sc.json",
    ),
    "bench": ("Scores on fixed tasks.", "autotts-jax bench --task laptop --controllers sc,cmc,neural"),
    "trace": (
        "One episode, decision by decision.",
        "autotts-jax trace --data smollm2 --controller cmc@0.5 --question 3",
    ),
    "paper": ("Tables and figures of a paper.", "autotts-jax paper autotts --data smollm2 --seeds 5"),
    "train": ("Train a policy.", "autotts-jax train --config examples/quickstart.toml --out runs/policy"),
    "collect": (
        "Sample and probe a model.",
        "autotts-jax collect --model Qwen/Qwen3-0.6B --questions arithmetic:40 --out runs/mine",
    ),
    "answer": (
        "Answer questions with a model, live.",
        'autotts-jax answer --model Qwen/Qwen3-0.6B --controller cmc@0.5 "What is 17 + 25?"',
    ),
    "serve": (
        "Serve controllers behind OpenAI's API.",
        "autotts-jax serve --model Qwen/Qwen3-0.6B --port 8000",
    ),
    "discover": (
        "Search for better controllers.",
        "autotts-jax discover --max-branches 16 --candidates 512 --out runs/search",
    ),
    "show": ("What a search has found.", "autotts-jax discover show runs/search"),
    "export": (
        "A candidate as source code.",
        "autotts-jax discover export runs/search --name First --out first.py",
    ),
    "ablate": (
        "Searches without one of their parts.",
        "autotts-jax discover ablate --seeds 3 --cpu-minutes 1 --out runs/ablation",
    ),
    "distill": (
        "A learned policy as source code.",
        "autotts-jax discover distill neural --data smollm2 --out rules.py",
    ),
    "data": ("Describe, import, convert and check data.", "autotts-jax data info smollm2"),
    "info": ("Statistics of probe matrices.", "autotts-jax data info smollm2"),
    "import": (
        "A probe matrix of your own answers.",
        "autotts-jax data import samples.jsonl --model mine --out mine.npz",
    ),
    "convert": ("Other file formats.", "autotts-jax data convert smollm2 --out smollm2.npz"),
    "validate": ("Check files.", "autotts-jax data validate mine.npz"),
    "check-grading": ("Compare grading with math-verify.", "autotts-jax data check-grading mine.json"),
}
"""A summary, which fits in the list of commands, and an example of each command."""


class _Grouped:
    """Lists the options of a command by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if record := parameter.get_help_record(ctx):
                group = "Arguments" if parameter.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


class GroupedCommand(_Grouped, TyperCommand):
    """A command whose options are listed by group."""


class GroupedGroup(_Grouped, TyperGroup):
    """A command with subcommands, whose options are listed by group."""


def summarise(app: typer.Typer) -> None:
    """Gives the commands of an application their summaries and examples, and lists their options by group.

    Args:
        app: the application; those below it are left as they are.
    """
    for command in app.registered_commands:
        name = str(command.name or getattr(command.callback, "__name__", ""))
        command.cls = GroupedCommand
        if name in SUMMARIES:
            command.short_help, example = SUMMARIES[name]
            command.epilog = f"\b\nExample:\n  {example}"
