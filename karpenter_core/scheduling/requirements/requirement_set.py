"""Implements and compares requirement sets, at most one for each label.

Incompatibilities are data (`RequirementConflict`, `UndefinedLabel`); their text is rendered on
demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from karpenter_core.api.labels import ALIASES, HOSTNAME, RESTRICTED_DOMAIN, WELL_KNOWN
from karpenter_core.scheduling.requirements.requirement import ABSENCE_OPERATORS, Requirement

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec

__all__ = [
    "RequirementConflict",
    "RequirementIncompatibility",
    "Requirements",
    "UndefinedLabel",
    "is_restricted_label",
    "read_expressions",
]


_NO_ALIASES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})


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
        """The operands: label values, or one integer for Gt, Lt, Gte and Lte."""
        ...


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
    suggestion: str

    def __str__(self) -> str:
        """Write the reason for people."""
        hint = f' (typo of "{self.suggestion}"?)' if self.suggestion else ""
        return f'label "{self.key}" does not have known values{hint}'


RequirementFailure: TypeAlias = RequirementConflict | UndefinedLabel


@dataclass(frozen=True, slots=True)
class RequirementIncompatibility:
    """The reasons for which one set of requirements cannot meet another."""

    failures: tuple[RequirementFailure, ...]

    def __str__(self) -> str:
        """Write the reasons for people."""
        return "; ".join(str(failure) for failure in self.failures)


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
        cls,
        expressions: Iterable[MatchExpression],
        *,
        aliases: Mapping[str, str] = ALIASES,
        value_aliases: Mapping[str, Mapping[str, str]] = _NO_ALIASES,
    ) -> Requirements:
        """Read match expressions that must all hold (one node selector term).

        `value_aliases` are other spellings of values by canonical label.
        """
        return cls(read_expressions(expressions, aliases=aliases, value_aliases=value_aliases))

    @classmethod
    def all_of(cls, requirements: Iterable[Requirement]) -> Requirements | None:
        """Return what all requirements allow; None where two of them exclude each other.

        By the algebra alone two values that exclude each other are "the label must not exist".
        """
        met = cls()
        for requirement in requirements:
            if requirement.key in met and not met.get(requirement.key).admits(requirement):
                return None
            met = met.add(requirement)
        return met

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
                if key not in allow_undefined and requirement.operator not in ABSENCE_OPERATORS:
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
                and requirement.operator not in ABSENCE_OPERATORS
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
                if key in undecided or requirement.operator not in ABSENCE_OPERATORS:
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


def read_expressions(
    expressions: Iterable[MatchExpression],
    *,
    aliases: Mapping[str, str] = ALIASES,
    value_aliases: Mapping[str, Mapping[str, str]] = _NO_ALIASES,
) -> list[Requirement]:
    """Read match expressions, each on its own; `value_aliases` as for `Requirements.from_expressions`.

    Raises:
        BadInputError: an expression cannot be read.
    """
    return [
        Requirement.of(
            expression.key,
            expression.operator,
            _canonical_values(expression, aliases, value_aliases),
            aliases=aliases,
        )
        for expression in expressions
    ]


def _canonical_values(
    expression: MatchExpression,
    aliases: Mapping[str, str],
    value_aliases: Mapping[str, Mapping[str, str]],
) -> Iterable[str]:
    spellings = value_aliases.get(aliases.get(expression.key, expression.key))
    if not spellings:
        return expression.values
    return [spellings.get(value, value) for value in expression.values]


def is_restricted_label(key: str, *, well_known: Container[str] = WELL_KNOWN) -> bool:
    """Whether a label is the core's own: hostname and the karpenter.sh domains, less well-known."""
    if key in well_known:
        return False
    domain = key.partition("/")[0] if "/" in key else ""
    return (
        key == HOSTNAME or domain == RESTRICTED_DOMAIN or domain.endswith(f".{RESTRICTED_DOMAIN}")
    )


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
