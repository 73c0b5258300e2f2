from .ablation import Ablation, Arm, ablate
from .critics.critic import Critic, Opinion
from .critics.report import CriticReport, Lift, Tally
from .distillation.distill import Distilled, VoteWeights, distill
from .entry import discover
from .judging.judge import Judge, Outcome, price
from .judging.measuring import Course, Measurement, measure
from .judging.promotion import Verdict
from .population import Member, Population, Written
from .programs.interpreter import DecisionList, decision_list, family
from .programs.published import (
    PUBLISHED,
    adaptive_consistency,
    cmc,
    parallel_probe,
    self_consistency,
    short_m,
)
from .programs.rules import Clause, Condition, Line, Program
from .programs.source import source_of
from .programs.variation import cross, mutate, random_program
from .proposers.claude import ClaudeProposer
from .proposers.constants import Constants
from .proposers.openai import OpenAIProposer
from .proposers.prompts import prompt
from .proposers.protocol import Draft, Learner, Proposal, Proposer, Trial, Writer
from .results.found import Discovery, read_run
from .search import SearchProgress

__all__ = [
    "PUBLISHED",
    "Ablation",
    "Arm",
    "ClaudeProposer",
    "Clause",
    "Condition",
    "Constants",
    "Course",
    "Critic",
    "CriticReport",
    "DecisionList",
    "Discovery",
    "Distilled",
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
    "Proposal",
    "Proposer",
    "SearchProgress",
    "Tally",
    "Trial",
    "Verdict",
    "VoteWeights",
    "Writer",
    "Written",
    "ablate",
    "adaptive_consistency",
    "cmc",
    "cross",
    "decision_list",
    "discover",
    "distill",
    "family",
    "measure",
    "mutate",
    "parallel_probe",
    "price",
    "prompt",
    "random_program",
    "read_run",
    "self_consistency",
    "short_m",
    "source_of",
]
