from . import testing
from .collect.importing import Imported, import_answers
from .collect.loading import load
from .core.controller import Controller, Family, first_of
from .core.rollout import rollout
from .core.view import Action, StopReason, View
from .core.votes import Vote
from .discovery.entry import discover
from .discovery.results.found import Discovery, read_run
from .envs.making import make, sb3_vec_env
from .errors import InputError
from .experiments import papers
from .experiments.batch import BatchEvaluation, evaluate_batch
from .experiments.benchmark import Agent, Benchmark, Task, bench
from .experiments.certificates import Certification, certify
from .experiments.evaluation import Evaluation, evaluate
from .experiments.live_batch import answer_batch
from .experiments.live_rows import LiveRun
from .experiments.live_runs import answer_questions
from .experiments.summary import Objective
from .experiments.tracing import Trace, trace
from .live.answering import answer
from .policies.sealed.worker_pool import Sealing
from .replay import ProbeDataset
from .sandbox import Sandbox
from .training.entry import train

__all__ = [
    "Action",
    "Agent",
    "BatchEvaluation",
    "Benchmark",
    "Certification",
    "Controller",
    "Discovery",
    "Evaluation",
    "Family",
    "Imported",
    "InputError",
    "LiveRun",
    "Objective",
    "ProbeDataset",
    "Sandbox",
    "Sealing",
    "StopReason",
    "Task",
    "Trace",
    "View",
    "Vote",
    "answer",
    "answer_batch",
    "answer_questions",
    "bench",
    "certify",
    "discover",
    "evaluate",
    "evaluate_batch",
    "first_of",
    "import_answers",
    "load",
    "make",
    "papers",
    "read_run",
    "rollout",
    "sb3_vec_env",
    "testing",
    "trace",
    "train",
]

__version__: str
