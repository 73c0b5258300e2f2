"""The commands that need a language model: collect, answer and serve."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotts_jax.cli.console import console, working
from autotts_jax.errors import InputError

if TYPE_CHECKING:
    from autotts_jax.collect.collector import Progress
    from autotts_jax.collect.trajectories import Sampling
    from autotts_jax.live.answer import Answer, Decision

DEFAULT_CONTROLLER = "cmc@0.5"


class EngineName(enum.StrEnum):
    """Where the model runs."""

    vllm = "vllm"
    server = "server"
    simulated = "simulated"


ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The model's folder or hub id, or a server's name for it.",
        show_default="none, for the engine simulated",
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        help="vLLM in this process, a server with OpenAI's completions (--base-url), or simulated: no model, "
        "to try things."
    ),
]
BaseUrlOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Address of the server, with /v1.", show_default=False)
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Key of the server.",
        envvar="OPENAI_API_KEY",
        show_envvar=True,
        show_default=False,
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-option",
        metavar="NAME=VALUE",
        help="An argument of the engine, as of vllm.LLM: max_model_len=8192; repeatable.",
        show_default=False,
    ),
]
IntervalOption = Annotated[int, typer.Option(metavar="Δ", help="Tokens between two probes.", min=1)]
MaxTokensOption = Annotated[int, typer.Option(metavar="T", help="Tokens of a branch at most.", min=1)]
TemperatureOption = Annotated[float, typer.Option(metavar="τ", help="Temperature of the branches.")]
TopPOption = Annotated[float, typer.Option(metavar="p", help="Nucleus that branches are sampled from.")]
SeedOption = Annotated[int, typer.Option(metavar="S", help="Seed of all that is drawn.", min=0)]
SystemOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="System prompt.", show_default="the model's own")
]
SuffixOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="What is put after a prefix to force an answer.",
        show_default="</think>, if the model thinks, and: The final answer is \\boxed{",
    ),
]
ProbeTokensOption = Annotated[
    int, typer.Option(metavar="T", help="Tokens of a forced answer at most.", min=1)
]
AnswersOption = Annotated[
    str,
    typer.Option(
        metavar="RULE",
        help="How answers are found: auto (the last box, else the last number), boxed, number, choice, "
        "regex:PATTERN, or module:function.",
    ),
]


def collect(
    questions: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="JSONL, CSV or Parquet file, Hugging Face dataset id, or arithmetic[:COUNT[:SEED]].",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The collection's folder.", show_default=False)],
    model: ModelOption = None,
    engine: EngineOption = EngineName.vllm,
    base_url: BaseUrlOption = None,
    api_key: ApiKeyOption = None,
    engine_option: OptionsOption = None,
    branches: Annotated[int, typer.Option(metavar="N", help="Branches of each question.", min=1)] = 128,
    interval: IntervalOption = 500,
    max_tokens: MaxTokensOption = 32_768,
    temperature: TemperatureOption = 0.7,
    top_p: TopPOption = 1.0,
    seed: SeedOption = 0,
    system: SystemOption = None,
    probe_suffix: SuffixOption = None,
    probe_tokens: ProbeTokensOption = 32,
    probes_per_prefix: Annotated[
        int, typer.Option(metavar="P", help="Forced answers of each prefix; several are sampled.", min=1)
    ] = 1,
    answers: AnswersOption = "auto",
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="Keep the mean log-probability of each interval.")
    ] = False,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Keep what the branches write.")] = False,
    text_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of the questions.", show_default="found by name"),
    ] = None,
    gold_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of the answers.", show_default="found by name")
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="Split of a Hugging Face dataset.")] = "test",
    limit: Annotated[
        int | None,
        typer.Option(metavar="Q", help="Take the first questions only.", show_default="all", min=1),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What results call the model.", show_default="end of --model"),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What results call the questions.", show_default="by --questions"),
    ] = None,
    chunk: Annotated[
        int, typer.Option(metavar="N", help="Branches that are written and kept together.", min=1)
    ] = 16,
    in_flight: Annotated[
        int, typer.Option(metavar="N", help="Branches that the engine writes at once.", min=1)
    ] = 256,
    ray: Annotated[
        int | None,
        typer.Option(metavar="N", help="Have N engines on a Ray cluster do it.", show_default="no", min=1),
    ] = None,
    ray_gpus: Annotated[float, typer.Option(metavar="G", help="GPUs that each of them takes.", min=0)] = 1,
) -> None:
    """Sample and probe trajectories of a model: a new probe matrix.

    What was collected is kept unit by unit; the same command goes on where it was stopped. At the end the
    folder has matrix.npz and matrix.json, and evaluate takes it as --data.
    """
    arguments = locals()
    with working(f"what was collected is in {out}; the same command goes on") as tell:
        from autotts_jax.collect import answers as extraction
        from autotts_jax.collect.collector import LocalWorkers
        from autotts_jax.collect.collector import collect as make
        from autotts_jax.collect.engines import open_engine
        from autotts_jax.collect.questions import read_questions
        from autotts_jax.collect.ray_workers import RayWorkers
        from autotts_jax.collect.store import Plan, Store, made_with

        extraction.extractor(answers)
        asked = read_questions(
            questions, text_column=text_column, gold_column=gold_column, split=split, limit=limit
        )
        plan = Plan(
            model=model_name or (Path(model).name if model else engine.value),
            benchmark=benchmark or Path(questions.partition(":")[0]).stem,
            questions=tuple(asked),
            num_branches=branches,
            chunk=chunk,
            sampling=_sampling(arguments),
            answers=answers,
            keep_text=keep_text,
        )
        command = ["autotts-jax", *sys.argv[1:]]
        with Store.writing(out, plan, made_with(engine.value, command)) as store:
            if store.missing():
                tell("loading the model", 0, 0)
                open_it = functools.partial(
                    open_engine, engine.value, model, _options(engine_option), base_url, api_key
                )
                if ray is not None:
                    workers = RayWorkers(open_it, ray, in_flight, num_gpus=ray_gpus)
                    make(store, workers, _teller(tell))
                else:
                    with contextlib.closing(open_it()) as opened:
                        make(store, LocalWorkers(opened, in_flight), _teller(tell))
            tell("grading", 0, 0)
            dataset = store.export()
    print(f"wrote matrix.npz, matrix.json to {out}: {len(dataset)} questions of {branches} branches")
    print(f"evaluate it: autotts-jax evaluate --data {out}")


def answer(
    question: Annotated[str, typer.Argument(metavar="QUESTION", show_default=False)],
    model: ModelOption = None,
    controller: Annotated[
        str,
        typer.Option(metavar="NAME[@VALUE]", help="A controller, as in evaluate."),
    ] = DEFAULT_CONTROLLER,
    beta: Annotated[
        float | None, typer.Option(metavar="β", help="β of --controller.", show_default=False)
    ] = None,
    engine: EngineOption = EngineName.vllm,
    base_url: BaseUrlOption = None,
    api_key: ApiKeyOption = None,
    engine_option: OptionsOption = None,
    interval: IntervalOption = 500,
    max_tokens: MaxTokensOption = 32_768,
    temperature: TemperatureOption = 0.7,
    top_p: TopPOption = 1.0,
    seed: SeedOption = 0,
    system: SystemOption = None,
    probe_suffix: SuffixOption = None,
    probe_tokens: ProbeTokensOption = 32,
    answers: AnswersOption = "auto",
    max_branches: Annotated[int, typer.Option(metavar="W", help="Branches that can be opened.", min=1)] = 64,
    budget: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Token budget.", show_default="none", min=0)
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print each decision.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Answer a question with a model under a controller, and say what it took."""
    arguments = locals()
    with working() as tell:
        from autotts_jax.collect.engines import open_engine
        from autotts_jax.collect.grading import Grader
        from autotts_jax.core import devices
        from autotts_jax.live import answer, programs
        from autotts_jax.policies.players import select

        devices.configure()
        chosen = select(controller if beta is None else f"{controller.partition('@')[0]}@{beta!r}")
        if len(chosen.controllers) != 1 and chosen.program is None:
            raise InputError(
                f"--controller {controller} is no single controller; give one at one value, as cmc@0.5"
            )
        sampling = _sampling(arguments)
        tell("loading the model", 0, 0)

        def on_decision(decision: Decision) -> None:
            tell("answering", 0, 0, _line(decision))

        opened = open_engine(engine.value, model, _options(engine_option), base_url, api_key)
        with contextlib.closing(opened), Grader(1) as grader:
            tell("answering", 0, 0)
            common: dict[str, Any] = {
                "sampling": sampling,
                "answers": answers,
                "max_branches": max_branches,
                "budget": budget,
            }
            if chosen.program is not None:
                config = None if chosen.values[0] is None else {"beta": chosen.values[0]}
                found = programs.answer(opened, question, chosen.program, config, grader, **common)
            else:
                found = answer.answer(
                    opened, question, chosen.controllers[0], grader, on_decision=on_decision, **common
                )
    if json_out:
        print(json.dumps(_as_json(found), ensure_ascii=False))
        return
    if trace:
        for decision in found.decisions:
            console().print(_line(decision))
    print(found.answer if found.answer is not None else "no answer")
    usage = found.usage
    print(
        f"{chosen.labels[0]}: {len(found.texts)} branches, {found.tokens:,} tokens charged, "
        f"{usage.generated:,} written and {usage.forced:,} more for {usage.probes:,} probes; "
        f"stopped: {found.stop.name.lower().replace('_', ' ')}",
        file=sys.stderr,
    )


