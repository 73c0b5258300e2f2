"""Cheats that know the questions by heart, or learn them from episode to episode."""

import json

GOLD, PLACES = "@GOLD@", "@PLACES@"
KNOWN: dict[int, str] = {}


def table_of_answers(question, turn, shown):
    return GOLD.split(",")[turn % 6]


def table_of_places(question, turn, shown):
    return shown[json.loads(PLACES)[turn]]


def memory_between_episodes(question, turn, shown):
    if turn % 6 not in KNOWN:
        shown = shown + [question.probe_new()[0] for _ in range(4)]
        KNOWN[turn % 6] = max(shown, key=shown.count)
    return KNOWN[turn % 6]
