from . import papers
from .batch import ORACLE, BatchEvaluation, evaluate_batch
from .batch_rows import BatchPlay, BatchRow
from .benchmark import TASKS, Agent, Benchmark, Score, Task, bench
from .certificates import Certificate, Certification, Tested, certify, read_certificate
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
from .live_batch import answer_batch
from .live_folder import LiveSettings
from .live_rows import Answered, BranchRead, Compared, LiveRun
from .live_runs import answer_questions
from .metrics import Anytime, anytime, normalised_regret, pass_at, vote_accuracy
from .summary import (
    ALL_MODELS,
    Objective,
    Questions,
    Row,
    Uncertain,
    standard_error,
)
from .tables import Table, collection_table, estimate_table, questions_table, statistics_table
from .tracing import Trace, TraceStep, trace

__all__ = [
    "ALL_MODELS",
    "ORACLE",
    "PROTOCOLS",
    "REFERENCE",
    "TASKS",
    "Agent",
    "Answered",
    "Anytime",
    "BatchEvaluation",
    "BatchPlay",
    "BatchRow",
    "Benchmark",
    "BranchRead",
    "Certificate",
    "Certification",
    "Compared",
    "Comparison",
    "Evaluation",
    "Frontier",
    "Frontiers",
    "LiveRun",
    "LiveSettings",
    "Objective",
    "Questions",
    "Row",
    "Score",
    "Table",
    "Task",
    "Tested",
    "Trace",
    "TraceStep",
    "Uncertain",
    "accuracy_at",
    "answer_batch",
    "answer_questions",
    "anytime",
    "bench",
    "branch_orders",
    "certify",
    "collection_table",
    "controller_regret",
    "estimate_table",
    "evaluate",
    "evaluate_batch",
    "frontier_of",
    "hypervolume",
    "normalised_regret",
    "papers",
    "pass_at",
    "questions_table",
    "read_certificate",
    "standard_error",
    "statistics_table",
    "tokens_at",
    "trace",
    "vote_accuracy",
]
