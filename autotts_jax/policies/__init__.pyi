from .adaptive_consistency import AdaptiveConsistency
from .cmc import CMC
from .early_stopping import EarlyStopping
from .env_policy import EnvPolicy, PolicyController, as_controller
from .host_policy import HostPolicy
from .neural.policy import NeuralPolicy, neural_family
from .neural.policy_file import load_policy, save_policy
from .parallel_probe import ParallelProbe
from .players import CONTROLLERS, select
from .self_consistency import SelfConsistency

__all__ = [
    "CMC",
    "CONTROLLERS",
    "AdaptiveConsistency",
    "EarlyStopping",
    "EnvPolicy",
    "HostPolicy",
    "NeuralPolicy",
    "ParallelProbe",
    "PolicyController",
    "SelfConsistency",
    "as_controller",
    "load_policy",
    "neural_family",
    "save_policy",
    "select",
]
