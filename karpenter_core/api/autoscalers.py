"""The view of a VerticalPodAutoscaler: target, policies, recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from karpenter_core.api.records import Record, Resources

__all__ = ["ContainerScaling", "StartupBoost", "VerticalPodAutoscalerView"]


class StartupBoost(Record, frozen=True, kw_only=True, gc=False):
    """The CPU that a container gets while it starts: a multiple, or an amount on top."""

    factor: int = 1
    added: int = 0
    """In milli-cores."""


class ContainerScaling(Record, frozen=True, kw_only=True):
    """The policy for one container, or for all others (`*`)."""

    container: str
    is_off: bool = False
    controlled: tuple[str, ...] | None = None
    """The resources that are set; None for the defaults."""
    minimum: Resources = msgspec.field(default_factory=dict[str, int])
    maximum: Resources = msgspec.field(default_factory=dict[str, int])
    startup_boost: StartupBoost | None = None


class VerticalPodAutoscalerView(Record, frozen=True, kw_only=True, eq=False):
    """One VerticalPodAutoscaler."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    created: datetime | None = None
    target_group: str = ""
    target_kind: str = ""
    target_name: str = ""
    is_off: bool = False
    """Whether it only recommends (`updateMode: Off`)."""
    policies: tuple[ContainerScaling, ...] = ()
    startup_boost: StartupBoost | None = None
    targets: Mapping[str, Resources] = {}
    """The recommended requests, by container; empty without a recommendation."""
