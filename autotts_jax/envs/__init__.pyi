from .environment import AGGREGATES, OBSERVATIONS, Aggregate, Environment, Observation
from .executor import EnvironmentExecutor, play_in_environment
from .making import ENVIRONMENTS, make
from .observations import BRANCH_FEATURES, GAMMA_DECADES, GLOBAL_FEATURES, Tracker
from .params import EnvParams, EnvState
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
    "Aggregate",
    "EnvParams",
    "EnvState",
    "Environment",
    "EnvironmentExecutor",
    "Observation",
    "Reward",
    "Tracker",
    "WidthDepth",
    "WidthDepthRounds",
    "make",
    "play_in_environment",
]
