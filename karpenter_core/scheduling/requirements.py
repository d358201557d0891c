"""Implements the algebra of node requirements over label values.

A requirement is a set of values of one label, finite (`In`), the complement of a finite one
(`NotIn`, `Exists`), possibly cut to a range of integers (`Gt`, `Lt`, `Gte`, `Lte`), or empty
(`DoesNotExist`). Requirements are what pods, NodePools, instance types, offerings and volumes say
about nodes; two of them combine by intersection. The rules are upstream's; where upstream chooses
at random, the smallest value is taken.

Refusals are data (`RequirementConflict`, `UndefinedLabel`); their text is rendered on demand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from karpenter_core.api.labels import ALIASES, HOSTNAME, RESTRICTED_DOMAIN, WELL_KNOWN
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec

__all__ = [
    "Requirement",
    "RequirementConflict",
    "RequirementIncompatibility",
    "Requirements",
    "UndefinedLabel",
    "is_restricted_label",
]

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_SHOWN_VALUES: Final = 5
_NEGATIVE: Final = frozenset({"NotIn", "DoesNotExist"})


class MatchExpression(Protocol):
    """A match expression: of a node selector term, or of a NodePool (with `min_values`)."""

    @property
    def key(self) -> str:
        """The label."""
        ...

    @property
    def operator(self) -> str:
        """One of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte."""
        ...

    @property
    def values(self) -> tuple[str, ...]:
        """What the operator works on."""
        ...


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

    def cardinality(self) -> int:
        """Count the values; a complement has 2^63-1 less the excluded ones."""
        return MAX_INT64 - len(self.values) if self.complement else len(self.values)

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
        if self.operator in _NEGATIVE and other.operator in _NEGATIVE:
            return True
        return self.has_intersection(other)

    def guarantees(self, other: Requirement) -> bool:
        """Whether every value this requirement allows is allowed by the other one."""
        if not self.complement:
            if not self.values:
                return other.operator in _NEGATIVE
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementConflict:
    """Two requirements on one key that leave no value."""

    key: str
    incoming: Requirement
    existing: Requirement

    def __str__(self) -> str:
        """Write the conflict for people."""
        return f"key {self.key}, {self.incoming} not in {self.existing}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndefinedLabel:
    """A label that is asked for and that no such node has; `suggestion` is what was meant."""

    key: str
    suggestion: str = ""

    def __str__(self) -> str:
        """Write the refusal for people."""
        hint = f' (typo of "{self.suggestion}"?)' if self.suggestion else ""
        return f'label "{self.key}" does not have known values{hint}'


RequirementFailure: TypeAlias = RequirementConflict | UndefinedLabel


@dataclass(frozen=True, slots=True)
class RequirementIncompatibility:
    """Why one set of requirements cannot be met by another."""

    failures: tuple[RequirementFailure, ...]

    def __str__(self) -> str:
        """Write the refusals for people."""
        return "; ".join(str(refusal) for refusal in self.failures)


@final
class Requirements:
    """An immutable set of requirements, at most one a label."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            existing = by_key.get(requirement.key)
            by_key[requirement.key] = (
                requirement if existing is None else existing.intersection(requirement)
            )
        self._by_key: Final = by_key
        self._hash: int | None = None

    @classmethod
    def from_labels(
        cls, labels: Mapping[str, str], *, aliases: Mapping[str, str] = ALIASES
    ) -> Requirements:
        """Require each label's very value.

        The same labels give the same object, mostly: a catalogue says those of a few offerings
        thousands of times, and comparing an object with itself costs nothing.
        """
        if aliases is ALIASES:
            return _of_labels(tuple(labels.items()))
        return cls(
            Requirement.of(key, "In", (value,), aliases=aliases) for key, value in labels.items()
        )

    @classmethod
    def from_specs(
        cls, specs: Iterable[RequirementSpec], *, aliases: Mapping[str, str] = ALIASES
    ) -> Requirements:
        """Read the requirements of a NodePool or NodeClaim."""
        return cls(
            Requirement.of(
                spec.key, spec.operator, spec.values, min_values=spec.min_values, aliases=aliases
            )
            for spec in specs
        )

    @classmethod
    def from_expressions(
        cls, expressions: Iterable[MatchExpression], *, aliases: Mapping[str, str] = ALIASES
    ) -> Requirements:
        """Read match expressions that must all hold (one node selector term)."""
        return cls(
            Requirement.of(expression.key, expression.operator, expression.values, aliases=aliases)
            for expression in expressions
        )

    def add(self, *requirements: Requirement) -> Requirements:
        """Return these requirements narrowed by more."""
        return Requirements((*self._by_key.values(), *requirements))

    def merge(self, other: Requirements) -> Requirements:
        """Return what both sets allow."""
        return self.add(*other.values()) if other else self

    def replace(self, requirement: Requirement) -> Requirements:
        """Return these requirements with one put in place of what the key had."""
        return Requirements(({**self._by_key, requirement.key: requirement}).values())

    def without(self, keys: Container[str]) -> Requirements:
        """Return these requirements less some keys."""
        return Requirements(r for key, r in self._by_key.items() if key not in keys)

    def get(self, key: str) -> Requirement:
        """Return what is required of a label; a key that is absent may be anything (Exists)."""
        requirement = self._by_key.get(key)
        return Requirement(key=key, complement=True) if requirement is None else requirement

    def single_value(self, key: str) -> str:
        """Return the one value a label must have, empty unless there is exactly one."""
        requirement = self._by_key.get(key)
        if requirement is None or requirement.complement or len(requirement.values) != 1:
            return ""
        return next(iter(requirement.values))

    def keys(self) -> Iterable[str]:
        """Return the labels that are constrained."""
        return self._by_key.keys()

    def values(self) -> Iterable[Requirement]:
        """Return the requirements, in the order they were given."""
        return self._by_key.values()

    def items(self) -> Iterable[tuple[str, Requirement]]:
        """Return labels and requirements."""
        return self._by_key.items()

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = frozenset(self._by_key.values()).__hash__()
        return self._hash

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        """Write the set for people, sorted, without restricted keys."""
        return ", ".join(
            sorted(str(r) for key, r in self._by_key.items() if not is_restricted_label(key))
        )

    @property
    def has_min_values(self) -> bool:
        """Whether any member asks for a number of distinct values."""
        return any(r.min_values is not None for r in self._by_key.values())

    def intersects(self, other: Requirements) -> bool:
        """Whether every label that both constrain may take some value; others are free."""
        mine, theirs = self._by_key, other._by_key
        return all(mine[key].admits(r) for key, r in theirs.items() if key in mine)

    def compatible(
        self, other: Requirements, *, allow_undefined: Container[str] = frozenset()
    ) -> bool:
        """Whether something these requirements describe could meet the other ones.

        Real nodes are strict: a label they do not have is no label. Nodes yet to be made may still
        get the labels in `allow_undefined` (the well-known ones).
        """
        mine = self._by_key
        for key, requirement in other.items():
            own_requirement = mine.get(key)
            if own_requirement is None:
                if key not in allow_undefined and requirement.operator not in _NEGATIVE:
                    return False
            elif not own_requirement.admits(requirement):
                return False
        return True

    def incompatibility(
        self,
        other: Requirements,
        *,
        allow_undefined: Container[str] = frozenset(),
        well_known: Iterable[str] = WELL_KNOWN,
    ) -> RequirementIncompatibility | None:
        """Say why `compatible` is False; None when it is not."""
        for key, requirement in other.items():
            if (
                key not in allow_undefined
                and key not in self
                and requirement.operator not in _NEGATIVE
            ):
                suggestion = _suggest(key, (*sorted(well_known), *sorted(self._by_key)))
                return RequirementIncompatibility((UndefinedLabel(key=key, suggestion=suggestion),))
        return self.intersection_failure(other)

    def intersection_failure(self, other: Requirements) -> RequirementIncompatibility | None:
        """Say why `intersects` is False; None when it is not."""
        conflicts = tuple(
            RequirementConflict(key=key, incoming=requirement, existing=self._by_key[key])
            for key, requirement in other.items()
            if key in self and not self._by_key[key].admits(requirement)
        )
        return RequirementIncompatibility(conflicts) if conflicts else None

    def guarantees(self, other: Requirements, *, undecided: Container[str] = frozenset()) -> bool:
        """Whether every node these requirements describe meets the other ones.

        For a node that is launched but does not exist yet: it may still be anything that its claim
        allows. Labels in `undecided` may yet appear although nothing is said of them.
        """
        for key, requirement in other.items():
            own_requirement = self._by_key.get(key)
            if own_requirement is None:
                if key in undecided or requirement.operator not in _NEGATIVE:
                    return False
            elif not own_requirement.guarantees(requirement):
                return False
        return True

    def to_specs(self) -> tuple[RequirementSpec, ...]:
        """Write the requirements as API entries, sorted by key."""
        return tuple(spec for key in sorted(self._by_key) for spec in self._by_key[key].to_specs())

    def with_min_values(self, counts: Mapping[str, int]) -> Requirements:
        """Return these requirements with `minValues` set to the counts given (0: none)."""
        return Requirements(
            replace(r, min_values=counts[key] or None) if key in counts else r
            for key, r in self._by_key.items()
        )


def is_restricted_label(key: str, *, well_known: Container[str] = WELL_KNOWN) -> bool:
    """Whether a label is the core's own: hostname and the karpenter.sh domains, less well-known."""
    if key in well_known:
        return False
    domain = key.partition("/")[0] if "/" in key else ""
    return (
        key == HOSTNAME or domain == RESTRICTED_DOMAIN or domain.endswith(f".{RESTRICTED_DOMAIN}")
    )


def parse_integer(text: str) -> int | None:
    """Read a 64-bit integer; None for anything else."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
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


def _suggest(key: str, candidates: Sequence[str]) -> str:
    """Return the known label that a mistyped one probably stands for."""
    suffix = key.rpartition("/")[2]
    for candidate in candidates:
        if key in candidate or (suffix and candidate.endswith(suffix)):
            return candidate
    return ""


@lru_cache(maxsize=4096)
def _of_labels(labels: tuple[tuple[str, str], ...]) -> Requirements:
    return Requirements(Requirement.of(key, "In", (value,)) for key, value in labels)
