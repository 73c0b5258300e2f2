from .benchmark import TASKS, Agent, Benchmark, Score, Task, bench
from .evaluation import PROTOCOLS, Evaluation, Frontiers, branch_orders, evaluate
from .frontier import (
    REFERENCE,
    Comparison,
    Frontier,
    accuracy_at,
    controller_regret,
    frontier_of,
    hypervolume,
    tokens_at,
)
from .live_rows import Answered, Compared, LiveRun
from .live_runs import LiveSettings, answer_questions
from .summary import ALL_MODELS, Objective, Row, paired_bootstrap, standard_error
from .tables import Table, collection_table, estimate_table, questions_table, statistics_table
from .tracing import Trace, TraceStep, trace

__all__ = [
    "ALL_MODELS",
    "PROTOCOLS",
    "REFERENCE",
    "TASKS",
    "Agent",
    "Answered",
    "Benchmark",
    "Compared",
    "Comparison",
    "Evaluation",
    "Frontier",
    "Frontiers",
    "LiveRun",
    "LiveSettings",
    "Objective",
    "Row",
    "Score",
    "Table",
    "Task",
    "Trace",
    "TraceStep",
    "accuracy_at",
    "answer_questions",
    "bench",
    "branch_orders",
    "collection_table",
    "controller_regret",
    "estimate_table",
    "evaluate",
    "frontier_of",
    "hypervolume",
    "paired_bootstrap",
    "questions_table",
    "standard_error",
    "statistics_table",
    "tokens_at",
    "trace",
]
