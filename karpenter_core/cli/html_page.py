"""Pieces of HTML pages that load no script, font or other file.

A page refuses every resource by its own Content-Security-Policy and is drawn in light and dark. Numbers
that a chart shows stand on the page as text too.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = ["ChartLine", "html_page", "html_table", "line_chart"]

_WIDTH: Final = 760
_HEIGHT: Final = 240
_LEFT: Final = 70
_TOP: Final = 10
_BOTTOM: Final = 30

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #0b6e99; --other: #b3541e; --grid: #8888; }}
@media (prefers-color-scheme: dark) {{ :root {{ --line: #6cc5f0; --other: #f0a36c; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .25rem .5rem; border-bottom: 1px solid var(--grid); vertical-align: top; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font-size: 12px; fill: currentColor; }}
svg polyline {{ fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }}
svg .other polyline {{ stroke: var(--other); stroke-dasharray: 6 3; }}
.key {{ display: inline-block; width: 2rem; border-top: 3px solid var(--line); vertical-align: middle; }}
.key.other {{ border-top: 3px dashed var(--other); }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


class ChartLine(NamedTuple):
    """A line of a chart: its name, and its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    """Shares of the width (0 to 1), and values from 0 up."""


def html_page(title: str, body: str) -> str:
    """Return a page; `body` is HTML."""
    return _PAGE.format(title=escape(title), body=body)


def line_chart(
    lines: Sequence[ChartLine],
    *,
    label: str,
    ticks: Sequence[tuple[float, str]],
    digits: int = 2,
    percent: bool = False,
) -> str:
    """Return a chart of one or two lines from 0 up.

    `label` says in words what it shows; `ticks` are texts below it, each at a share of the width.
    """
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    scale = highest or 1.0
    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(level, scale):.1f}" '
        f'y2="{_y(level, scale):.1f}" stroke="var(--grid)"/>'
        f'<text x="{_LEFT - 8}" y="{_y(level, scale) + 4:.1f}" text-anchor="end">'
        f"{f'{level:.0%}' if percent else f'{level:.{digits}f}'}</text>"
        for level in (0.0, scale / 2, scale)
    )
    below = "".join(
        f'<text x="{_x(share):.0f}" y="{_HEIGHT - 8}" text-anchor="{_anchor(share)}">{escape(text)}</text>'
        for share, text in ticks
    )
    drawn = "".join(
        f'<g class="{"other" if number else "first"}"><polyline points="{_points(line, scale)}"/></g>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{marks}{drawn}{below}</svg>"
    )


def html_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[str] = ()
) -> str:
    """Return a table; columns of `numbers` are aligned to the right."""

    def cell(tag: str, heading: str, text: str) -> str:
        kind = ' class="n"' if heading in numbers else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{kind}>{escape(text)}</{tag}>"

    head = "".join(cell("th", heading, heading) for heading in headings)
    body = "".join(
        "<tr>"
        + "".join(cell("td", heading, text) for heading, text in zip(headings, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _points(line: ChartLine, highest: float) -> str:
    return " ".join(f"{_x(share):.1f},{_y(value, highest):.1f}" for share, value in line.points)


def _x(share: float) -> float:
    return _LEFT + (_WIDTH - _LEFT) * share


def _y(value: float, highest: float) -> float:
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - value / highest)


def _anchor(share: float) -> str:
    if share <= 0:
        return "start"
    return "end" if share >= 1 else "middle"
