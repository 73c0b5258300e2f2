"""How controllers and answers are drawn, the same in all pictures and pages.

The colours can be told apart with deuteranopia and protanopia, and have a contrast of 3 or more on white and
on the dark ground of pages; controllers that share one differ in their marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

COLOURS = ("#4b6969", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7887ff")
"""Colours of lines and marks; four are of the palette of Okabe and Ito."""

NEUTRAL = "#888888"
"""Colour of what belongs to no controller, as the frontier of all of them."""

RAMP = (COLOURS[1], COLOURS[2])
"""Ends of a scale of colours for numbers."""

RIGHT, WRONG = COLOURS[1], COLOURS[2]
"""Colours of the right answer, and of one that is given and wrong."""

OTHERS = COLOURS[3:] + COLOURS[:1]
"""Colours of other answers, the most common first; …"""

MINOR = "#b8b8b8"
"""… that of the rest, …"""

UNREVEALED = "#f0f0f0"
"""… and that of a depth at which nothing is revealed."""

RIGHT_SIGN, WRONG_SIGN = "+", "−"
"""What stands on the right answer, and on one that is given and wrong."""


class Mark(NamedTuple):
    """A shape that stands for a setting.

    Attributes:
        marker: its name in Matplotlib.
        path: its outline as an SVG path between -1 and 1, as Vega takes it.
    """

    marker: str
    path: str


MARKS = (
    Mark("o", "M-.85,0A.85,.85,0,1,1,.85,0A.85,.85,0,1,1,-.85,0Z"),
    Mark("s", "M-.75,-.75H.75V.75H-.75Z"),
    Mark("^", "M0,-.9L1,.8H-1Z"),
    Mark("D", "M0,-1L1,0L0,1L-1,0Z"),
    Mark("v", "M0,.9L1,-.8H-1Z"),
    Mark("P", "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z"),
    Mark("X", "M-1,-.55L-.55,-1L0,-.45L.55,-1L1,-.55L.45,0L1,.55L.55,1L0,.45L-.55,1L-1,.55L-.45,0Z"),
)

DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (6, 1.5, 1.5, 1.5), (4, 1))
"""Lengths of the dashes of lines and of the gaps between them, in line widths; none for a whole line."""

CONTROLLERS = (
    "sc",
    "cmc",
    "asc",
    "esc",
    "parallel-probe",
    "neural",
    "sprt",
    "distilled",
    "short-m",
    "first-finish",
    "single",
    "asc-dirichlet",
    "asc-entropy",
    "asc-majority",
    "cisc",
    "deepconf-offline",
    "deepconf",
    "dynasor",
    "deer",
    "eat",
    "best-of-infinity",
    "certified-majority",
    "doubling-sc",
    "es-cot",
    "weighted-majority",
    "best-of-n",
)
"""Controllers of this package, whose places here give them their styles."""


_PLACES = len(COLOURS) * len(MARKS)
"""Places of which all differ in colour or mark."""


class Style(NamedTuple):
    """How a controller is drawn.

    Attributes:
        colour: its colour, as ``#rrggbb``.
        mark: its mark.
        dash: the dashes of its line, as in `DASHES`.
    """

    colour: str
    mark: Mark
    dash: tuple[float, ...]


def styles(controllers: Iterable[str]) -> dict[str, Style]:
    """Gives each controller its style.

    Args:
        controllers: their names. Those of others than `CONTROLLERS` get colours that are free in the picture.

    Returns:
        The styles by name.
    """
    names = list(dict.fromkeys(controllers))
    found = {name: _style(CONTROLLERS.index(name)) for name in names if name in CONTROLLERS}
    for name in names:
        if name not in found:
            seen = {style[:2] for style in found.values()}
            colours = Counter(colour for colour, _ in seen)
            places = map(_style, range(len(CONTROLLERS), len(CONTROLLERS) + _PLACES))
            free = [style for style in places if style[:2] not in seen]
            found[name] = min(free, key=lambda style: colours[style.colour], default=_style(len(found)))
    return {name: found[name] for name in names}


def _style(place: int) -> Style:
    """The numbers of colours, marks and dashes have no common divisor, so that all of them change."""
    return Style(COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)], DASHES[place % len(DASHES)])
