"""Options that several commands share, and how a command takes a group of them as a dataclass."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from autotts_jax import collect
from autotts_jax.checks import check_float
from autotts_jax.collect.graders import BY_TESTS
from autotts_jax.core.costs import CostModel, CostName
from autotts_jax.errors import InputError
from autotts_jax.parsing import parse_json
from autotts_jax.policies.sealed.worker_pool import Sealing
from autotts_jax.sandbox.process import LEAST_MEMORY, Level, Sandbox

MAX_SEED = 2**32 - 1
GIB = 2**30

EncodingName = Literal["exact", "equiv"]
ProtocolName = Literal["repo100", "paper64"]
EngineName = Literal["vllm", "server", "chat", "simulated"]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Spreads the dataclass parameters of a command over its options, one option a field.

    Returns:
        A function for `typer.Typer.command`, which builds the dataclasses and calls the command.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            fields = typing.get_type_hints(groups[name], include_extras=True)
            spread = [
                (field.name, field.default, _in_panel(fields[field.name], groups[name]))
                for field in dataclasses.fields(groups[name])
            ]
        else:
            spread = [(name, parameter.default, hints[name])]
        parameters += [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for option, default, hint in spread
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _in_panel(hint: Any, group: type) -> Any:
    """The annotation of an option, which is listed under the name of its group."""
    kind, option = typing.get_args(hint)
    listed = copy.copy(option)
    listed.rich_help_panel = f"{group.__name__.removesuffix('Options')} options"
    return Annotated[kind, listed]


def utf8(text: str) -> str:
    """Reads text that an option gives.

    Raises:
        typer.BadParameter: its bytes are not UTF-8, and could not be written to a file.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not UTF-8; write it in UTF-8") from None
    return text


def path(text: str | Path) -> Path:
    """Reads a path that an option or an argument gives.

    Args:
        text: the path; a `Path` where it is the default.

    Raises:
        typer.BadParameter: it is empty, which would be the current folder, or its bytes are not UTF-8.
    """
    if not text:
        raise typer.BadParameter("an empty path names nothing; give a file or a folder")
    return Path(utf8(str(text)))


# --- replay ---------------------------------------------------------------------------------------------

DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="File, folder of <model>/<benchmark>.json, glob, hf://ORG/NAME, or synthetic, "
        "synthetic-signals, synthetic-easy, synthetic-medium, synthetic-hard, smollm2 or smollm2-signals, "
        "which come with the package; repeatable.",
        show_default="synthetic",
    ),
]
EncodingOption = Annotated[
    EncodingName, typer.Option(help="Answers are equal by spelling (exact) or by mathematics (equiv).")
]
ProtocolOption = Annotated[ProtocolName, typer.Option(help="How branch orders are drawn from a seed.")]
BudgetOption = Annotated[
    int | None, typer.Option(metavar="TOKENS", help="Token budget of an episode.", show_default="none")
]
BranchesOption = Annotated[
    int | None,
    typer.Option(
        metavar="W",
        help="Branches that an episode can open.",
        show_default="64, or all that a question has",
        min=1,
    ),
]
BetaOption = Annotated[float | None, typer.Option(metavar="β", help="β of --controller.", show_default=False)]
SettingOption = Annotated[
    Path | None,
    typer.Option(
        "--setting",
        metavar="FILE",
        help="Play the setting of this certificate, as certify writes it.",
        show_default=False,
        parser=path,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write results here.", show_default="no files", parser=path),
]
LoggersOption = Annotated[
    str,
    typer.Option(
        metavar="NAME,...",
        help="Show metrics in these as well: tensorboard, wandb, mlflow, trackio.",
    ),
]


def named_loggers(text: str) -> list[str]:
    """The names that ``--loggers`` gives."""
    return [name.strip() for name in text.split(",") if name.strip()]


CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep compiled programs in a per-user folder.")
]


