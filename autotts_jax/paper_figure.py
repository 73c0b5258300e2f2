"""A figure of Matplotlib that is drawn and saved as papers want it."""

from __future__ import annotations

import io
import warnings
from typing import Any

import matplotlib
from matplotlib.figure import Figure

SETTINGS: Any = {
    "font.size": 7,
    "axes.titlesize": 7,
    "figure.titlesize": 7,
    "figure.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}
"""Settings of Matplotlib; its type 42 is text in a font, where by default it draws letters as outlines."""


class PaperFigure(Figure):
    """A figure that takes its settings with it, as Matplotlib reads some of them when it draws."""

    def draw(self, *arguments: Any) -> None:
        """Draws the figure, as Matplotlib's figures do."""
        with matplotlib.rc_context(SETTINGS):
            super().draw(*arguments)

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """Saves the figure, as Matplotlib's figures do."""
        with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
            # Answers may be in any script; a box then stands for what the font does not have.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            super().savefig(*arguments, **options)

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
