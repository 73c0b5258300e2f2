"""GEPA's `optimize_anything` searches for a controller; the sealed judge scores its files.

    pip install 'autotts-jax[discover]' gepa
    OPENAI_API_KEY=… python examples/discover_gepa.py MODEL --evaluations 20

``OPENAI_BASE_URL`` names another server than OpenAI's.
"""

import math
from pathlib import Path
from typing import Annotated

import judged
import openai
import typer
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything


def evaluate(file: str) -> tuple[float, dict[str, str]]:
    """Scores a file; one that failed is worse than all others, which 0 would not be."""
    measured = judged.judge(file)
    if measured.metrics is None:
        return -math.inf, {"Error": measured.feedback}
    return measured.metrics["objective"], {"Feedback": measured.feedback}


def main(
    model: Annotated[str, typer.Argument(help="The model that writes files.")],
    evaluations: Annotated[int, typer.Option(help="Files to measure.")] = 20,
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/gepa"),
    first: Annotated[Path | None, typer.Option(help="A file to begin with.")] = None,
) -> None:
    source = judged.begin(out, first)
    client = openai.OpenAI()

    def ask(prompt: str | list) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        reply = client.chat.completions.create(model=model, messages=messages)
        return reply.choices[0].message.content or ""

    found = optimize_anything(
        source,
        evaluator=evaluate,
        objective="Write a controller with a higher objective. Reply with the whole file in one code block.",
        background=judged.task(),
        config=GEPAConfig(
            # Without the cache, each proposal has its parent measured again.
            engine=EngineConfig(
                run_dir=str(out), max_candidate_proposals=evaluations - 1, cache_evaluation=True
            ),
            reflection=ReflectionConfig(reflection_lm=ask),
        ),
    )
    judged.end(out, found.best_candidate, found.val_aggregate_scores[found.best_idx])


if __name__ == "__main__":
    typer.run(main)