def serve(
    model: ModelOption = None,
    engine: EngineOption = EngineName.vllm,
    base_url: BaseUrlOption = None,
    api_key: ApiKeyOption = None,
    engine_option: OptionsOption = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What clients call the model.", show_default="end of --model"),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port; 0 for a free one.", min=0, max=65535)
    ] = 8000,
    require_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Key that clients have to present.",
            envvar="AUTOTTS_API_KEY",
            show_default="none",
        ),
    ] = None,
    max_requests: Annotated[
        int, typer.Option(metavar="N", help="Questions that are answered at once; more get 429.", min=1)
    ] = 32,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time that a question may take.")] = 600,
    interval: IntervalOption = 500,
    max_tokens: MaxTokensOption = 32_768,
    temperature: TemperatureOption = 0.7,
    top_p: TopPOption = 1.0,
    seed: SeedOption = 0,
    system: SystemOption = None,
    probe_suffix: SuffixOption = None,
    probe_tokens: ProbeTokensOption = 32,
    answers: AnswersOption = "auto",
    max_branches: Annotated[int, typer.Option(metavar="W", help="Branches that can be opened.", min=1)] = 64,
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Token budget of a question.", show_default="none", min=0),
    ] = None,
) -> None:
    """Answer OpenAI clients with a model under a controller, which they name: model="NAME:cmc@0.5"."""
    arguments = locals()
    with working("the server has ended") as tell:
        from autotts_jax.collect.engines import open_engine
        from autotts_jax.core import devices
        from autotts_jax.live import server as server

        devices.configure()
        settings = server.Settings(
            name=name or (Path(model).name if model else engine.value),
            sampling=_sampling(arguments),
            answers=answers,
            max_branches=max_branches,
            budget=budget,
            api_key=require_key,
            max_requests=max_requests,
            timeout=timeout,
        )
        tell("loading the model", 0, 0)
        opened = open_engine(engine.value, model, _options(engine_option), base_url, api_key)
    with contextlib.closing(opened):
        server.serve(opened, settings, host, port)


