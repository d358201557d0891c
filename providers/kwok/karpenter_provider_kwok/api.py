"""The KWOKNodeClass resource."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model
from karpenter_core.api.conditions import READY, TRUE, Condition
from karpenter_core.api.durations import Duration
from karpenter_core.api.facets import DURATION, Facets
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus

__all__ = ["GROUP", "KWOKNodeClass", "KWOKNodeClassSpec"]

GROUP: Final = "karpenter.kwok.sh"

_ALWAYS_READY: Final = Condition(
    type=READY,
    status=TRUE,
    reason=READY,
    message="",
    last_transition_time=datetime(2024, 1, 1, 1, 1, 1, tzinfo=UTC),
)
"""There is nothing to discover: the API server itself makes every KWOKNodeClass ready."""


class KWOKNodeClassSpec(Model):
    """Desired configuration of the simulated nodes."""

    node_registration_delay: Annotated[Duration | None, Facets(pattern=DURATION)] = None
    """Time from the launch of an instance until its Node appears."""


class KWOKNodeClass(NodeClass):
    """KWOKNodeClass configures simulated instances, whose Nodes kwok keeps alive."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1alpha1",
        kind="KWOKNodeClass",
        plural="kwoknodeclasses",
        singular="kwoknodeclass",
        short_names=("kwoknc", "kwokncs"),
    )

    spec: KWOKNodeClassSpec = Field(default_factory=KWOKNodeClassSpec)
    status: Annotated[
        NodeClassStatus,
        Facets(default={"conditions": [_ALWAYS_READY.model_dump(mode="json", exclude_unset=True)]}),
    ] = Field(default_factory=lambda: NodeClassStatus(conditions=(_ALWAYS_READY,)))
