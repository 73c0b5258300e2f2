"""OpenEvolve searches for a controller; the sealed judge scores its files.

    pip install 'autotts-jax[discover]' openevolve
    OPENAI_API_KEY=… python examples/discover_openevolve.py MODEL --evaluations 20

``OPENAI_BASE_URL`` names another server than OpenAI's.
"""

import asyncio
import math
import os
from pathlib import Path
from typing import Annotated

import judged
import typer
from openevolve import OpenEvolve
from openevolve.config import (
    Config,
    DatabaseConfig,
    EvaluatorConfig,
    LLMConfig,
    LLMModelConfig,
    PromptConfig,
)
from openevolve.evaluation_result import EvaluationResult

MAX_SECONDS = 3600
"""More than the judge's own limits allow: past it OpenEvolve would go on without ending what runs."""


def evaluate(program_path: str) -> EvaluationResult:
    """Scores a file; one that failed is worse than all others, which 0 would not be."""
    measured = judged.judge(Path(program_path).read_text())
    if measured.metrics is None:
        return EvaluationResult({"combined_score": -math.inf}, {"failure": measured.feedback})
    numbers = {name: measured.metrics[name] for name in ("gain", "cost", "width")}
    score = {"combined_score": measured.metrics["objective"]}
    return EvaluationResult(score | numbers, {"feedback": measured.feedback})


def main(
    model: Annotated[str, typer.Argument(help="The model that writes files.")],
    evaluations: Annotated[int, typer.Option(help="Files to measure.")] = 20,
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/openevolve"),
    first: Annotated[Path | None, typer.Option(help="A file to begin with.")] = None,
) -> None:
    source = judged.begin(out, first)
    (out / "first.py").write_text(source)
    config = Config(
        max_iterations=evaluations - 1,
        diff_based_evolution=False,
        language="python",
        # A number of tasks has it spawn its processes: JAX does not bear a fork.
        max_tasks_per_child=evaluations,
        llm=LLMConfig(
            models=[LLMModelConfig(name=model)],
            api_base=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
            api_key=os.environ["OPENAI_API_KEY"],
        ),
        prompt=PromptConfig(system_message=judged.task()),
        database=DatabaseConfig(num_islands=1),
        evaluator=EvaluatorConfig(
            timeout=MAX_SECONDS, max_retries=0, cascade_evaluation=False, parallel_evaluations=1
        ),
    )
    found = asyncio.run(OpenEvolve(str(out / "first.py"), __file__, config, output_dir=str(out)).run())
    judged.end(out, found.code, found.metrics["combined_score"])


if __name__ == "__main__":
    typer.run(main)
