"""Computes what the kubelet reserves of an instance, as clouds do.

Every managed Kubernetes reserves by brackets: so much of the first core or gigabyte, less of the
next. The tables differ from cloud to cloud, the arithmetic does not.
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
"""Of what a kubelet can keep, that which pods ask for; process ids they do not."""


def reserved_by_brackets(
    amount: float, brackets: Iterable[tuple[float, float]], *, whole_slices: bool = False
) -> float:
    """Return the sum of each bracket's share of the part of `amount` that lies in it.

    A bracket is an upper bound, in the unit of `amount`, and a share from 0 to 1; bounds rise, and
    what lies above the last one counts nothing: end with `math.inf`. With `whole_slices` each
    slice's share is cut to a whole number, as shell scripts with integer arithmetic do.

        >>> reserved_by_brackets(4000, [(1000, 0.06), (2000, 0.01), (inf, 0.005)])
        80.0
    """
    shares = (part * share for part, share in _slices(amount, brackets))
    return float(sum(int(share + _ROUNDING) for share in shares) if whole_slices else sum(shares))


_ROUNDING = 1e-9
"""0.06 x 1000 is 60 to people, and 59.999… to floating point."""


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
    """Return how much of a capacity a hard eviction threshold keeps, in the capacity's unit.

    `5%` is that share, rounded up; `100%` switches the threshold off, as the kubelet has it; anything
    else is a quantity (`500Mi`).

    Raises:
        ValueError: it is neither, or not within 0 to 100 percent, or negative.
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
    """Return what a user lets the kubelet keep, by resource, in the core's units.

    `field` is where that stands (`spec.kubelet.kubeReserved`). Resources that pods do not ask for are
    left out.

    Raises:
        ValueError: a quantity cannot be read; names field and value.
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
    """Return what `eviction_threshold` does; `field` is where it stands.

    Raises:
        ValueError: as there; names field and value.
    """
    try:
        return eviction_threshold(text, capacity)
    except ValueError as error:
        message = f"{field}: {error}"
        raise ValueError(message) from error
