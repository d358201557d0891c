"""Return to what a NodePool prefers, as two of its annotations ask for it.

`karpenter.sh/return-after` is a duration and turns it on: a node that is a second choice (of a
lighter pool, or bought on demand where spot or a reservation would do) is replaced once it is that
old and the first choice is to be had again. `karpenter.sh/return-budget` limits how many nodes of
the pool may be on their way out at once for it: a number or a percentage, `1` by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.labels import RETURN_AFTER, RETURN_BUDGET
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.api.nodepool import NodePool

__all__ = ["ReturnRule", "return_rule", "return_rule_error"]

_DEFAULT_BUDGET: Final = "1"


@dataclass(frozen=True, slots=True)
class ReturnRule:
    """How old a second choice must be, and how many nodes may go at once: a number or a share."""

    after: timedelta
    most_nodes: int = 1
    most_percent: int | None = None

    def allowed(self, total: int) -> int:
        """Return how many of a pool's nodes may be on their way out; a percentage rounds up."""
        if self.most_percent is None:
            return self.most_nodes
        return -(-total * self.most_percent // 100)


def return_rule(pool: NodePool) -> ReturnRule | None:
    """Return a pool's rule; None when it has none, or one that cannot be read."""
    try:
        return _read(pool)
    except BadInputError:
        return None


def return_rule_error(pool: NodePool) -> str:
    """Say what is wrong with a pool's rule; empty when nothing is."""
    try:
        _read(pool)
    except BadInputError as error:
        return str(error)
    return ""


def _read(pool: NodePool) -> ReturnRule | None:
    annotations = pool.metadata.annotations
    text = annotations.get(RETURN_AFTER)
    if text is None:
        return None
    try:
        after = parse_duration(text)
    except ValueError as error:
        raise BadInputError(f'annotation {RETURN_AFTER}: "{text}" is not a duration') from error
    budget = annotations.get(RETURN_BUDGET, _DEFAULT_BUDGET)
    number = budget.removesuffix("%")
    if not (number.isascii() and number.isdigit()):
        raise BadInputError(
            f'annotation {RETURN_BUDGET}: "{budget}" is neither a number nor a percentage'
        )
    if budget.endswith("%"):
        return ReturnRule(after, most_percent=int(number))
    return ReturnRule(after, most_nodes=int(number))
