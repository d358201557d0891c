"""Implements the requirement on a label: the set of its allowed values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ALIASES
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import RequirementSpec

__all__ = ["ABSENCE_OPERATORS", "Requirement", "parse_integer"]

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
ABSENCE_OPERATORS: Final = frozenset({"NotIn", "DoesNotExist"})
"""The operators that a node without the label meets."""

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_SHOWN_VALUES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The values that one label may take.

    `complement` says that `values` are the forbidden ones. Bounds are inclusive; only complements
    have them. `min_values` is how many distinct values the instance types of a claim must offer.
    """

    key: str
    complement: bool
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    @classmethod
    def of(
        cls,
        key: str,
        operator: str,
        values: Iterable[str] = (),
        *,
        min_values: int | None = None,
        aliases: Mapping[str, str] = ALIASES,
    ) -> Requirement:
        """Read a match expression; deprecated keys become the canonical ones.

        Raises:
            BadInputError: the operator is unknown, or a bound is not an integer.
        """
        key = aliases.get(key, key)
        match operator:
            case "In":
                return cls(
                    key=key, complement=False, values=frozenset(values), min_values=min_values
                )
            case "NotIn":
                return cls(
                    key=key, complement=True, values=frozenset(values), min_values=min_values
                )
            case "Exists":
                return cls(key=key, complement=True, min_values=min_values)
            case "DoesNotExist":
                return cls(key=key, complement=False, min_values=min_values)
            case "Gt" | "Lt" | "Gte" | "Lte":
                return cls._bounded(key, operator, tuple(values), min_values)
            case _:
                raise BadInputError(
                    f'requirement on "{key}": unknown operator "{operator}"; '
                    "use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte"
                )

    @classmethod
    def _bounded(
        cls, key: str, operator: str, values: tuple[str, ...], min_values: int | None
    ) -> Requirement:
        bound = parse_integer(values[0]) if len(values) == 1 else None
        if bound is None:
            raise BadInputError(
                f'requirement on "{key}": {operator} needs one integer, not {list(values)}'
            )
        if operator in {"Gt", "Gte"}:
            gte = bound + 1 if operator == "Gt" else bound
            if gte > MAX_INT64:
                return cls(key=key, complement=False, min_values=min_values)
            return cls(key=key, complement=True, gte=gte, min_values=min_values)
        lte = bound - 1 if operator == "Lt" else bound
        if lte < MIN_INT64:
            return cls(key=key, complement=False, min_values=min_values)
        return cls(key=key, complement=True, lte=lte, min_values=min_values)

    @property
    def operator(self) -> str:
        """In, NotIn, Exists or DoesNotExist; bounds do not show."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    def is_within_bounds(self, value: str) -> bool:
        """Whether a value lies in the range; when there is one, only integers can."""
        if self.gte is None and self.lte is None:
            return True
        number = parse_integer(value)
        if number is None:
            return False
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    def has(self, value: str) -> bool:
        """Whether the label may take this value."""
        return (value in self.values) != self.complement and self.is_within_bounds(value)

    def any_value(self) -> str:
        """Choose one allowed value, always the same; empty for DoesNotExist.

        The smallest of a finite set; of a complement the smallest allowed integer that is not
        negative (or the largest one, when only negative ones are allowed).
        """
        if not self.complement:
            return min(self.values, default="")
        upwards = 0 if self.gte is None else self.gte
        while str(upwards) in self.values:
            upwards += 1
        if self.lte is None or upwards <= self.lte:
            return str(upwards) if upwards <= MAX_INT64 else ""
        if self.gte is not None:
            return ""
        downwards = self.lte
        while str(downwards) in self.values:
            downwards -= 1
        return str(downwards)

    def intersection(self, other: Requirement) -> Requirement:
        """Return what both allow; the key is this requirement's."""
        if self == other:
            return self
        min_values = _largest(self.min_values, other.min_values)
        gte = _largest(self.gte, other.gte)
        lte = _smallest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(key=self.key, complement=False, min_values=min_values)
        if self.complement and other.complement:
            values = self.values | other.values
        elif self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        complement = self.complement and other.complement
        if gte is not None or lte is not None:
            values = _within(values, gte, lte)
        return Requirement(
            key=self.key,
            complement=complement,
            values=values,
            gte=gte if complement else None,
            lte=lte if complement else None,
            min_values=min_values,
        )

    def has_intersection(self, other: Requirement) -> bool:
        """Whether both allow some value; two complements are taken to (upstream's rule)."""
        gte = _largest(self.gte, other.gte)
        lte = _smallest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return False
        if self.complement and other.complement:
            return True
        if self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        if gte is None and lte is None:
            return bool(values)
        return bool(_within(values, gte, lte))

    def admits(self, other: Requirement) -> bool:
        """Whether a node described by this requirement may meet the other one.

        Like `has_intersection`, but a label that need not be there and one that must not be there
        go together.
        """
        if self.operator in ABSENCE_OPERATORS and other.operator in ABSENCE_OPERATORS:
            return True
        return self.has_intersection(other)

    def guarantees(self, other: Requirement) -> bool:
        """Whether every value this requirement allows is allowed by the other one."""
        if not self.complement:
            if not self.values:
                return other.operator in ABSENCE_OPERATORS
            return all(other.has(value) for value in self.values)
        if not other.complement:
            return False
        lower = other.gte is None or (self.gte is not None and self.gte >= other.gte)
        upper = other.lte is None or (self.lte is not None and self.lte <= other.lte)
        return lower and upper and all(not self.has(value) for value in other.values)

    def to_specs(self) -> tuple[RequirementSpec, ...]:
        """Write the requirement as API entries.

        Bounds become `Gte` and `Lte`; values excluded beside them are an entry of their own, where
        upstream loses them. Each entry carries `minValues`.
        """
        from karpenter_core.api.nodeclaim import RequirementSpec

        entries: list[tuple[str, tuple[str, ...]]] = []
        if self.gte is not None:
            entries.append(("Gte", (str(self.gte),)))
        if self.lte is not None:
            entries.append(("Lte", (str(self.lte),)))
        if not entries or self.values:
            entries.append((self.operator, tuple(sorted(self.values))))
        return tuple(
            RequirementSpec(
                key=self.key, operator=operator, values=values, min_values=self.min_values
            )
            for operator, values in entries
        )

    def __str__(self) -> str:
        """Write the requirement for people: `key In [a b]`, `key Exists >=2 minValues 3`."""
        parts = [self.key, self.operator]
        if self.values:
            shown = sorted(self.values)
            hidden = len(shown) - _SHOWN_VALUES
            if hidden > 0:
                shown = [*shown[:_SHOWN_VALUES], f"and {hidden} others"]
            parts.append(f"[{' '.join(shown)}]")
        if self.gte is not None:
            parts.append(f">={self.gte}")
        if self.lte is not None:
            parts.append(f"<={self.lte}")
        if self.min_values is not None:
            parts.append(f"minValues {self.min_values}")
        return " ".join(parts)


def parse_integer(text: str) -> int | None:
    """Read a 64-bit integer; None for anything else."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int("".join(match.groups()))
    return number if MIN_INT64 <= number <= MAX_INT64 else None


def _within(values: frozenset[str], gte: int | None, lte: int | None) -> frozenset[str]:
    def fits(value: str) -> bool:
        number = parse_integer(value)
        return (
            number is not None and (gte is None or number >= gte) and (lte is None or number <= lte)
        )

    return frozenset(value for value in values if fits(value))


def _largest(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


def _smallest(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
