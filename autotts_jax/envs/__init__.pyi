from .aggregates import AGGREGATES, Aggregate
from .batch import QUESTION_FEATURES, BatchParams, BatchState, WidthDepthBatch
from .environment import OBSERVATIONS, Environment, Observation
from .executor import EnvironmentExecutor, play_in_environment
from .gym import WidthDepthBatchEnv, WidthDepthEnv, WidthDepthMacroEnv, WidthDepthRoundsEnv
from .gym_vector import (
    WidthDepthBatchVectorEnv,
    WidthDepthMacroVectorEnv,
    WidthDepthRoundsVectorEnv,
    WidthDepthVectorEnv,
)
from .macros import WidthDepthMacro
from .making import as_gymnax, make, sb3_vec_env
from .observations import BRANCH_FEATURES, GAMMA_DECADES, GLOBAL_FEATURES, Tracker
from .params import EnvParams, EnvState, cost_of_models
from .registry import ENVIRONMENTS, TASK_ENVIRONMENTS
from .rewards import Reward
from .rounds import WidthDepthRounds
from .width_depth import WidthDepth

__all__ = [
    "AGGREGATES",
    "BRANCH_FEATURES",
    "ENVIRONMENTS",
    "GAMMA_DECADES",
    "GLOBAL_FEATURES",
    "OBSERVATIONS",
    "QUESTION_FEATURES",
    "TASK_ENVIRONMENTS",
    "Aggregate",
    "BatchParams",
    "BatchState",
    "EnvParams",
    "EnvState",
    "Environment",
    "EnvironmentExecutor",
    "Observation",
    "Reward",
    "Tracker",
    "WidthDepth",
    "WidthDepthBatch",
    "WidthDepthBatchEnv",
    "WidthDepthBatchVectorEnv",
    "WidthDepthEnv",
    "WidthDepthMacro",
    "WidthDepthMacroEnv",
    "WidthDepthMacroVectorEnv",
    "WidthDepthRounds",
    "WidthDepthRoundsEnv",
    "WidthDepthRoundsVectorEnv",
    "WidthDepthVectorEnv",
    "as_gymnax",
    "cost_of_models",
    "make",
    "play_in_environment",
    "sb3_vec_env",
]
