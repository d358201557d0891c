"""Computes resources that a kubelet reserves, as managed clusters do.

Managed Kubernetes services reserve by brackets: a share of the first core or gigabyte, a smaller share
of the next. The tables differ between clouds, the computation does not.
"""

from __future__ import annotations

from math import ceil, inf, nan
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY
from karpenter_core.api.quantities import parse_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "eviction_threshold",
    "eviction_threshold_of_field",
    "reserved_amounts",
    "reserved_by_brackets",
]

_ASKED_FOR: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""Resources that the kubelet can reserve and pods can request; process ids are not requested."""


def reserved_by_brackets(
    amount: float, brackets: Iterable[tuple[float, float]], *, whole_slices: bool = False
) -> float:
    """Return the sum of each bracket's share of the part of `amount` inside the bracket.

    A bracket is an upper bound, in the unit of `amount`, and a share from 0 to 1. Bounds increase;
    the part above the last bound is not counted, so end with `math.inf`. With `whole_slices` each
    bracket's result is rounded down, like integer arithmetic in shell scripts.

        >>> reserved_by_brackets(4000, [(1000, 0.06), (2000, 0.01), (inf, 0.005)])
        80.0
    """
    shares = (part * share for part, share in _slices(amount, brackets))
    return float(sum(int(share + _ROUNDING) for share in shares) if whole_slices else sum(shares))


_ROUNDING = 1e-9
"""Round a product; 0.06 x 1000 is 59.999… in floating point."""


def _slices(
    amount: float, brackets: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    below = 0.0
    for bound, share in brackets:
        if bound <= below:
            message = f"the bound {bound} does not lie above {below}"
            raise ValueError(message)
        yield max(0.0, min(amount, bound) - below), share
        below = bound
        if amount <= bound and bound != inf:
            return


def eviction_threshold(text: str, capacity: int, *, resource: str = "memory") -> int:
    """Return the amount that a hard eviction threshold keeps free, in the unit of the capacity.

    `5%` is a share of the capacity, rounded up; `100%` disables the threshold, as in the kubelet; other
    values are quantities (`500Mi`).

    Raises:
        ValueError: the value is neither a percentage from 0 to 100 nor a quantity, or is negative.
    """
    if text.endswith("%"):
        try:
            percent = float(text.removesuffix("%"))
        except ValueError:
            percent = nan
        if not 0 <= percent <= 100:  # noqa: PLR2004
            message = f'eviction threshold "{text}" is not within 0% to 100%'
            raise ValueError(message)
        return 0 if percent == 100 else ceil(capacity * percent / 100 - _ROUNDING)  # noqa: PLR2004
    amount = parse_amount(resource, text)
    if amount < 0:
        message = f'eviction threshold "{text}" is negative'
        raise ValueError(message)
    return amount


def reserved_amounts(quantities: Mapping[str, str], *, field: str) -> dict[str, int]:
    """Return reserved resources that a user configured, in the core's units.

    `field` is the path of the setting (`spec.kubelet.kubeReserved`). Resources that pods do not request
    are left out.

    Raises:
        ValueError: a quantity is invalid; names field and value.
    """
    amounts: dict[str, int] = {}
    for resource, text in sorted(quantities.items()):
        if resource in _ASKED_FOR:
            try:
                amounts[resource] = parse_amount(resource, text)
            except ValueError as error:
                message = f"{field}.{resource}: {error}"
                raise ValueError(message) from error
    return amounts


def eviction_threshold_of_field(text: str, capacity: int, *, field: str) -> int:
    """Return the result of `eviction_threshold`; `field` is the path of the setting.

    Raises:
        ValueError: the value is invalid; names field and value.
    """
    try:
        return eviction_threshold(text, capacity)
    except ValueError as error:
        message = f"{field}: {error}"
        raise ValueError(message) from error
