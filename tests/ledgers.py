"""Programs' questions in this process: the ledger, asked without a child between."""

from autotts_jax.policies.sealed.ledger import Ledger, records
from autotts_jax.policies.sealed.question import NO_ANSWER, ProgramQuestion


def question_of(dataset, order, *, question=0, budget=None) -> tuple[ProgramQuestion, Ledger]:
    """A question of a dataset as a program is given it, with spelled answers; and its books."""
    order = [int(branch) for branch in order]
    ledger = Ledger(records(dataset.matrix)[question], order, budget)
    table = [(NO_ANSWER, finished) for finished in (False, True)]

    def ask(request):
        reply = ledger.act(request)
        for answer in ledger.answers[len(table) // 2 - 1 :]:
            text = dataset.questions[question].vocabulary[answer]
            table.extend([(text, False), (text, True)])
        return reply

    return ProgramQuestion(ask, table, len(order)), ledger
