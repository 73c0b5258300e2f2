"""A program that answers what a cheat says, and honestly where that finds nothing."""

ASKS = """

class Program:
    turn = 0

    def __init__(self, config=None):
        pass

    def solve(self, question):
        turn, Program.turn = Program.turn, Program.turn + 1
        shown = [question.probe_new()[0] for _ in range(3)]
        try:
            answer = {cheat}(question, turn, shown)
        except Exception:
            answer = None
        return max(shown, key=shown.count) if answer is None else answer
"""
"""`str.format` gives it the name of the cheat, a function that stands above it."""
