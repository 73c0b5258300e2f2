from .aggregates import AGGREGATES, Aggregate
from .environment import OBSERVATIONS, Environment, Observation
from .executor import EnvironmentExecutor, play_in_environment
from .gym import WidthDepthEnv, WidthDepthRoundsEnv
from .gym_vector import WidthDepthRoundsVectorEnv, WidthDepthVectorEnv
from .making import ENVIRONMENTS, as_gymnax, make
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
    "WidthDepthEnv",
    "WidthDepthRounds",
    "WidthDepthRoundsEnv",
    "WidthDepthRoundsVectorEnv",
    "WidthDepthVectorEnv",
    "as_gymnax",
    "make",
    "play_in_environment",
]
