from .compiling import COMPILER_OPTIONS, XLA_FLAGS
from .controller import Controller, Family, Memory, check_beta, check_branches, first_of, keep_live, within
from .costs import CostModel
from .hosts import initialize
from .pool import UNREVEALED, BranchPool, Pool, ReplayPool, StopReason, winner
from .profiles import Hardware, ModelSize
from .rollout import Episodes, Hooks, Results, rollout
from .scrambling import Revealed, scramble
from .stepping import Decision, Ended, Executor, Operation, ReplayExecutor, Stepper
from .votes import Vote, WeightedVote, vote_weighted

__all__ = [
    "COMPILER_OPTIONS",
    "UNREVEALED",
    "XLA_FLAGS",
    "BranchPool",
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
    "Operation",
    "Pool",
    "ReplayExecutor",
    "ReplayPool",
    "Results",
    "Revealed",
    "Stepper",
    "StopReason",
    "Vote",
    "WeightedVote",
    "check_beta",
    "check_branches",
    "first_of",
    "initialize",
    "keep_live",
    "rollout",
    "scramble",
    "vote_weighted",
    "winner",
    "within",
]
