from .allocators import IndexEvolution, train_allocator
from .arena import Arena, Scores, draw_log_uniform
from .checkpoints import Checkpoints
from .config import Config, DataSettings, NetworkSettings, ObjectiveSettings, read_config
from .data import fold_of, make_params, measure_signals, split_folds, split_questions
from .entry import TrainingRun, train
from .evolution import Evolution, EvolutionSettings
from .imitation import Demonstrations, WarmStartSettings, clone, demonstrate, warm_start
from .loop import RunEnd, run
from .metrics import read_metrics
from .ppo import PPO, PPOSettings
from .run_state import RunSettings, RunState
from .teachers import teacher, tune
from .trainer import Metrics, OnUpdate, Trainer
from .validation import Difference, Validation
from .vote_weights import learn_vote_weights

__all__ = [
    "PPO",
    "Arena",
    "Checkpoints",
    "Config",
    "DataSettings",
    "Demonstrations",
    "Difference",
    "Evolution",
    "EvolutionSettings",
    "IndexEvolution",
    "Metrics",
    "NetworkSettings",
    "ObjectiveSettings",
    "OnUpdate",
    "PPOSettings",
    "RunEnd",
    "RunSettings",
    "RunState",
    "Scores",
    "Trainer",
    "TrainingRun",
    "Validation",
    "WarmStartSettings",
    "clone",
    "demonstrate",
    "draw_log_uniform",
    "fold_of",
    "learn_vote_weights",
    "make_params",
    "measure_signals",
    "read_config",
    "read_metrics",
    "run",
    "split_folds",
    "split_questions",
    "teacher",
    "train",
    "train_allocator",
    "tune",
    "warm_start",
]
