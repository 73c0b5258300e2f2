"""Discovery in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotts_jax.checks import check_bool, check_float, check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.core.forks import refuse_forks
from autotts_jax.discovery.archive.transcripts import TRANSCRIPTS
from autotts_jax.discovery.critics.critic import Critic
from autotts_jax.discovery.judging.measuring import LIMITS
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.discovery.proposers.protocol import Proposer, Writer
from autotts_jax.discovery.results.found import Discovery, read_run
from autotts_jax.discovery.results.report import REPORT, discovery_report
from autotts_jax.discovery.rounds.programs import RUNGS
from autotts_jax.discovery.search import FOLDS, DiscoveryRun, OnRound, OnTest, SearchProgress
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import widest
from autotts_jax.files import destination, locked, remove_unfinished, write_atomically
from autotts_jax.loggers import Logger, check_loggers, opened
from autotts_jax.pages import rendering
from autotts_jax.policies.players import as_player
from autotts_jax.replay import ProbeDataset
from autotts_jax.sandbox.process import Sandbox

CPU_MINUTES = 10.0
"""The budget of a run that is given none."""

LEAST_CPU_MINUTES = 0.1
"""The least budget in CPU time. Even if all is in the cache of compilations and the questions are few, a run
that gets to its test takes more."""


def discover(
    data: ProbeDataset | str | Path | Sequence[str | Path] = "synthetic",
    *,
    out: str | Path = "runs/discover",
    proposers: Sequence[str | Proposer | Writer] = ("rules",),
    incumbent: Any = "cmc",
    candidates: int | None = None,
    cpu_minutes: float | None = None,
    seed: int = 0,
    max_branches: int | None = None,
    traces: bool = True,
    beta: bool = True,
    critic: str | Critic | None = None,
    sandbox: Sandbox = LIMITS,
    loggers: Sequence[str | Logger] = (),
    on_round: OnRound | None = None,
    on_test: OnTest | None = None,
) -> Discovery:
    """Searches for a controller that is better than the incumbent, by default without a language model.

    The run is kept in a folder. The same call continues it after an interruption, or with a larger budget.
    At its end it writes ``report.html``, a page that needs no network, where Altair is installed.

    Args:
        data: the questions: a dataset, or names, files, folders and globs, as `autotts_jax.load` takes them.
        out: the run's folder.
        proposers: who proposes candidates, in turns: ``rules``, ``constants``, ``constants:FILE``,
            ``random``, ``openai:MODEL``, ``claude``, or proposers of your own.
        incumbent: the family to beat; whatever `autotts_jax.evaluate` takes as a player.
        candidates: candidates to try in all; None for no limit.
        cpu_minutes: CPU time of the rounds, over all cores, those of calls before and what they compile
            included. The last round is finished; start and test come on top. None for no limit where there
            is one of candidates, else for 10 minutes.
        seed: the seed that everything is drawn with.
        max_branches: W, as in `autotts_jax.evaluate`.
        traces: whether proposers that write files are shown episodes of these files.
        beta: whether candidates are families over β. Otherwise each is one controller with constant numbers,
            which is judged at every price.
        critic: judges candidates before they are executed: ``nearest``, ``openai:MODEL``, or a critic of your
            own. It decides nothing until its record shows that it helps. None for no critic.
        sandbox: limits of the processes that files of proposers play in; in the comparison at the end and in
            the test they have five times the time.
        loggers: where the progress of the run goes besides its folder: ``tensorboard``, ``wandb``,
            ``mlflow``, ``trackio``, or objects of your own with ``log(step, metrics)`` and ``close()``.
        on_round: called after every round.
        on_test: called with how many parts of the test at the end have been played, and how many it has.

    Returns:
        The results of the run: ``table()``, ``promoted``, ``source()``, ``family()``.

    Raises:
        InputError: the folder holds another run or is in use by one, the budget does not reach every search,
            or the data has too few questions.

    Example:
        >>> import autotts_jax as at
        >>> found = at.discover("smollm2", out="runs/first", candidates=640, max_branches=16)
        >>> found.folder.name, found.incumbent
        ('first', 'cmc')
        >>> table, promoted = found.table(), found.promoted
    """
    refuse_forks()
    folder = destination(out)
    if candidates is None and cpu_minutes is None:
        cpu_minutes = CPU_MINUTES
    if candidates is not None:
        candidates = check_int("candidates", candidates, 1)
    if cpu_minutes is not None:
        cpu_minutes = check_float("cpu_minutes", cpu_minutes, above=0)
        if cpu_minutes < LEAST_CPU_MINUTES:
            raise InputError(
                f"cpu_minutes is {cpu_minutes:g}, which compiling alone takes; give at least "
                f"{LEAST_CPU_MINUTES:g}, and 1 or more for more than a few questions"
            )
    if isinstance(proposers, str):
        raise InputError(f"proposers is {proposers!r}, but it must be several; write [{proposers!r}]")
    if not isinstance(proposers, Sequence):
        raise InputError(f"proposers is {proposers!r:.60}, but it must be a list of proposers")
    if not isinstance(sandbox, Sandbox):
        raise InputError(f"sandbox is {sandbox!r:.60}, but it must be an autotts_jax.Sandbox")
    traces, beta = check_bool("traces", traces), check_bool("beta", beta)
    made = [as_proposer(proposer) for proposer in proposers]
    least = FOLDS * RUNGS[0][0]
    if candidates is not None and candidates <= least and made and not isinstance(made[0], Writer):
        raise InputError(
            f"candidates is {candidates}, but each of {FOLDS + 1} searches plays rounds of {RUNGS[0][0]}; "
            f"give more than {least}"
        )
    loggers = check_loggers(loggers)
    data = loaded(data)
    data.check_probes("discover looks for controllers that decide by")
    with locked(folder):
        for transcripts in (folder / TRANSCRIPTS).glob("**/"):
            remove_unfinished(transcripts)
        run = DiscoveryRun(
            data,
            folder,
            made,
            as_player(incumbent),
            seed,
            widest(data, max_branches),
            traces=traces,
            beta=beta,
            critic=critic,
            sandbox=sandbox,
        )
        with opened(loggers, folder, run.rounds + 1) as log:

            def report(progress: SearchProgress) -> None:
                log(progress.round, _metrics(progress))
                if on_round:
                    on_round(progress)

            run.search(candidates, None if cpu_minutes is None else 60 * cpu_minutes, report)
            tests = run.untested
            if tests:
                run.test(on_test)
            found = read_run(folder)
            if tests and found.test is not None:
                log(run.rounds, {f"test/{name}": found.test[name] for name in ("gain", "low")})
        if rendering.available():
            write_atomically(folder / REPORT, discovery_report(found).encode())
    return found


def _metrics(progress: SearchProgress) -> dict[str, float]:
    """What loggers are told after a round; the best score is that of the search whose round it was."""
    metrics: dict[str, float] = {
        "search/candidates": progress.candidates,
        "search/cpu_seconds": progress.cpu_seconds,
    }
    if progress.best is not None:
        search = "all_questions" if progress.fold is None else f"without_fold_{progress.fold}"
        metrics[f"score/{search}"] = progress.best.score
    return metrics
