from .entry import Discovery, discover, read_run
from .interpreter import DecisionList, decision_list, family
from .judging import Judge, Outcome, price
from .population import Member, Population
from .promotion import Verdict
from .proposers import Proposal, Proposer
from .rules import Clause, Comparison, Line, Program, cmc, parallel_probe, self_consistency
from .search import Progress
from .source import source_of
from .variation import cross, mutate, random_program

__all__ = [
    "Clause",
    "Comparison",
    "DecisionList",
    "Discovery",
    "Judge",
    "Line",
    "Member",
    "Outcome",
    "Population",
    "Program",
    "Progress",
    "Proposal",
    "Proposer",
    "Verdict",
    "cmc",
    "cross",
    "decision_list",
    "discover",
    "family",
    "mutate",
    "parallel_probe",
    "price",
    "random_program",
    "read_run",
    "self_consistency",
    "source_of",
]
