"""Splits Resource Manager paths: subscription, group, types and names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

__all__ = ["ArmPath", "parse_path"]

_RESOURCES: Final = "Microsoft.Resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPath:
    """The parts of a path."""

    subscription: str = ""
    resource_group: str = ""
    types: tuple[str, ...] = ()
    """The namespace and the types."""
    names: tuple[str, ...] = ()

    @property
    def resource_type(self) -> str:
        """The namespace and the types, as sent."""
        return "/".join(self.types)

    @property
    def is_collection(self) -> bool:
        """Whether the innermost type has no name."""
        return len(self.names) < len(self.types) - 1


def parse_path(path: str) -> ArmPath | None:
    """Return the parts of a path below a subscription or below the tenant; None for another one."""
    segments = [unquote(each) for each in path.strip("/").split("/")]
    lowered = [each.lower() for each in segments]
    subscription = group = ""
    if lowered[:1] == ["subscriptions"] and len(segments) > 1:
        subscription, segments, lowered = segments[1], segments[2:], lowered[2:]
        if not segments:
            return ArmPath(
                subscription=subscription,
                types=(_RESOURCES, "subscriptions"),
                names=(subscription,),
            )
        if lowered[0] == "resourcegroups" and "providers" not in lowered:
            types = (_RESOURCES, *segments[0::2])
            names = tuple(segments[1::2])
            return ArmPath(
                subscription=subscription,
                resource_group=names[0] if names else "",
                types=types,
                names=names,
            )
        if lowered[0] == "resourcegroups" and len(segments) > 1:
            group, segments, lowered = segments[1], segments[2:], lowered[2:]
        if lowered == ["locations"]:
            return ArmPath(subscription=subscription, types=(_RESOURCES, "locations"))
    if lowered[:1] != ["providers"] or len(segments) < 3:  # noqa: PLR2004 - providers, namespace, type
        return None
    return ArmPath(
        subscription=subscription,
        resource_group=group,
        types=(segments[1], *segments[2::2]),
        names=tuple(segments[3::2]),
    )
