from .adaptive_consistency import AdaptiveConsistency
from .adaptive_rules import DirichletConsistency, EntropyConsistency, MajorityConsistency
from .allocators import (
    ALLOCATORS,
    BlendASC,
    DirichletGain,
    LeastSure,
    LinearIndex,
    LongFirst,
    NaiveIndex,
    ShadowPrice,
    SmallestLead,
    Uniform,
    as_allocator,
    save_weights,
)
from .best_of_infinity import BestOfInfinity
from .certified_majority import CertifiedMajority
from .cisc import CISC
from .cmc import CMC
from .deepconf import DeepConf, DeepConfOffline
from .deer import DEER
from .distilled import DistilledRules
from .doubling import Doubling
from .dynasor import Dynasor
from .early_stopping import EarlyStopping
from .eat import EAT
from .env_policy import EnvPolicy, PolicyController, as_controller
from .es_cot import ESCoT
from .host_policy import HostPlayer, HostPolicy
from .neural.network import SignalInput
from .neural.policy import NeuralPolicy, neural_family
from .neural.policy_file import load_policy, save_policy
from .parallel_probe import ParallelProbe
from .player import ControllerPlayer, Play, Player, Seal
from .players import CONTROLLERS, as_player, select
from .rule_controller import RuleController, Seen
from .scaling import tuned
from .scored import BestOfN, WeightedMajority
from .sealed.player import SealedPlayer
from .sealed.program import ProgramPlayer
from .sealed.worker_pool import Sealing
from .self_consistency import SelfConsistency
from .short_m import ShortM
from .single_branch import SingleBranch
from .sprt import SPRTConsensus

__all__ = [
    "ALLOCATORS",
    "CISC",
    "CMC",
    "CONTROLLERS",
    "DEER",
    "EAT",
    "AdaptiveConsistency",
    "BestOfInfinity",
    "BestOfN",
    "BlendASC",
    "CertifiedMajority",
    "ControllerPlayer",
    "DeepConf",
    "DeepConfOffline",
    "DirichletConsistency",
    "DirichletGain",
    "DistilledRules",
    "Doubling",
    "Dynasor",
    "ESCoT",
    "EarlyStopping",
    "EntropyConsistency",
    "EnvPolicy",
    "HostPlayer",
    "HostPolicy",
    "LeastSure",
    "LinearIndex",
    "LongFirst",
    "MajorityConsistency",
    "NaiveIndex",
    "NeuralPolicy",
    "ParallelProbe",
    "Play",
    "Player",
    "PolicyController",
    "ProgramPlayer",
    "RuleController",
    "SPRTConsensus",
    "Seal",
    "SealedPlayer",
    "Sealing",
    "Seen",
    "SelfConsistency",
    "ShadowPrice",
    "ShortM",
    "SignalInput",
    "SingleBranch",
    "SmallestLead",
    "Uniform",
    "WeightedMajority",
    "as_allocator",
    "as_controller",
    "as_player",
    "load_policy",
    "neural_family",
    "save_policy",
    "save_weights",
    "select",
    "tuned",
]