def _sampling(arguments: Mapping[str, Any]) -> Sampling:
    """What a command's arguments say of sampling, which are named alike."""
    from autotts_jax.collect.trajectories import Sampling

    named = {field.name for field in dataclasses.fields(Sampling)} & arguments.keys()
    return Sampling(**{name: arguments[name] for name in named}, suffix=_unescaped(arguments["probe_suffix"]))


def _options(texts: Sequence[str] | None) -> dict[str, Any]:
    """Arguments of an engine."""
    return dict(map(_option, texts or ()))


def _option(text: str) -> tuple[str, Any]:
    """An argument of an engine: a JSON value, else a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--engine-option {text}: write it as NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _unescaped(suffix: str | None) -> str | None:
    r"""A suffix as a shell passes it: ``\n`` stands for a new line."""
    return None if suffix is None else suffix.replace("\\n", "\n")


def _teller(tell: Callable[..., None]) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        usage, seconds = progress.usage, max(progress.seconds, 1e-9)
        note = (
            f"{usage.generated:,} tokens ({usage.generated / seconds:,.0f}/s)  {usage.probes:,} probes "
            f"({usage.probes / seconds:,.0f}/s)  cache {usage.cached / max(usage.prompted, 1):.0%}  "
            f"left {progress.seconds_left / 60:,.1f} min  in all about {progress.tokens_in_all:,} tokens"
        )
        tell("collecting", progress.branches, progress.of, note)

    return on_progress


def _line(decision: Decision) -> str:
    """A decision in a line, the most frequent answers first."""
    shown = Counter(found for found in decision.answers if found is not None).most_common(4)
    answers = "  ".join(f"{text} ×{count}" for text, count in shown)
    return f"{decision.tokens:>8,}  {decision.action:<8}{len(decision.branches):>4} branches  {answers}"


def _as_json(found: Answer) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"stop": found.stop.name.lower()}
