from .answers import Extractor, extract, extractor
from .chat_engine import ChatEngine
from .code_grader import CodeGrader
from .collector import CollectionProgress, LocalWorkers, Workers, collect, collect_missing, collect_unit
from .completions import Completions, Given, read_completions
from .engine import (
    BusyError,
    Cancelled,
    ChatMessage,
    Completion,
    Engine,
    EngineError,
    Finish,
    RefusedError,
    Request,
    Tokenizer,
    Tokens,
)
from .engines import ENGINES, QUICK_TO_FAIL, context_length, engine_spec, open_engine
from .estimate import Cost, Estimate, estimate
from .grader import Form, FormGrader, Grader
from .graders import GRADERS, open_grader
from .grading import MathGrader
from .grading_check import Disagreement, GradingCheck, check_grading
from .importing import Imported, QuestionLook, import_answers
from .loading import load
from .plan import Branch, Collected, EngineSpec, Plan, Unit
from .problem import Problem
from .questions import read_questions
from .ray_workers import RayWorkers
from .releases import import_release
from .server_engine import ServerEngine
from .simulated import SimulatedEngine
from .store import Store, is_collection
from .thinking import Thinking
from .trajectories import (
    ContextError,
    Probe,
    Sampling,
    Trajectories,
    Trajectory,
    Usage,
    fitting_tokens,
    last_depth,
)
from .vllm_engine import VLLMEngine

__all__ = [
    "ENGINES",
    "GRADERS",
    "QUICK_TO_FAIL",
    "Branch",
    "BusyError",
    "Cancelled",
    "ChatEngine",
    "ChatMessage",
    "CodeGrader",
    "Collected",
    "CollectionProgress",
    "Completion",
    "Completions",
    "ContextError",
    "Cost",
    "Disagreement",
    "Engine",
    "EngineError",
    "EngineSpec",
    "Estimate",
    "Extractor",
    "Finish",
    "Form",
    "FormGrader",
    "Given",
    "Grader",
    "GradingCheck",
    "Imported",
    "LocalWorkers",
    "MathGrader",
    "Plan",
    "Probe",
    "Problem",
    "QuestionLook",
    "RayWorkers",
    "RefusedError",
    "Request",
    "Sampling",
    "ServerEngine",
    "SimulatedEngine",
    "Store",
    "Thinking",
    "Tokenizer",
    "Tokens",
    "Trajectories",
    "Trajectory",
    "Unit",
    "Usage",
    "VLLMEngine",
    "Workers",
    "check_grading",
    "collect",
    "collect_missing",
    "collect_unit",
    "context_length",
    "engine_spec",
    "estimate",
    "extract",
    "extractor",
    "fitting_tokens",
    "import_answers",
    "import_release",
    "is_collection",
    "last_depth",
    "load",
    "open_engine",
    "open_grader",
    "read_completions",
    "read_questions",
]
