"""Matches the label selectors of spread constraints and pod affinity.

A selector that is absent, or cannot be read, selects nothing; an empty one selects everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import LabelSelector

__all__ = ["PodSelector"]

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


@final
@dataclass(frozen=True, slots=True)
class PodSelector:
    """A label selector in canonical form; equal ones select the same."""

    labels: tuple[tuple[str, str], ...]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @classmethod
    def read(
        cls, selector: LabelSelector | None, extra: Mapping[str, str] | None = None
    ) -> PodSelector | None:
        """Read a selector; None when it selects nothing.

        `extra` are labels that must have these very values (`matchLabelKeys`); with them an absent
        selector is an empty one.
        """
        if selector is None:
            return cls(tuple(sorted(extra.items()))) if extra else None
        if any(e.operator not in _OPERATORS for e in selector.match_expressions):
            return None
        if any(
            bool(e.values) != (e.operator in {"In", "NotIn"}) for e in selector.match_expressions
        ):
            return None
        expressions = {
            (e.key, e.operator, tuple(sorted(set(e.values)))) for e in selector.match_expressions
        }
        expressions.update((key, "In", (value,)) for key, value in (extra or {}).items())
        return cls(tuple(sorted(selector.match_labels.items())), tuple(sorted(expressions)))

    @property
    def keys(self) -> frozenset[str]:
        """The labels that this selector reads."""
        return frozenset((*(key for key, _ in self.labels), *(e[0] for e in self.expressions)))

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label and value that everything selected has; None when there is no such."""
        if self.labels:
            return self.labels[0]
        for key, operator, values in self.expressions:
            if operator == "In" and len(values) == 1:
                return key, values[0]
        return None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether something with these labels is selected."""
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        for key, operator, values in self.expressions:
            value = labels.get(key)
            match operator:
                case "In":
                    good = value in values
                case "NotIn":
                    good = value not in values
                case "Exists":
                    good = value is not None
                case _:
                    good = value is None
            if not good:
                return False
        return True
