"""Generated arithmetic questions, from easy to hard, so that data can be collected without any file.

The first are additions of numbers up to 20, which the smallest models sometimes solve; the last tenth is word
problems of several steps and three-digit products. Every answer is a whole number and not negative.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from autotts_jax.collect.problem import Problem
from autotts_jax.errors import InputError

MAX_COUNT = 1000
"""Every level has more distinct questions than its share of this many."""


class Template(NamedTuple):
    """A form of question.

    Attributes:
        fill: makes the question and its answer from one number for each range.
        ranges: the smallest and the largest value of each number.
    """

    fill: Callable[..., tuple[str, int]]
    ranges: tuple[tuple[int, int], ...]


class Level(NamedTuple):
    """Questions of one difficulty.

    Attributes:
        start: the share of all questions that are easier, from 0 to 1.
        topic: its name.
        templates: the forms of its questions, used in turn.
    """

    start: float
    topic: str
    templates: tuple[Template, ...]


LEVELS = (
    Level(
        0.0,
        "addition",
        (Template(lambda a, b: (f"What is {a} + {b}?", a + b), ((1, 20), (1, 20))),),
    ),
    Level(
        0.15,
        "subtraction",
        (Template(lambda a, b: (f"What is {a + b} - {a}?", b), ((1, 20), (1, 15))),),
    ),
    Level(
        0.25,
        "sum of three",
        (
            Template(lambda a, b, c: (f"What is {a} + {b} + {c}?", a + b + c), ((5, 30),) * 3),
            Template(lambda a, b, c: (f"What is {a} + {b} - {c}?", a + b - c), ((10, 30), (10, 30), (1, 20))),
        ),
    ),
    Level(
        0.35,
        "sum of four",
        (
            Template(
                lambda a, b, c, d: (f"What is {a} + {b} - {c} + {d}?", a + b - c + d),
                ((20, 60), (20, 60), (5, 40), (20, 60)),
            ),
            Template(
                lambda a, b, c, d: (f"What is {a} - {b} + {c} - {d}?", a - b + c - d),
                ((50, 99), (5, 50), (20, 60), (5, 20)),
            ),
        ),
    ),
    Level(
        0.45,
        "times table",
        (Template(lambda a, b: (f"What is {a} * {b}?", a * b), ((2, 12), (2, 12))),),
    ),
    Level(
        0.55,
        "word problem of one step",
        (
            Template(
                lambda a, b: (
                    f"A pencil costs {a} cents. How many cents do {b} pencils cost?",
                    a * b,
                ),
                ((5, 25), (2, 9)),
            ),
            Template(
                lambda a, b: (
                    f"Anna shares {a * b} sweets equally among {b} friends. "
                    "How many sweets does each friend get?",
                    a,
                ),
                ((3, 15), (2, 9)),
            ),
            Template(
                lambda a, b: (
                    f"Ben is {a + b} years old. How old was he {b} years ago?",
                    a,
                ),
                ((3, 40), (2, 30)),
            ),
            Template(
                lambda a, b: (
                    f"A cyclist rides {a} km every hour. How many km does she ride in {b} hours?",
                    a * b,
                ),
                ((11, 29), (2, 8)),
            ),
        ),
    ),
    Level(
        0.62,
        "two-digit product",
        (Template(lambda a, b: (f"What is {a} * {b}?", a * b), ((13, 99), (13, 99))),),
    ),
    Level(
        0.69,
        "brackets",
        (
            Template(
                lambda a, b, c, d: (f"What is ({a} + {b}) * {c} - {d}?", (a + b) * c - d),
                ((5, 25), (5, 25), (3, 9), (2, 29)),
            ),
            Template(
                lambda a, b, c, d: (f"What is {a} * ({b + c} - {b}) + {d}?", a * c + d),
                ((3, 12), (5, 30), (3, 20), (11, 99)),
            ),
            Template(
                lambda a, b, c, d: (f"What is ({a + b} - {a}) * ({c} + {d})?", b * (c + d)),
                ((5, 30), (3, 12), (3, 15), (3, 15)),
            ),
        ),
    ),
    Level(
        0.76,
        "remainder",
        (
            Template(
                lambda a, b: (f"What is the remainder when {a} is divided by {b}?", a % b),
                ((50, 999), (6, 29)),
            ),
        ),
    ),
    Level(
        0.83,
        "word problem of two steps",
        (
            Template(
                lambda a, b, c: (
                    f"Carla buys {a} apples at {b} cents each and pays with {a * b + c} cents. "
                    "How many cents does she get back?",
                    c,
                ),
                ((3, 9), (15, 60), (5, 200)),
            ),
            Template(
                lambda a, b, c: (
                    f"David has {a * b + c} cards. He gives {c} of them to his sister and shares the others "
                    f"equally among {b} friends. How many cards does each friend get?",
                    a,
                ),
                ((4, 20), (3, 9), (5, 40)),
            ),
            Template(
                lambda a, b: (
                    f"Eva is {a} years old, and her grandmother is {b} times as old. "
                    "What is the sum of their ages?",
                    a + a * b,
                ),
                ((7, 15), (4, 6)),
            ),
            Template(
                lambda a, b, c: (
                    f"A bus drives {a} hours at {b} km per hour and then {c} km more. "
                    "How many km does it drive in all?",
                    a * b + c,
                ),
                ((2, 6), (41, 89), (12, 99)),
            ),
        ),
    ),
    Level(
        0.9,
        "word problem of several steps",
        (
            Template(
                lambda a, b, c, d, e: (
                    f"Felix buys {a} notebooks at {b} cents each and {c} pens at {d} cents each, and pays "
                    f"with {a * b + c * d + e} cents. How many cents does he get back?",
                    e,
                ),
                ((3, 9), (85, 240), (3, 9), (45, 130), (15, 500)),
            ),
            Template(
                lambda a, b, c, d: (
                    f"A baker bakes {a} trays of {b} rolls and sells {c} rolls. She packs the others into "
                    f"bags of {d} until too few are left to fill a bag. How many rolls are left?",
                    (a * b - c) % d,
                ),
                ((8, 15), (18, 36), (25, 99), (7, 13)),
            ),
            Template(
                lambda a, b, c, d: (
                    f"Greta is {a} years old. Her brother is {b} years older, and her mother is {d} times as "
                    f"old as Greta. What will the sum of the three ages be in {c} years?",
                    a + (a + b) + d * a + 3 * c,
                ),
                ((7, 14), (2, 9), (3, 15), (3, 4)),
            ),
            Template(
                lambda a, b, c, d, e: (
                    f"A train has {a * b + c * d + e} km to go. It runs {a} hours at {b} km per hour and "
                    f"then {c} hours at {d} km per hour. How many km are left?",
                    e,
                ),
                ((2, 6), (63, 148), (2, 6), (63, 148), (13, 280)),
            ),
        ),
    ),
    Level(
        0.95,
        "three-digit product",
        (Template(lambda a, b: (f"What is {a} * {b}?", a * b), ((112, 989), (112, 989))),),
    ),
)
"""The levels, the easiest first."""


def arithmetic(count: int = 40, seed: int = 0) -> list[Problem]:
    """Draws questions with distinct texts, the easiest first.

    Args:
        count: number of questions, 1 to `MAX_COUNT`. Each level has a fixed share of them.
        seed: the same seed gives the same questions on every machine and version of Python.

    Returns:
        The problems; their ``topic`` is the name of their level.

    Raises:
        InputError: the count is out of range.
    """
    if not 1 <= count <= MAX_COUNT:
        raise InputError(f"{count} arithmetic questions; ask for 1 to {MAX_COUNT}")
    rng = random.Random(seed)
    questions: dict[str, Problem] = {}
    while len(questions) < count:
        share = len(questions) / count
        level = next(level for level in reversed(LEVELS) if level.start <= share)
        fill, ranges = level.templates[len(questions) % len(level.templates)]
        text, answer = fill(*(_number(rng, *bounds) for bounds in ranges))
        questions.setdefault(text, Problem(text, str(answer), level.topic))
    return list(questions.values())


def _number(rng: random.Random, least: int, greatest: int) -> int:
    # Python promises only of random() that it stays the same between versions.
    return least + int(rng.random() * (greatest - least + 1))
