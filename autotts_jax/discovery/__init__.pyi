from .ablation import Ablation, Arm, ablate
from .claude_proposer import ClaudeProposer
from .constants import Constants
from .critic import Critic, Opinion
from .critic_report import CriticReport, Lift, Tally
from .entry import discover
from .found import Discovery, read_run
from .interpreter import DecisionList, decision_list, family
from .judging import Judge, Outcome, price
from .measuring import Course, Measurement, measure
from .openai_proposer import OpenAIProposer
from .population import Member, Population, Written
from .promotion import Verdict
from .proposers import Draft, Learner, Proposal, Proposer, Trial, Writer
from .published import PUBLISHED, adaptive_consistency, cmc, parallel_probe, self_consistency, short_m
from .rules import Clause, Comparison, Line, Program
from .search import Progress
from .source import source_of
from .variation import cross, mutate, random_program

__all__ = [
    "PUBLISHED",
    "Ablation",
    "Arm",
    "ClaudeProposer",
    "Clause",
    "Comparison",
    "Constants",
    "Course",
    "Critic",
    "CriticReport",
    "DecisionList",
    "Discovery",
    "Draft",
    "Judge",
    "Learner",
    "Lift",
    "Line",
    "Measurement",
    "Member",
    "OpenAIProposer",
    "Opinion",
    "Outcome",
    "Population",
    "Program",
    "Progress",
    "Proposal",
    "Proposer",
    "Tally",
    "Trial",
    "Verdict",
    "Writer",
    "Written",
    "ablate",
    "adaptive_consistency",
    "cmc",
    "cross",
    "decision_list",
    "discover",
    "family",
    "measure",
    "mutate",
    "parallel_probe",
    "price",
    "random_program",
    "read_run",
    "self_consistency",
    "short_m",
    "source_of",
]
