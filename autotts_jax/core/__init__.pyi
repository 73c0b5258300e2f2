from .batch import Allocator, Readings, charge, look, most_urgent, read_through, spend
from .compiling import COMPILER_OPTIONS, XLA_FLAGS
from .controller import Controller, Family, Memory, check_beta, check_branches, first_of, keep_live, within
from .costs import CostModel
from .hosts import initialize
from .pool import ReplayPool
from .profiles import Hardware, ModelSize
from .rollout import Episodes, Hooks, Results, rollout
from .stepping import Decision, Ended, Executor, ReplayExecutor, Stepper
from .view import UNREVEALED, Action, NotKeptError, StopReason, View
from .votes import Vote, WeightedVote, vote_weighted

__all__ = [
    "COMPILER_OPTIONS",
    "UNREVEALED",
    "XLA_FLAGS",
    "Action",
    "Allocator",
    "Controller",
    "CostModel",
    "Decision",
    "Ended",
    "Episodes",
    "Executor",
    "Family",
    "Hardware",
    "Hooks",
    "Memory",
    "ModelSize",
    "NotKeptError",
    "Readings",
    "ReplayExecutor",
    "ReplayPool",
    "Results",
    "Stepper",
    "StopReason",
    "View",
    "Vote",
    "WeightedVote",
    "charge",
    "check_beta",
    "check_branches",
    "first_of",
    "initialize",
    "keep_live",
    "look",
    "most_urgent",
    "read_through",
    "rollout",
    "spend",
    "vote_weighted",
    "within",
]
