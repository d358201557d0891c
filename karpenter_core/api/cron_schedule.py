"""Parses the cron schedules of disruption budgets and of NodePools.

What a budget's schedule means is fixed by existing NodePools: five fields or one of seven macros,
as the parser of the reference reads them. This module reads the fields itself, strictly, and names
the error; `cronsim` computes the dates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CronSchedule"]

_MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = 5


@dataclass(frozen=True, slots=True)
class _FieldBounds:
    """The range of values of one field."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Read a number or a name."""
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.lowest
        if not (text.isascii() and text.isdigit()):
            message = f'{self.name}: "{text}" is not a number'
            raise ValueError(message)
        return int(text)


_BOUNDS: Final = (
    _FieldBounds("minute", 0, 59),
    _FieldBounds("hour", 0, 23),
    _FieldBounds("day of month", 1, 31),
    _FieldBounds(
        "month",
        1,
        12,
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ),
    _FieldBounds("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A parsed schedule; `expression` is its canonical form."""

    expression: str

    @classmethod
    def parse(cls, text: str) -> CronSchedule:
        """Read five cron fields or a macro.

        Raises:
            BadInputError: names the wrong field and the error.
        """
        fields = _MACROS.get(text, text).split()
        if text.startswith("@") and text not in _MACROS:
            raise BadInputError(f'schedule "{text}": unrecognized descriptor')
        if len(fields) != _FIELDS:
            raise BadInputError(
                f'schedule "{text}": expected exactly {_FIELDS} fields, found {len(fields)}'
            )
        try:
            canonical = [_canonical(*pair) for pair in zip(fields, _BOUNDS, strict=True)]
        except ValueError as error:
            raise BadInputError(f'schedule "{text}": {error}') from error
        return cls(" ".join(canonical))

    def next_after(self, at: datetime) -> datetime | None:
        """Return the first hit strictly after an instant; None when there is none."""
        from cronsim import CronSim, CronSimError

        try:
            return next(CronSim(self.expression, at.astimezone(UTC)))
        except (CronSimError, StopIteration):
            return None

    def next_local(self, at: datetime) -> datetime | None:
        """Return the first hit strictly after a local time without zone; None when there is none."""
        return self._local_hit(at.replace(microsecond=0), is_reverse=False)

    def last_local(self, at: datetime) -> datetime | None:
        """Return the last hit up to a local time without zone; None when there is none."""
        return self._local_hit(at.replace(microsecond=0) + timedelta(seconds=1), is_reverse=True)

    def _local_hit(self, at: datetime, *, is_reverse: bool) -> datetime | None:
        from cronsim import CronSim, CronSimError

        try:
            return next(CronSim(self.expression, at, reverse=is_reverse))
        except (CronSimError, StopIteration, OverflowError, ValueError):
            return None


def _canonical(field: str, bounds: _FieldBounds) -> str:
    """Write a field as a star or a list of numbers.

    A star counts as "any day" only without a step above one: when both day fields restrict, either
    may match, else both must. `cronsim` has the same rule for what is written with a star.
    """
    values: set[int] = set()
    any_value = False
    terms = [term for term in field.split(",") if term]
    for term in terms:
        hits, is_star = _term(term, bounds)
        values.update(hits)
        any_value |= is_star
    if not terms:
        message = f'{bounds.name}: "{field}" is empty'
        raise ValueError(message)
    return "*" if any_value else ",".join(str(value) for value in sorted(values))


def _term(term: str, bounds: _FieldBounds) -> tuple[range, bool]:
    span, slash, step_text = term.partition("/")
    low_text, hyphen, high_text = span.partition("-")
    is_star = span in {"*", "?"}
    if is_star:
        low, high = bounds.lowest, bounds.highest
    else:
        low = bounds.number(low_text)
        high = bounds.number(high_text) if hyphen else low
    step = 1
    if slash:
        step = _FieldBounds(f"{bounds.name} step", 1, bounds.highest).number(step_text)
        high = high if hyphen else bounds.highest
    if low < bounds.lowest:
        problem = f"beginning of range ({low}) below minimum ({bounds.lowest})"
    elif high > bounds.highest:
        problem = f"end of range ({high}) above maximum ({bounds.highest})"
    elif low > high:
        problem = f"beginning of range ({low}) beyond end of range ({high})"
    elif step == 0:
        problem = "step of range should be a positive number"
    else:
        return range(low, high + 1, step), is_star and step == 1
    message = f"{bounds.name}: {problem}: {term}"
    raise ValueError(message)
