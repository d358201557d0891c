"""Writes the parts of `karpenter top` as text: amounts, ages and bars."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.labels import CPU
from karpenter_core.api.quantities import format_amount
from karpenter_core.cli.tables import money_text
from karpenter_core.cli.top.view import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.cli.top.view import ResourceUse

__all__ = [
    "Line", "TextSpan", "Tone", "age_text", "amount_text", "bar", "clipped", "month_text", "percent",
    "plain", "price_text", "share_tone", "spaced", "state_tone",
]  # fmt: skip

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_GOOD_SHARE: Final = 0.9
_FAIR_SHARE: Final = 0.6
_MOST_PERCENT: Final = 999
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_BINARY: Final = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


class Tone(StrEnum):
    """Meanings of colours; text is complete without them."""

    PLAIN = "plain"
    HEADING = "heading"
    DIM = "dim"
    GOOD = "good"
    FAIR = "fair"
    BAD = "bad"


class TextSpan(NamedTuple):
    """A piece of a line with one tone."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[TextSpan, ...]


def plain(line: Line) -> str:
    """Return the text of a line, without spaces at its end."""
    return "".join(span.text for span in line).rstrip()


def clipped(line: Line, width: int | None) -> Line:
    """Return a line cut at a width; None is no limit."""
    if width is None or sum(len(span.text) for span in line) <= width:
        return line
    kept: list[TextSpan] = []
    left = max(width - 1, 0)
    for span in line:
        kept.append(TextSpan(span.text[:left], span.tone))
        left -= len(kept[-1].text)
    return (*kept, TextSpan("…"[:width])) if width > 0 else ()


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of this width; a share above 1 fills it."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    if ascii_only:
        filled = round(eighths / 8)
        return "#" * filled + "." * (width - filled)
    full = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return full + "░" * (width - len(full))


def percent(share: float) -> str:
    """Return a share as percent, four characters wide."""
    return f"{min(round(100 * share), _MOST_PERCENT):>3}%"


def share_tone(use: ResourceUse) -> Tone:
    """Return good above 90 %, fair above 60 %, else bad; dim if there is nothing to use."""
    if use.allocatable <= 0:
        return Tone.DIM
    if use.share > _GOOD_SHARE:
        return Tone.GOOD
    return Tone.FAIR if use.share > _FAIR_SHARE else Tone.BAD


def state_tone(state: NodeState) -> Tone:
    """Return the tone of a state."""
    if state is NodeState.READY:
        return Tone.GOOD
    return Tone.BAD if state is NodeState.NOT_READY else Tone.FAIR


def amount_text(resource: str, amount: int) -> str:
    """Return an amount as people say it: cores, binary units, or a plain number."""
    if resource == CPU:
        return f"{amount / 1000:.1f}".removesuffix(".0")
    if resource == "memory" or "storage" in resource or resource.startswith("hugepages-"):
        for unit, suffix in _BINARY:
            if amount >= unit:
                return f"{amount / unit:.1f}".removesuffix(".0") + suffix
    return format_amount(resource, amount)


def age_text(seconds: float | None) -> str:
    """Return an age in its largest unit; a dash if it is unknown."""
    if seconds is None:
        return "-"
    for unit, suffix in _AGES:
        if seconds >= 2 * unit or unit == 1:
            return f"{int(seconds // unit)}{suffix}"
    return "0s"


def price_text(price: float | None) -> str:
    """Return a price per hour; a dash if it is unknown."""
    return "-" if price is None else money_text(price)


def month_text(price: float) -> str:
    """Return a price per month."""
    return f"{price:,.2f}"


def spaced(parts: Iterable[str]) -> str:
    """Join the parts that are not empty by commas."""
    return ", ".join(part for part in parts if part)
