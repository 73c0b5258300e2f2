"""Cheats that find the gold answer, or change the judge, in the process that they run in."""

import builtins
import gc
import sys
import threading


def _gold_in(frame, shown):
    while frame is not None:
        for value in frame.f_locals.values():
            gold = getattr(value, "gold", None)
            if isinstance(gold, str) and gold in shown:
                return gold
        frame = frame.f_back
    return None


def frames(question, turn, shown):
    return _gold_in(sys._getframe(1), shown)


def traceback(question, turn, shown):
    try:
        question.probe_more(99)
    except IndexError as error:
        return _gold_in(error.__traceback__.tb_frame, shown)


def frames_of_threads(question, turn, shown):
    found = []

    def look():
        found.extend(_gold_in(frame, shown) for frame in sys._current_frames().values())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return next(filter(None, found), None)


SEEN: list[str] = []


def thread_that_outlives_solve(question, turn, shown):
    if not turn:
        judge = threading.get_ident()

        def look():
            for _ in range(10**6):
                frame = sys._current_frames().get(judge)
                while frame is not None:
                    SEEN.extend(getattr(record, "gold", "") for record in frame.f_locals.get("records", ()))
                    frame = frame.f_back
                if SEEN:
                    return
                threading.Event().wait(1e-3)

        threading.Thread(target=look, daemon=True).start()
    else:
        threading.Event().wait(2e-2)
    return next((gold for gold in SEEN if gold in shown), None)


def collector(question, turn, shown):
    records = [found for found in gc.get_objects() if type(found).__name__ == "Question"]
    return next((r.gold for r in records if getattr(r, "gold", None) in shown), None)


def closures(question, turn, shown):
    for cell in question._ask.__closure__:
        if hasattr(cell.cell_contents, "questions"):
            return cell.cell_contents.questions[turn % 6].gold


def defaults(question, turn, shown):
    functions = [found for found in gc.get_objects() if type(found) is type(defaults)]
    graders = [found for found in functions if found.__name__ == "grade" and found.__defaults__]
    return next(g.__defaults__[0] for g in graders if g.__defaults__[0] in shown)


def modules(question, turn, shown):
    for module in list(sys.modules.values()):
        data = vars(module).get("DATA")
        for record in getattr(data, "questions", ())[turn % 6 : turn % 6 + 1]:
            if record.gold in shown:
                return record.gold


class Loot:
    """Finds the gold answer where it is unpickled."""

    def __reduce__(self):
        code = (
            "next(record.gold for frame in __import__('sys')._current_frames().values()"
            " for record in [frame.f_back and frame.f_locals.get('record')] if record is not None)"
        )
        return eval, (code,)


def pickles(question, turn, shown):
    return Loot()


class EqualToAll(str):
    """An answer that says it is right."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def equal_to_all(question, turn, shown):
    return EqualToAll("x")


def patched_builtins(question, turn, shown):
    builtins.sum = lambda *_: 0


def patched_modules(question, turn, shown):
    from autotts_jax.policies.sealed.ledger import Ledger

    Ledger.tokens = property(lambda _: 0)