@dataclasses.dataclass(frozen=True)
class SandboxOptions:
    """The options that say in what kind of process somebody's code is run, and within which limits."""

    sandbox: Annotated[
        Level,
        typer.Option(
            help="How code from files and modules runs: in a process that the kernel confines, in a process "
            "alone, or, if it is your own, in this process, unchecked (none; programs keep theirs).",
        ),
    ] = "kernel"
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time that such code may take in all to play; a player that takes longer has no results.",
            show_default="none",
        ),
    ] = None
    memory_limit: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Memory that all such processes may hold together.", show_default="4"
        ),
    ] = None

    def limits(self, defaults: Sandbox | None = None) -> Sandbox:
        """What the options say.

        Raises:
            InputError: a limit is out of range.
        """
        given: dict[str, Any] = {"level": self.sandbox}
        if self.time_limit is not None:
            given["wall_seconds"] = check_float("--time-limit", self.time_limit, above=0)
        if self.memory_limit is not None:
            given["memory"] = int(check_float("--memory-limit", self.memory_limit, LEAST_MEMORY / GIB) * GIB)
        return dataclasses.replace(defaults or Sandbox(), **given)


@dataclasses.dataclass(frozen=True)
class SealOptions(SandboxOptions):
    """The options that say how somebody's code is run."""

    spellings: Annotated[
        bool, typer.Option("--spellings", help="Show programs answers as they are spelled, not as labels.")
    ] = False

    def sealing(self) -> Sealing:
        """What the options say.

        Raises:
            InputError: a limit is out of range.
        """
        return Sealing(self.spellings, self.limits())


@dataclasses.dataclass(frozen=True)
class CostOptions:
    """The options that say what an episode costs."""

    cost: Annotated[
        CostName,
        typer.Option(
            help="Cost in the objective, the tables and the frontiers: intervals, tokens, latency in "
            "seconds, flops, kv in byte-seconds of keys and values, or usd."
        ),
    ] = "intervals"
    hardware: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="NAME",
            help="Machine that the model runs on.",
            show_default=str(CostModel.hardware),
        ),
    ] = None
    cost_model: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="MODEL",
            help="Model whose size counts, or for usd whose price, as openrouter:qwen/qwen3-8b.",
            show_default="that of the data",
        ),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Sequences that the machine decodes at once, for all questions.",
            show_default="the question's own",
            min=1,
        ),
    ] = None
    prefix_cached: Annotated[
        bool,
        typer.Option(
            "--prefix-cached/--black-box",
            help="Whether the engine keeps prefixes, or a probe reads its prefix again.",
        ),
    ] = True

    def model(self) -> CostName | CostModel:
        """What the options say.

        Raises:
            InputError: a name is unknown, or an option has nothing to do with the cost.
        """
        if self.cost in ("intervals", "tokens"):
            if self != CostOptions(self.cost):
                raise InputError(
                    "--hardware, --cost-model, --batch and --black-box say how latency, flops, kv or usd are "
                    f"counted, but --cost is {self.cost}; choose one of those, or leave them out"
                )
            return self.cost
        hardware = CostModel.hardware if self.hardware is None else self.hardware
        return CostModel(self.cost, hardware, self.cost_model, self.batch, self.prefix_cached)


# --- language models ------------------------------------------------------------------------------------

AnswersOption = Annotated[
    str,
    typer.Option(
        parser=utf8,
        metavar="RULE",
        help="How answers are found: auto (the last box, #### or 'answer is', else the last number), boxed, "
        "number, choice, code, regex:PATTERN, or module:function.",
    ),
]


GraderOption = Annotated[
    str,
    typer.Option(
        parser=utf8,
        metavar="RULE",
        help="When answers are equal: as mathematics (math), the same with 9 * 3 being 27 (arithmetic), as "
        "programs by the question's tests (code; code-process where the kernel cannot confine them), or by "
        "module:function, which gives canonical forms.",
    ),
]


