from .autotts_json import read_json, write_json
from .compact import read_compact, write_compact
from .dataset import ENCODINGS, EQUIV, EXACT, Cell, ProbeDataset, Question, stack
from .embedded import load, smollm2
from .encoding import merge_equivalent
from .equivalence import NONE
from .generator import SYNTHETIC_MODELS, SyntheticModel, synthetic
from .matrix import ProbeMatrix
from .orders import BranchOrders, paper64_orders, recorded_orders, repo100_orders
from .parquet import read_parquet, write_parquet
from .parts import PARTS, part_of, select_part
from .reading import find_files, read_file, read_files
from .scale import Scale
from .signals import SIGNALS
from .statistics import QuestionStatistics, cell_statistics, question_statistics

__all__ = [
    "ENCODINGS",
    "EQUIV",
    "EXACT",
    "NONE",
    "PARTS",
    "SIGNALS",
    "SYNTHETIC_MODELS",
    "BranchOrders",
    "Cell",
    "ProbeDataset",
    "ProbeMatrix",
    "Question",
    "QuestionStatistics",
    "Scale",
    "SyntheticModel",
    "cell_statistics",
    "find_files",
    "load",
    "merge_equivalent",
    "paper64_orders",
    "part_of",
    "question_statistics",
    "read_compact",
    "read_file",
    "read_files",
    "read_json",
    "read_parquet",
    "recorded_orders",
    "repo100_orders",
    "select_part",
    "smollm2",
    "stack",
    "synthetic",
    "write_compact",
    "write_json",
    "write_parquet",
]
