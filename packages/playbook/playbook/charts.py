"""Charts as SVG whose colours follow the page's theme."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# colours that are drawn with, and what stands for them in the page
INK, QUIET, LINE = "#010203", "#010204", "#010205"
SERIES = [f"#01030{number}" for number in range(1, 7)]
VARIABLES = {INK: "--ink", QUIET: "--quiet", LINE: "--line"} | {
    colour: f"--c{number}" for number, colour in enumerate(SERIES, 1)
}
LIGHT = {  # the page's light theme, for what has no theme
    INK: "#16191d",
    QUIET: "#59626e",
    LINE: "#dfe3e8",
    **dict(zip(SERIES, ("#1d5fd1", "#b45309", "#17713a", "#a21caf", "#0e7490", "#b3261e"), strict=True)),
}
COLOURED = "color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"  # properties of matplotlib's artists
RASTERS: ContextVar[dict[str, bytes] | None] = ContextVar("RASTERS", default=None)
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, and a tenth of the size
    "svg.hashsalt": "playbook",
    "font.family": ["sans-serif"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.facecolor": "none",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.5,
    "savefig.facecolor": "none",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


def style() -> AbstractContextManager[None]:
    """Settings of matplotlib within which a chart is drawn."""
    import matplotlib as mpl
    from cycler import cycler

    settings: Any = {**SETTINGS, "axes.prop_cycle": cycler(color=SERIES)}
    return mpl.rc_context(settings)


def chart_axes(width: float = 5.2, height: float = 2.9) -> tuple["Figure", Any]:
    """An empty figure and its axes; without pyplot, which would look for a screen.

    Within the `report` of a task, the colours of matplotlib's cycle and of its texts are those of the page's theme.

    Args:
        width: in inches.
        height: in inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def to_svg(figure: "Figure") -> str:
    """The SVG of a figure that was drawn within `style`."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # the same in every chart; nothing refers to them
    svg = re.sub(
        r'(<svg [^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r"\n\s*", "\n", svg).strip()
    if (rasters := RASTERS.get()) is not None:
        rasters[svg] = _to_png(figure)
    return svg


@contextmanager
def keep_rasters() -> Iterator[dict[str, bytes]]:
    """Within it, `to_svg` also draws a PNG of each figure, in light colours; by their SVG."""
    token = RASTERS.set(rasters := {})
    try:
        yield rasters
    finally:
        RASTERS.reset(token)


def _to_png(figure: "Figure") -> bytes:
    """The PNG of a figure, which keeps the light colours."""
    from matplotlib.colors import to_hex

    for artist in figure.findobj():
        for name in COLOURED:
            value = getattr(artist, f"get_{name}", str)()
            try:
                colour = LIGHT.get(to_hex(value[0] if getattr(value, "ndim", 1) == 2 and len(value) == 1 else value))
            except (ValueError, TypeError, IndexError):  # several colours, or none
                continue
            if colour is not None:
                getattr(artist, f"set_{name}")(colour)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, facecolor="white")
    return file.getvalue()


def lines(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x_label: str,
    y_label: str = "",
    log_y: bool = False,
    mark: tuple[float, str] | None = None,
    from_zero: bool = False,
) -> str:
    """Curves over a common axis.

    Args:
        curves: x and y of each, by name.
        x_label: of the axis.
        y_label: of the axis.
        log_y: whether y is shown in powers of ten.
        mark: place and name of a vertical line.
        from_zero: whether y begins at 0, so that a curve that hardly changes looks level.
    """
    with style():
        figure, axes = chart_axes()
        for name, (x, y) in curves.items():
            axes.plot(x, y, label=name, marker="." if len(x) < 30 else None)
        if mark is not None:
            axes.axvline(mark[0], color=QUIET, linewidth=0.8, linestyle="--")
            axes.annotate(
                mark[1], (mark[0], 1), xycoords=("data", "axes fraction"), fontsize=8, color=QUIET, ha="right"
            )
        axes.set(xlabel=x_label, ylabel=y_label, yscale="log" if log_y else "linear")
        if from_zero:
            axes.set_ylim(bottom=0)
        if len(curves) > 1:
            axes.legend(fontsize=8)
        return to_svg(figure)


def bars(values: Mapping[str, float], x_label: str) -> str:
    """Horizontal bars, the first one at the top."""
    with style():
        figure, axes = chart_axes(height=0.7 + 0.22 * len(values))
        axes.barh(list(values), list(values.values()), color=SERIES[0])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel=x_label)
        return to_svg(figure)


def stacked_bar(values: Mapping[str, float], x_label: str) -> str:
    """Parts of a whole as one bar, the first at the left; at most as many as there are colours.

    Args:
        values: of each part, by name.
        x_label: unit of the values.
    """
    with style():
        figure, axes = chart_axes(height=1.5)
        start = 0.0
        for (name, value), colour in zip(values.items(), SERIES, strict=False):
            axes.barh([0], [value], left=start, color=colour, label=f"{name} {value:.0f} {x_label}")
            start += value
        axes.set(xlim=(0, start or 1), yticks=[], xlabel=x_label)
        axes.grid(axis="y", visible=False)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=8)
        return to_svg(figure)


def points(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, level: tuple[float, str]) -> str:
    """Points, and a horizontal line at a level.

    Args:
        x: of each point.
        y: of each point.
        x_label: of the axis.
        y_label: of the axis.
        level: place and name of the line.
    """
    with style():
        figure, axes = chart_axes()
        axes.plot(x, y, ".", markersize=3)
        axes.axhline(level[0], color=QUIET, linewidth=0.8, linestyle="--")
        axes.annotate(level[1], (1, level[0]), xycoords=("axes fraction", "data"), fontsize=8, color=QUIET, ha="right")
        axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, None))
        return to_svg(figure)


def areas(
    x: Sequence[float], layers: Mapping[str, Sequence[float]], x_label: str, y_label: str, marks: Mapping[float, str]
) -> str:
    """Layers on top of each other, over a common axis.

    Args:
        x: places on the axis.
        layers: values at these, by name, from the bottom.
        x_label: of the axis.
        y_label: of the axis.
        marks: names of places, above the chart.
    """
    with style():
        figure, axes = chart_axes(height=3.4)
        axes.stackplot(x, list(layers.values()), labels=list(layers), colors=SERIES, alpha=0.8, linewidth=0)
        for number, (place, name) in enumerate(marks.items()):
            axes.axvline(place, color=QUIET, linewidth=0.8, linestyle="--")
            height = 1.02 + 0.07 * (number % 3)  # places may be close to each other
            axes.annotate(name, (place, height), xycoords=("data", "axes fraction"), fontsize=8, color=QUIET)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.margins(x=0)
        figure.legend(fontsize=8, ncols=3, loc="outside lower center")
        return to_svg(figure)
