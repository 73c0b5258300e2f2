from .compiling import COMPILER_OPTIONS, XLA_FLAGS
from .controller import Controller, Family, Memory, check_beta, check_branches, first_of
from .pool import UNREVEALED, BranchPool, Pool, ReplayPool, StopReason, winner
from .rollout import Episodes, Hooks, Results, rollout
from .scrambling import scramble
from .stepping import Decision, Ended, Executor, Operation, ReplayExecutor, Stepper
from .votes import Vote

__all__ = [
    "COMPILER_OPTIONS",
    "UNREVEALED",
    "XLA_FLAGS",
    "BranchPool",
    "Controller",
    "Decision",
    "Ended",
    "Episodes",
    "Executor",
    "Family",
    "Hooks",
    "Memory",
    "Operation",
    "Pool",
    "ReplayExecutor",
    "ReplayPool",
    "Results",
    "Stepper",
    "StopReason",
    "Vote",
    "check_beta",
    "check_branches",
    "first_of",
    "rollout",
    "scramble",
    "winner",
]
