"""Published controllers as programs: what searches begin with, and what they compete with.

Each says on its line of β how much it may spend.
"""

from __future__ import annotations

from autotts_jax.discovery.programs.rules import Clause, Condition, Line, Program


def self_consistency(least: int = 1, most: int = 64) -> Program:
    """SC as a program: reads branches in full and answers the majority.

    Args:
        least: branches at β = 0.
        most: branches at β = 1.
    """
    branches = Line(least, most - least)
    return Program(
        _dials(initial=branches, max_branches=branches, in_full=Line(1), by_completion=Line(0)),
        stop=(Clause((), Line(1)),),
        weigh=(_ended_votes(),),
    )


def parallel_probe(least: int = 4, most: int = 64) -> Program:
    """Parallel-Probe as a program: prunes branches that disagree, and answers a stable consensus.

    Args:
        least: branches at β = 0.
        most: branches at β = 1.
    """
    branches = Line(least, most - least)
    return Program(
        _dials(
            initial=branches, max_branches=branches, warm_up=Line(16), spare=Line(0), by_completion=Line(0)
        ),
        prune=(Clause((Condition("disagreement", ">=", Line(7)),), Line(1)),),
        stop=(
            Clause((Condition("stable", ">=", Line(40)),), Line(1)),
            Clause((Condition("round", ">=", Line(99)),), Line(1)),
        ),
        weigh=(Clause((), Line(1)),),
    )


def adaptive_consistency(least: int = 1, most: int = 64) -> Program:
    """ASC as a program: reads branches in full, one after another, until the majority is sure.

    Args:
        least: branches at β = 0.
        most: branches at β = 1.
    """
    return Program(
        _dials(
            initial=Line(1), max_branches=Line(least, most - least), in_full=Line(1), by_completion=Line(0)
        ),
        open=(Clause((), Line(1)),),
        stop=(
            Clause((Condition("finished", ">=", Line(2)), Condition("confidence", ">", Line(0.95))), Line(1)),
        ),
        weigh=(_ended_votes(),),
    )


def short_m(fewest: tuple[int, int] = (1, 2), most: tuple[int, int] = (16, 64)) -> Program:
    """short-m@k as a program: reads k branches side by side, and answers once m have ended.

    Source: Hassid et al., "Don't Overthink it. Preferring Shorter Thinking Chains for Improved LLM Reasoning"
    (arXiv 2505.17813), which has m = 1 and m = 3.

    Args:
        fewest: m and k at β = 0.
        most: m and k at β = 1.
    """
    m, k = (Line(first, last - first) for first, last in zip(fewest, most, strict=True))
    return Program(
        _dials(initial=k, max_branches=k),
        stop=(Clause((Condition("finished", ">=", m),), Line(1)),),
        weigh=(_ended_votes(),),
    )


def cmc() -> Program:
    """CMC as a program; at every β it plays the episodes of `autotts_jax.policies.CMC`."""
    warm = Condition("round", ">=", Line(2, 8))
    return Program(
        _dials(
            initial=Line(2, 6),
            max_branches=Line(4, 60),
            warm_up=Line(2, 8),
            spare=Line(2),
            alpha=Line(0.70, -0.40),
            window=Line(2, 6),
        ),
        open=(
            Clause(
                (
                    # Half of the warm-up, rounded down; a hair more, because 2.5 is rounded to 2.
                    Condition("round", ">=", Line(0.7501, 4)),
                    Condition("live", ">=", Line(1)),
                    Condition("ema", "<", Line(0.85, 0.12)),
                    Condition("momentum", "<=", Line(0.04, -0.03)),
                ),
                Line(1, 3),
            ),
        ),
        read=(Clause((warm, Condition("agrees", ">=", Line(1))), Line(1, 2)),),
        prune=(
            Clause(
                (
                    warm,
                    Condition("voters", ">", Line(0)),
                    Condition("disagreement", ">=", Line(3, 9)),
                ),
                Line(1),
            ),
        ),
        stop=(
            Clause(
                (
                    warm,
                    Condition("voters", ">=", Line(2, 3)),
                    Condition("ema", ">=", Line(0.85, 0.12)),
                    Condition("momentum", ">=", Line(-0.04, 0.03)),
                ),
                Line(1),
            ),
        ),
        weigh=(_ended_votes(),),
    )


def _dials(**lines: Line) -> dict[str, Line]:
    """All hyperparameters: those that are given, and neutral ones."""
    neutral = {
        "initial": Line(4),
        "max_branches": Line(64),
        "warm_up": Line(0),
        "spare": Line(0),
        "alpha": Line(1),
        "window": Line(1),
        "in_full": Line(0),
        "by_completion": Line(1),
    }
    return neutral | lines


def _ended_votes() -> Clause:
    return Clause((Condition("ended", ">=", Line(1)),), Line(1))


PUBLISHED = {
    "cmc": cmc(),
    "parallel-probe": parallel_probe(),
    "sc": self_consistency(),
    "asc": adaptive_consistency(),
    "short-m": short_m(),
}
"""Controllers that people wrote, as programs."""
