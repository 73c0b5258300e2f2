from .environment import AGGREGATES, OBSERVATIONS, Aggregate, Environment, Observation
from .executor import EnvironmentExecutor, play_in_environment
from .observations import BRANCH_FEATURES, GLOBAL_FEATURES
from .params import EnvParams, EnvState
from .rewards import Reward
from .rounds import WidthDepthRounds
from .width_depth import WidthDepth

__all__ = [
    "AGGREGATES",
    "BRANCH_FEATURES",
    "GLOBAL_FEATURES",
    "OBSERVATIONS",
    "Aggregate",
    "EnvParams",
    "EnvState",
    "Environment",
    "EnvironmentExecutor",
    "Observation",
    "Reward",
    "WidthDepth",
    "WidthDepthRounds",
    "play_in_environment",
]
