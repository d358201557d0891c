"""Defines records of Dynamic Resource Allocation (`resource.k8s.io/v1`).

Attribute and capacity names are fully qualified (`gpu.example.com/model`): a name without a domain
belongs to the domain of the driver. Amounts are exact. Forms that are not simulated are kept as a
text in `unsupported`: what has one is refused, never guessed at.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.records import NodeSelectorTerm, Record

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "ADMIN_NAMESPACE_LABEL",
    "MAX_DEVICES_PER_CLAIM",
    "AllocatedDevice",
    "AttributeBinding",
    "AttributeValue",
    "ClaimConsumer",
    "CounterSet",
    "CounterUse",
    "Device",
    "DeviceCapacity",
    "DeviceClassView",
    "DeviceConstraint",
    "DeviceRequest",
    "DeviceTaint",
    "DeviceTemplate",
    "DeviceToleration",
    "DeviceVersion",
    "InstanceDevices",
    "PrioritizedRequest",
    "ResourceClaimTemplateView",
    "ResourceClaimView",
    "ResourceSliceView",
    "qualified_name",
]

MAX_DEVICES_PER_CLAIM: Final = 32
"""The most devices of one claim (API constant AllocationResultsMaxSize)."""

ADMIN_NAMESPACE_LABEL: Final = "resource.kubernetes.io/admin-access"
"""The label of namespaces whose claims may ask for administrative access."""


def qualified_name(name: str, driver: str) -> str:
    """Return a name with its domain; one without belongs to the driver."""
    return name if "/" in name else f"{driver}/{name}"


class DeviceVersion(Record, frozen=True, kw_only=True, gc=False):
    """The value of an attribute that is a semantic version (semver.org, 2.0.0)."""

    text: str


AttributeValue: TypeAlias = bool | int | str | DeviceVersion


class DeviceCapacity(Record, frozen=True, kw_only=True):
    """One capacity of a device, and the amounts that a request may take of it.

    `default` is taken if nothing is requested. A request is rounded up to the next of
    `valid_values`, or to `minimum` and then to the next `step` up to `maximum`.
    """

    name: str
    value: Decimal
    default: Decimal | None = None
    valid_values: tuple[Decimal, ...] = ()
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    step: Decimal | None = None


class CounterUse(Record, frozen=True, kw_only=True):
    """The amounts that a device takes of one counter set of its pool while it is allocated."""

    counter_set: str
    counters: tuple[tuple[str, Decimal], ...]


class CounterSet(Record, frozen=True, kw_only=True):
    """Amounts that the devices of a pool share."""

    name: str
    counters: tuple[tuple[str, Decimal], ...]


class DeviceTaint(Record, frozen=True, kw_only=True, gc=False):
    """A taint of a device."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class DeviceToleration(Record, frozen=True, kw_only=True, gc=False):
    """A toleration of a request; an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Tell whether the request may get a device with this taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Device(Record, frozen=True, kw_only=True):
    """One device of a slice or of a template.

    The node fields matter only in a slice that selects nodes for each device.
    """

    name: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    """By qualified name, in order."""
    capacity: tuple[DeviceCapacity, ...] = ()
    counter_uses: tuple[CounterUse, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    is_shareable: bool = False
    """Whether several requests may have it (`allowMultipleAllocations`)."""
    node_name: str = ""
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    all_nodes: bool = False
    binds_to_node: bool = False
    """Whether an allocation keeps the claim on the node for which it was made."""
    unsupported: str = ""


class ResourceSliceView(Record, frozen=True, kw_only=True, eq=False):
    """One ResourceSlice: a part of one generation of a driver's pool."""

    uid: str
    name: str
    resource_version: int = 0
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 0
    node_name: str = ""
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    all_nodes: bool = False
    selects_by_device: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    owner_node: str = ""
    """The name of the Node that owns the slice."""


class DeviceRequest(Record, frozen=True, kw_only=True):
    """A request for `count` devices of a class, or for all of them (None)."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    """CEL expressions; each must hold."""
    count: int | None = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, Decimal], ...] = ()
    """Requested amounts, by name as written; without a domain it is the driver's."""


class PrioritizedRequest(Record, frozen=True, kw_only=True):
    """A request of a claim: alternatives of which the first that can be met counts."""

    name: str
    alternatives: tuple[DeviceRequest, ...]
    has_subrequests: bool = False
    """Whether results name the alternative too (`parent/sub`)."""


class DeviceConstraint(Record, frozen=True, kw_only=True):
    """Devices of some requests (none named: of all) have the same value of an attribute."""

    match_attribute: str
    requests: tuple[str, ...] = ()


class AllocatedDevice(Record, frozen=True, kw_only=True):
    """One device that a claim has, as its status says."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    consumed: tuple[tuple[str, Decimal], ...] = ()
    """Amounts of a shared device, by qualified name."""


class ClaimConsumer(Record, frozen=True, kw_only=True, gc=False):
    """An object for which an allocated claim is reserved."""

    resource: str
    name: str
    uid: str
    api_group: str = ""

    @property
    def is_pod(self) -> bool:
        """Whether the consumer is a pod."""
        return not self.api_group and self.resource == "pods"


class _DeviceDemand(Record, frozen=True, kw_only=True, eq=False):
    """The requests of a ResourceClaim, or of the claims that are generated from a template."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    requests: tuple[PrioritizedRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    unsupported: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.namespace}/{self.name}"


class ResourceClaimView(_DeviceDemand, frozen=True, kw_only=True, eq=False):
    """One ResourceClaim."""

    is_allocated: bool = False
    devices: tuple[AllocatedDevice, ...] = ()
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    """Nodes that can use the allocated devices; none: all nodes."""
    reserved_for: tuple[ClaimConsumer, ...] = ()
    deletion_timestamp: datetime | None = None


class ResourceClaimTemplateView(_DeviceDemand, frozen=True, kw_only=True, eq=False):
    """One ResourceClaimTemplate: the claims that Kubernetes generates from it ask for the same."""


class DeviceClassView(Record, frozen=True, kw_only=True, eq=False):
    """One DeviceClass: CEL expressions that its devices meet."""

    uid: str
    name: str
    resource_version: int = 0
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """The resource of containers by which pods request its devices (`extendedResourceName`)."""
    unsupported: str = ""


class AttributeBinding(Record, frozen=True, kw_only=True):
    """Devices of an instance type that will have one common value of an attribute.

    For attributes whose value is known only on the running node. `devices` are driver, pool and
    device name.
    """

    attribute: str
    devices: frozenset[tuple[str, str, str]]


class DeviceTemplate(Record, frozen=True, kw_only=True):
    """The devices of one pool that a driver will publish on a node of an instance type."""

    driver: str
    pool: str
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


class InstanceDevices(Record, frozen=True, kw_only=True):
    """The devices of an instance type, as drivers will publish them on its nodes."""

    templates: tuple[DeviceTemplate, ...]
    bindings: tuple[AttributeBinding, ...] = ()
