"""ShinkaEvolve searches for a controller; the sealed judge scores its files.

    pip install 'autotts-jax[discover]' shinka-evolve
    OPENAI_API_KEY=… python examples/discover_shinka.py MODEL --evaluations 20

``OPENAI_BASE_URL`` names another server than OpenAI's. ShinkaEvolve needs httpx 0.27 and so an environment of
its own, without the extra ``dev``.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import judged
import typer


def evaluate(program: Path, results: Path) -> None:
    """Scores a file, as ShinkaEvolve has it done in a process of its own; one that failed has no score."""
    measured = judged.judge(program.read_text())
    metrics = {"text_feedback": measured.feedback}
    if measured.metrics is not None:
        numbers = {name: measured.metrics[name] for name in ("gain", "cost", "width")}
        metrics |= {"combined_score": measured.metrics["objective"], "public": numbers}
    correct = {"correct": measured.metrics is not None, "error": measured.feedback}
    results.mkdir(parents=True, exist_ok=True)
    (results / "metrics.json").write_text(json.dumps(metrics))
    (results / "correct.json").write_text(json.dumps(correct))


def main(
    model: Annotated[str, typer.Argument(help="The model that writes files.")] = "",
    evaluations: Annotated[int, typer.Option(help="Files to measure.")] = 20,
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/shinka"),
    first: Annotated[Path | None, typer.Option(help="A file to begin with.")] = None,
    program_path: Annotated[Path | None, typer.Option("--program_path", hidden=True)] = None,
    results_dir: Annotated[Path | None, typer.Option("--results_dir", hidden=True)] = None,
) -> None:
    if program_path is not None and results_dir is not None:
        evaluate(program_path, results_dir)
        return
    from shinka.core import EvolutionConfig, ShinkaEvolveRunner
    from shinka.database import DatabaseConfig
    from shinka.launch import LocalJobConfig

    source = judged.begin(out, first)
    # It replaces what stands between these lines: here all.
    (out / "first.py").write_text(f"# EVOLVE-BLOCK-START\n{source}# EVOLVE-BLOCK-END\n")
    server = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    runner = ShinkaEvolveRunner(
        EvolutionConfig(
            task_sys_msg=judged.task(),
            patch_types=["full"],
            patch_type_probs=[1.0],
            num_generations=evaluations,
            llm_models=[f"local/{model}@{server}?api_key_env=OPENAI_API_KEY"],
            embedding_model=None,
            init_program_path=str(out / "first.py"),
            results_dir=str(out),
            use_text_feedback=True,
        ),
        LocalJobConfig(eval_program_path=__file__),
        DatabaseConfig(db_path="programs.sqlite", num_islands=1),
        max_evaluation_jobs=1,
        max_proposal_jobs=1,
    )
    runner.run()
    best = runner.db.get_best_program()
    judged.end(out, best.code, best.combined_score)


if __name__ == "__main__":
    typer.run(main)
