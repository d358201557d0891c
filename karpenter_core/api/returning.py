"""Reads the annotations that return a pool's nodes to its first choice.

`karpenter.sh/return-after` is a duration and turns the feature on: a node that is a second choice
(of a pool with less weight, or on demand where spot or a reservation is allowed) is replaced once it
has that age and the first choice is available again. `karpenter.sh/return-budget` limits how many
nodes of the pool may be disrupted at the same time for it: a number or a percentage, `1` by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.labels import RETURN_AFTER, RETURN_BUDGET
from karpenter_core.api.node_shares import parse_node_share
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.api.nodepool import NodePool

__all__ = ["ReturnRule", "return_rule", "return_rule_error"]

_DEFAULT_BUDGET: Final = "1"


@dataclass(frozen=True, slots=True)
class ReturnRule:
    """Minimum age of a node that is replaced, and the limit of nodes replaced at the same time."""

    after: timedelta
    max_nodes: int = 1
    max_percent: int | None = None

    def allowed(self, total: int) -> int:
        """Return how many of a pool's nodes may be disrupted at once; a percentage rounds up."""
        if self.max_percent is None:
            return self.max_nodes
        return -(-total * self.max_percent // 100)


def return_rule(pool: NodePool) -> ReturnRule | None:
    """Return a pool's rule; None if it has none, or one that cannot be read."""
    try:
        return _read(pool)
    except BadInputError:
        return None


def return_rule_error(pool: NodePool) -> str:
    """Return the error of a pool's rule; empty if it is valid."""
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
    share = parse_node_share(budget)
    if share is None:
        raise BadInputError(
            f'annotation {RETURN_BUDGET}: "{budget}" is neither a number nor a percentage'
        )
    if share.is_percentage:
        return ReturnRule(after, max_percent=share.number)
    return ReturnRule(after, max_nodes=share.number)
