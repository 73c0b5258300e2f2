"""Draws the moving picture of the README: one recorded episode, round by round, as an SVG file.

    python docs/episode.py ../shared/replay/Qwen3-8B/aime24.json

``make pictures`` calls it. A row is a branch and a column an interval; the colour of a square is the answer
that the branch gave there. Without animation the picture shows the end of the episode.
"""

from html import escape
from pathlib import Path
from typing import Annotated

import typer

import autotts_jax as at

SIDE, LEFT, TOP = 11, 58, 60
"""Pixels from square to square, and where the first one is."""
WIDTH = 500
"""Pixels that the longest line of text needs."""
ROUND_SECONDS, HOLD_SECONDS = 0.2, 3.0
RIGHT, WRONG, OTHER = "#0072B2", "#E69F00", "#B8B8B8"  # Okabe and Ito's blue and orange
LIVE = "#222222"
PICTURE = Path(__file__).with_name("episode.svg")


def main(
    data: Annotated[Path, typer.Argument(help="Qwen3-8B/aime24.json of the released data.")],
    question: Annotated[int, typer.Option(help="Question.")] = 10,
    controller: Annotated[str, typer.Option(help="Controller.")] = "cmc@0.2",
    out: Annotated[Path, typer.Option(help="File.")] = PICTURE,
) -> None:
    """Plays the episode, and draws it."""
    episode = at.trace(at.load(data), controller, question=question)
    out.write_text(picture(episode, controller), encoding="utf-8")


def picture(episode: at.Trace, controller: str) -> str:
    """The picture of an episode."""
    length = episode.rounds * ROUND_SECONDS + HOLD_SECONDS
    answers = [answer for shown in episode.shown for answer in shown if answer != episode.gold]
    wrong = max(set(answers), key=answers.count)
    colours = {episode.gold: RIGHT, wrong: WRONG}
    depth = [0] * len(episode.shown)
    rounds: dict[int, list[str]] = {}
    counts: list[tuple[float, str]] = []
    for step in episode.steps:
        drawn = rounds.setdefault(step.round, [])
        decision = step.decision
        for branch in decision.branches:
            shown = episode.shown[branch]
            if decision.action == "prune":
                drawn.append(mark(branch, depth[branch], "×"))
            elif decision.action != "answer":
                reach = depth[branch] + decision.intervals[decision.branches.index(branch)]
                for column in range(depth[branch], reach):
                    drawn.append(square(branch, column, colours.get(shown[column], OTHER)))
                depth[branch] = reach
                if episode.finished[branch] and reach == len(shown):
                    drawn.append(mark(branch, reach, "●"))
        who = "finished branches vote" if step.final else "latest answers"
        said = "   ".join(f"{answer}: {votes}" for answer, votes in list(step.votes.items())[:3])
        counts.append((step.round * ROUND_SECONDS, f"{step.tokens:,} tokens   {who}   {said}"))
    counts[-1] = (counts[-1][0], counts[-1][1] + f"   answer: {episode.answer}")
    width, height = max(LEFT + SIDE * (max(depth) + 3), WIDTH), TOP + SIDE * len(depth) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(episode.title)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#FFFFFF"/>',
        text(12, 20, f"{controller} on a question of AIME24, replayed from branches of Qwen3-8B", LIVE),
        *key([(RIGHT, f"{episode.gold} (right)"), (WRONG, wrong), (OTHER, "others")]),
        text(12, TOP + SIDE * len(depth) / 2, "width", LIVE),
        text(LEFT, height - 22, "depth: 500 tokens a square →    ● finished    × pruned", LIVE),
    ]
    for number, drawn in rounds.items():
        parts.append(f"<g>{appears(number * ROUND_SECONDS, None, length)}{''.join(drawn)}</g>")
    for (start, line), following in zip(counts, [*counts[1:], None], strict=True):
        end = following[0] if following else None
        if end != start:
            opacity = "" if end is None else ' opacity="0"'
            parts.append(f"<g{opacity}>{appears(start, end, length)}{text(LEFT, height - 6, line, LIVE)}</g>")
    return "\n".join([*parts, "</svg>\n"])


def square(branch: int, column: int, colour: str) -> str:
    """An interval of a branch."""
    x, y = LEFT + SIDE * column, TOP + SIDE * branch
    return f'<rect x="{x}" y="{y}" width="{SIDE - 1}" height="{SIDE - 1}" fill="{colour}"/>'


def mark(branch: int, column: int, sign: str) -> str:
    """How a branch ended."""
    return text(LEFT + SIDE * column + 2, TOP + SIDE * (branch + 1) - 2, sign, LIVE)


def text(x: float, y: float, line: str, colour: str) -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y:g}" fill="{colour}" xml:space="preserve">{escape(line)}</text>'


def key(entries: list[tuple[str, str]]) -> list[str]:
    """What the colours mean."""
    drawn, x = [], LEFT
    for colour, name in entries:
        drawn.append(f'<rect x="{x}" y="33" width="{SIDE}" height="{SIDE}" fill="{colour}"/>')
        drawn.append(text(x + SIDE + 5, 43, name, LIVE))
        x += 45 + 7 * len(name)
    return drawn


def appears(start: float, end: float | None, length: float) -> str:
    """The animation of what is shown from one time to another of a loop, in seconds."""
    times = [(0.0, 0)] * (start > 0) + [(start, 1)] + ([] if end is None else [(end, 0)])
    values = ";".join(str(value) for _, value in times)
    keys = ";".join(f"{time / length:.4g}" for time, _ in times)
    return (
        f'<animate attributeName="opacity" values="{values}" keyTimes="{keys}" dur="{length:g}s" '
        'calcMode="discrete" repeatCount="indefinite"/>'
    )


if __name__ == "__main__":
    typer.run(main)