@dataclasses.dataclass(frozen=True)
class QuestionOptions:
    """The options that say where in a source the questions are."""

    text_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of the questions.", show_default="found by name"),
    ] = None
    gold_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of the answers.", show_default="found by name")
    ] = None
    split: Annotated[str, typer.Option(metavar="NAME", help="Split of a Hugging Face dataset.")] = "test"
    limit: Annotated[
        int | None,
        typer.Option(metavar="Q", help="Take the first questions only.", show_default="all", min=1),
    ] = None

    def read(self, source: str, grader: str, needs_gold: bool = True) -> list[collect.Problem]:
        """Reads questions.

        Args:
            source: what `autotts_jax.collect.read_questions` takes.
            grader: what compares answers with the reference answers.
            needs_gold: whether each must have a reference answer.

        Raises:
            InputError: there are none, or they are wrong.
        """
        return collect.read_questions(
            source,
            text_column=self.text_column,
            gold_column=self.gold_column,
            split=self.split,
            limit=self.limit,
            needs_gold=needs_gold,
            whole_gold=grader in BY_TESTS,
        )

    def read_completions(
        self, source: str, grader: str, completion_column: str | None
    ) -> collect.Completions:
        """Reads completions of questions.

        Raises:
            InputError: there are none, or they are wrong.
        """
        return collect.read_completions(
            source,
            text_column=self.text_column,
            gold_column=self.gold_column,
            completion_column=completion_column,
            split=self.split,
            limit=self.limit,
            whole_gold=grader in BY_TESTS,
        )


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """The options that say which model answers, and where it runs."""

    model: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="MODEL",
            help="The model's folder or hub id, or a server's name for it.",
            show_default="none, for the engine simulated",
        ),
    ] = None
    engine: Annotated[
        EngineName,
        typer.Option(
            help="vLLM in this process, a server with OpenAI's completions or only its chat completions "
            "(--base-url), or simulated: no model, to try things."
        ),
    ] = "vllm"
    base_url: Annotated[
        str | None,
        typer.Option(parser=utf8, metavar="URL", help="Address of the server, with /v1.", show_default=False),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Key of the server.",
            envvar="OPENAI_API_KEY",
            show_envvar=True,
            show_default=False,
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="MODEL",
            help="Folder or hub id of the tokenizer.",
            show_default="that of --model",
        ),
    ] = None
    chat_kwargs: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="JSON",
            help='Arguments of the model\'s chat template, as {"enable_thinking": false}.',
            show_default="none",
        ),
    ] = None
    think_end: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="TEXT",
            help="Text that ends the model's thinking; empty if it does not think.",
            show_default="as the chat template tells",
        ),
    ] = None
    engine_option: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-option",
            parser=utf8,
            metavar="NAME=VALUE",
            help="An argument of the engine, as of vllm.LLM: max_model_len=8192; repeatable.",
            show_default=False,
        ),
    ] = None

    @property
    def model_name(self) -> str:
        """The name of the model without the folders or the organisation before it."""
        return Path(self.model).name if self.model else self.engine

    @property
    def opening(self) -> str:
        """What is done while the engine opens, to be shown."""
        return "asking the server" if self.engine in ("server", "chat") else "loading the model"

    def spec(self) -> collect.EngineSpec:
        """What the completions of the engine depend on.

        Raises:
            InputError: an engine option is not written as NAME=VALUE, or the chat arguments are not JSON.
        """
        return collect.engine_spec(self.engine, self.model, self._arguments(), self.api_key)

    def opener(self, waited_for: bool = False) -> Callable[[], collect.Engine]:
        """What opens the engine; it can be sent to another process.

        Raises:
            InputError: an engine option is not written as NAME=VALUE, or the chat arguments are not JSON.
        """
        options = self._arguments()
        if self.engine in ("server", "chat") and waited_for:
            options = {**collect.QUICK_TO_FAIL, **options}
        return functools.partial(
            collect.open_engine, self.engine, self.model, options, self.base_url, self.api_key
        )

    def context_length(self) -> int | None:
        """The tokens that a prompt and its completion may have together, None if the model does not tell.

        Raises:
            InputError: an engine option is not written as NAME=VALUE, or there is no such engine.
            EngineError: a server does not answer.
        """
        options = self._arguments()
        return collect.context_length(self.engine, self.model, options, self.base_url, self.api_key)

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the engine."""
        arguments = _engine_arguments(self.engine_option or ())
        chat = {"tokenizer": self.tokenizer, "chat_kwargs": self._read_kwargs(), "think_end": self.think_end}
        return arguments | {name: value for name, value in chat.items() if value is not None}

    def _read_kwargs(self) -> dict[str, Any] | None:
        if self.chat_kwargs is None:
            return None
        try:
            kwargs = parse_json(self.chat_kwargs)
        except ValueError as error:
            raise InputError(f"--chat-kwargs is not JSON: {error}") from error
        if not isinstance(kwargs, dict):
            raise InputError(f'--chat-kwargs is {self.chat_kwargs}; write an object, as {{"name": value}}')
        return kwargs


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """The options that say how branches are sampled and probed."""

    interval: Annotated[int, typer.Option(metavar="Δ", help="Tokens between two probes.", min=1)] = 500
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="T",
            help="Most tokens of a branch.",
            show_default="4/5 of the model's context, at most 32768",
            min=1,
        ),
    ] = None
    temperature: Annotated[float, typer.Option(metavar="τ", help="Temperature of the branches.")] = 0.7
    top_p: Annotated[float, typer.Option(metavar="p", help="Nucleus that branches are sampled from.")] = 1.0
    top_k: Annotated[
        int, typer.Option(metavar="k", help="Most likely tokens to sample from; 0 for all.", min=0)
    ] = 0
    min_p: Annotated[
        float, typer.Option(metavar="p", help="Least probability, as a share of the most likely token's.")
    ] = 0.0
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all that is drawn.", min=0)] = 0
    system: Annotated[
        str | None,
        typer.Option(parser=utf8, metavar="TEXT", help="System prompt.", show_default="the model's own"),
    ] = None
    prompt_template: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="TEXT",
            help="The user's message, with {question} where the question is.",
            show_default="the question alone",
        ),
    ] = None
    probe_suffix: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="TEXT",
            help="Text put after a prefix to force an answer.",
            show_default="the end of the thinking, if the model thinks, and: The final answer is \\boxed{",
        ),
    ] = None
    probe_tokens: Annotated[int, typer.Option(metavar="T", help="Most tokens of a forced answer.", min=1)] = (
        32
    )
    probe_tail: Annotated[
        int,
        typer.Option(
            metavar="T", help="Tokens after a forced answer, in which the signal probe_hedge is seen.", min=0
        ),
    ] = 0

    def sampling(
        self,
        engine: EngineOptions,
        probes_per_prefix: int = 1,
        signals: Collection[str] = (),
        collection: Path | None = None,
    ) -> collect.Sampling:
        r"""The settings; ``\n`` in texts, as a shell passes it, stands for a new line.

        Raises:
            InputError: a setting is out of range.
        """
        from autotts_jax.collect.signals import PROBE_HEDGE
        from autotts_jax.replay.signals import SIGNALS

        kept = [name for name in SIGNALS if name in signals and (self.probe_tail or name != PROBE_HEDGE)]
        return collect.Sampling(
            interval=self.interval,
            max_tokens=self._max_tokens(engine, collection),
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            system=self.system,
            prompt_template=_with_lines(self.prompt_template),
            suffix=_with_lines(self.probe_suffix),
            probe_tokens=self.probe_tokens,
            probes_per_prefix=probes_per_prefix,
            probe_tail=self.probe_tail,
            signals=tuple(kept),
        )

    def check_unsampled(self) -> None:
        """Checks that nothing is said of how tokens are sampled, because none are.

        Raises:
            InputError: something is.
        """
        names = ("temperature", "top_p", "top_k", "min_p", "seed")
        if said := [name for name in names if getattr(self, name) != getattr(SamplingOptions, name)]:
            options = ", ".join("--" + name.replace("_", "-") for name in said)
            raise InputError(
                f"{options}: with --from-texts nothing is sampled, unless --probes-per-prefix is above 1; "
                "leave this out"
            )

    def _max_tokens(self, engine: EngineOptions, collection: Path | None) -> int:
        if self.max_tokens is not None:
            return self.max_tokens
        if collection is not None and collect.is_collection(collection):
            return collect.Store(collection).plan.sampling.max_tokens
        return collect.fitting_tokens(engine.context_length())


@dataclasses.dataclass(frozen=True)
class LimitOptions:
    """The options that limit a live episode."""

    max_branches: Annotated[int, typer.Option(metavar="W", help="Branches that can be opened.", min=1)] = 64
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Token budget of a question.", show_default="none", min=0),
    ] = None


def _with_lines(text: str | None) -> str | None:
    r"""A text in which ``\n`` stands for a new line."""
    return None if text is None else text.replace("\\n", "\n")


def _engine_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """The arguments that ``NAME=VALUE`` texts give an engine: JSON values, else strings."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--engine-option {text}: write it as NAME=VALUE")
        try:
            arguments[name] = parse_json(value)
        except ValueError:
            arguments[name] = value
    return arguments
