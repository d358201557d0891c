"""Converts between the zones of Azure (`2`) and the zones of nodes (`westus2-2`).

Zone numbers are logical: two subscriptions may call one datacenter by different numbers. The cloud's
node controller labels nodes without an availability zone with the zone "0".
"""

from __future__ import annotations

from karpenter_provider_azure.labels import REGIONAL, REGIONAL_ZONE, ZONAL

__all__ = ["placement_scope", "zone_label", "zone_number"]


def zone_label(location: str, number: str) -> str:
    """Return the zone label of nodes in an availability zone."""
    return f"{location.lower()}-{number}"


def zone_number(zone: str) -> str:
    """Return the availability zone of a zone label; empty for the regional zone.

    Raises:
        ValueError: the label has no number.
    """
    if zone == REGIONAL_ZONE:
        return ""
    _, _, number = zone.rpartition("-")
    if not number.isdecimal():
        message = f'zone "{zone}" does not end in the number of an availability zone'
        raise ValueError(message)
    return number


def placement_scope(zone: str) -> str:
    """Return `zonal` or `regional`, the placement scope of a zone label."""
    return REGIONAL if zone == REGIONAL_ZONE else ZONAL
