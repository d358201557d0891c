"""Finds quotas of vCPUs that are used up, for conditions and `karpenter doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_provider_azure.catalogue.quotas import REGIONAL_QUOTA, SPOT_QUOTA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_azure.catalogue.quotas import Quota

__all__ = ["ExhaustedQuota", "exhausted_quotas", "quota_remark"]

_FAMILY: Final = "family"
"""Names of quotas of VM families end so."""
_SHOWN: Final = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedQuota:
    """A quota without room, or several families' quotas; texts do not change with the usage."""

    text: str
    """The quota, its limit, and the instances that cannot be launched."""
    is_total: bool = False
    """Whether no on-demand instance can be launched."""


def exhausted_quotas(quotas: Mapping[str, Quota]) -> tuple[ExhaustedQuota, ...]:
    """Return the quotas that are used up; `quotas` are by name in lower case, unknown ones missing.

    A family whose limit is 0 was never asked for, and counts only if no other family has room.
    """
    found: list[ExhaustedQuota] = []
    regional, spot = quotas.get(REGIONAL_QUOTA), quotas.get(SPOT_QUOTA)
    if regional is not None and regional.used >= regional.limit:
        text = f'regional vCPUs ("cores", limit {regional.limit}): no on-demand instances'
        found.append(ExhaustedQuota(text=text, is_total=True))
    if spot is not None and spot.used >= spot.limit:
        text = f'spot vCPUs ("lowPriorityCores", limit {spot.limit}): no spot instances'
        found.append(ExhaustedQuota(text=text))
    families = {name: it for name, it in sorted(quotas.items()) if name.endswith(_FAMILY)}
    if families and all(it.used >= it.limit for it in families.values()):
        text = "vCPUs of every VM family: no on-demand instances"
        found.append(ExhaustedQuota(text=text, is_total=True))
    elif used_up := [name for name, it in families.items() if 0 < it.limit <= it.used]:
        more = f" and {len(used_up) - _SHOWN} others" if len(used_up) > _SHOWN else ""
        names = ", ".join(used_up[:_SHOWN])
        text = f"vCPUs of {names}{more}: no on-demand instances of these families"
        found.append(ExhaustedQuota(text=text))
    return tuple(found)


def quota_remark(quotas: Mapping[str, Quota], *, location: str) -> str:
    """Return the message of a condition about quotas that are used up; empty if none is."""
    found = "; ".join(it.text for it in exhausted_quotas(quotas))
    return f"no quota is left in {location} for {found}" if found else ""
