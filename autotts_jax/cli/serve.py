"""``autotts-jax serve``: a model under controllers, for clients of OpenAI's API."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Literal

import typer

from autotts_jax import live
from autotts_jax.cli.certify import certified_setting
from autotts_jax.cli.console import working
from autotts_jax.cli.options import (
    AnswersOption,
    EngineOptions,
    GraderOption,
    LimitOptions,
    SamplingOptions,
    SettingOption,
)

ReplyName = Literal["branch", "answer"]

KEY = "AUTOTTS_API_KEY"
"""The variable of the environment that holds the key."""


def serve(
    *,
    engine: EngineOptions,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the model for clients.", show_default="end of --model"),
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
            envvar=KEY,
            show_default="none",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name that clients without a key may reach the server by; repeatable.",
            show_default="localhost and addresses",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Web pages that may use the server from a browser, as https://chat.example; repeatable.",
            show_default="its own page",
        ),
    ] = None,
    max_requests: Annotated[
        int, typer.Option(metavar="N", help="Questions that are answered at once; more get 429.", min=1)
    ] = 32,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of a question.")] = 600,
    setting: SettingOption = None,
    sampling: SamplingOptions,
    answers: AnswersOption = "auto",
    grader: GraderOption = "math",
    reply: Annotated[
        ReplyName,
        typer.Option(help="What a reply says: a branch with the answer, or the answer alone."),
    ] = "branch",
    limits: LimitOptions,
) -> None:
    """Answer OpenAI clients with a model under a controller, which they name: model="NAME:cmc@0.5"."""
    with working("the server has ended") as on_progress:
        from autotts_jax.core import devices

        devices.configure()
        controller = (
            {}
            if setting is None
            else {"controller": certified_setting(setting, engine, sampling, grader, limits)}
        )
        settings = live.ServerSettings(
            name=name or engine.model_name,
            **controller,
            sampling=sampling.sampling(engine),
            answers=answers,
            grader=grader,
            reply=reply,
            max_branches=limits.max_branches,
            budget=limits.budget,
            # Typer takes an empty variable for an absent one, which would open the server to everybody.
            api_key=require_key if require_key is not None else os.environ.get(KEY),
            allowed_hosts=tuple(allow_host or ()),
            allowed_origins=tuple(allow_origin or ()),
            max_requests=max_requests,
            timeout=timeout,
        )
        on_progress(engine.opening, 0, 0)
        opened = engine.opener(waited_for=True)()
    with contextlib.closing(opened):
        live.serve(opened, settings, host, port)
