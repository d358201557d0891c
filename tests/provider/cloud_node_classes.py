"""A NodeClass with a status, a clock that tests advance, and a cloud's call errors."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model, ObjectMeta
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus
from karpenter_core.controllers.nodeclass.controller import resolved_status
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.call_errors import CallErrors

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class CloudSpec(Model):
    subnet: str = "s-1"
    image: str = "debian"


class CloudStatus(NodeClassStatus):
    subnets: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    capacity_reservations: tuple[str, ...] = ()


class CloudNodeClass(NodeClass):
    resource: ClassVar[CustomResource] = CustomResource(
        group="cloud.example.com",
        version="v1",
        kind="CloudNodeClass",
        plural="cloudnodeclasses",
        singular="cloudnodeclass",
    )

    spec: CloudSpec = Field(default_factory=CloudSpec)
    status: CloudStatus = Field(default_factory=CloudStatus)


class HandClock:
    def __init__(self):
        self.passed = timedelta()

    def now(self):
        return NOW + self.passed

    def monotonic(self):
        return self.passed.total_seconds()

    def forward(self, **amount):
        self.passed += timedelta(**amount)


class RefusedCallError(CloudProviderError):
    """A call that the cloud answered with a code."""

    def __init__(self, code, message="no"):
        super().__init__(message)
        self.code = code


ERRORS = CallErrors(
    is_refusal=lambda error: isinstance(error, RefusedCallError) and error.code != "Busy",
    code=lambda error: getattr(error, "code", ""),
    varying_text=re.compile(r" \(request \w+\)"),
)


def cloud_node_class(*, name="web", generation=1, annotations=None, status=None, **spec):
    return CloudNodeClass(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", generation=generation, annotations=annotations or {}
        ),
        spec=CloudSpec(**spec),
        status=status or CloudStatus(),
    )


def applied(node_class, resolution, *, now=NOW):
    """Return a NodeClass with the status that the core writes after a resolution."""
    fields = resolved_status(node_class, resolution, now=now)
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    status = CloudStatus.model_validate({**before, **fields})
    return node_class.model_copy(update={"status": status})


def conditions(node_class):
    """Return status, reason and message of each condition."""
    return {c.type: (c.status, c.reason, c.message) for c in node_class.status.conditions}
