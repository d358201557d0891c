"""The smallest provider for karpenter-core that keeps the contract.

Its cloud is a dictionary, and its instances are Nodes that the provider creates; the instances of a
real cloud boot and register themselves. A real provider calls an SDK instead of the dictionary, and
adds prices, zones, images, and optional hooks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from karpenter_core.api.base import CustomResource
from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    UNREGISTERED_TAINT,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import (
    ConflictError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
)
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Price,
    Requirement,
    Requirements,
    compatible_offerings,
)
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    Instance,
    InstanceListing,
    LaunchedInstance,
    NodeClassResolution,
    ProviderInfo,
    TerminationStatus,
)
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.markers import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import LaunchRequest, ProviderContext

PREFIX: Final = "minimal://"


class MinimalNodeClass(NodeClass):
    """A NodeClass without fields of its own."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="minimal.example.com",
        version="v1",
        kind="MinimalNodeClass",
        plural="minimalnodeclasses",
        singular="minimalnodeclass",
    )


LABELS: Final = {
    INSTANCE_TYPE: "one",
    ARCH: "amd64",
    OS: "linux",
    ZONE: "here",
    CAPACITY_TYPE: ON_DEMAND,
}
ONE: Final = InstanceType(
    name="one",
    requirements=Requirements.from_labels(LABELS).add(
        Requirement.of(REGION, "DoesNotExist"), Requirement.of(WINDOWS_BUILD, "DoesNotExist")
    ),
    offerings=(
        Offering(
            requirements=Requirements.from_labels({ZONE: "here", CAPACITY_TYPE: ON_DEMAND}),
            price=Price(0.1),
        ),
    ),
    capacity={"cpu": 4000, "memory": 16 * 2**30, "pods": 110},
)


class MinimalProvider:
    """The plug-in; one object for each process."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        """By provider ID. A cloud would store them; here they are restored from Nodes after a restart."""
        self._used_up: set[str] = set()
        """Tokens whose instance is gone. A cloud would store these too."""

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Serve MinimalNodeClass."""
        return ProviderInfo(
            name="minimal",
            contract_version=CONTRACT_VERSION,
            node_classes=(MinimalNodeClass,),
            creates_nodes=True,
        )

    @hookimpl
    def karpenter_start(self, context: ProviderContext) -> None:
        """Keep the context."""
        self._context = context

    @hookimpl
    def karpenter_resolve_node_class(self) -> NodeClassResolution:
        """Report every NodeClass as ready, since there is nothing to resolve."""
        return NodeClassResolution.ready()

    @hookimpl
    def karpenter_list_instance_types(self) -> Sequence[InstanceType]:
        """List the only instance type."""
        return (ONE,)

    @hookimpl
    @one_by_one
    async def karpenter_launch_instances(self, request: LaunchRequest) -> LaunchedInstance:
        """Create an instance, unless the token has one."""
        claim = request.node_claim
        requirements = Requirements.from_specs(claim.spec.requirements)
        if not any(compatible_offerings(it, requirements) for it in request.instance_types):
            raise InsufficientCapacityError(
                f"no instance type meets the requirements of NodeClaim {claim.name}"
            )
        if request.token in self._used_up:
            raise LaunchFailedError(f"the instance of token {request.token} is gone")
        provider_id = PREFIX + claim.name
        self._instances.setdefault(
            provider_id,
            Instance(provider_id=provider_id, node_claim=claim.name, token=request.token),
        )
        with suppress(ConflictError):  # launched before, and the reply was lost
            await self._context.nodes.create(_node(request, provider_id))
        return LaunchedInstance(
            provider_id=provider_id,
            instance_type=ONE.name,
            zone="here",
            capacity_type=ON_DEMAND,
            capacity=ONE.capacity,
            allocatable=ONE.allocatable(),
            labels=LABELS,
        )

    @hookimpl
    @one_by_one
    def karpenter_fetch_instances(self, provider_id: str) -> Instance:
        """Fetch one instance."""
        self._restore()
        if provider_id not in self._instances:
            raise NodeClaimNotFoundError(f"no instance {provider_id}")
        return self._instances[provider_id]

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List every instance."""
        self._restore()
        return InstanceListing(instances=tuple(self._instances.values()))

    @hookimpl
    @one_by_one
    async def karpenter_terminate_instances(self, provider_id: str) -> TerminationStatus:
        """Remove the instance and its Node."""
        self._restore()
        if provider_id in self._instances:
            await self._context.nodes.delete(provider_id.removeprefix(PREFIX))
            self._used_up.add(self._instances.pop(provider_id).token)
        return TerminationStatus.GONE

    def _restore(self) -> None:
        """Add instances that an earlier process launched."""
        for node in self._context.read_nodes().values():
            if node.provider_id.startswith(PREFIX) and not node.is_deleting:
                self._instances.setdefault(node.provider_id, _instance(node))


def _instance(node: NodeView) -> Instance:
    owner = next((owner for owner in node.owners if owner.kind == "NodeClaim"), None)
    return Instance(
        provider_id=node.provider_id,
        node_claim=node.name,
        token=owner.uid if owner else "",
        created=node.created,
    )


def _node(request: LaunchRequest, provider_id: str) -> dict[str, object]:
    claim = request.node_claim
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in (*claim.spec.taints, *claim.spec.startup_taints)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": claim.name,
            "labels": {**claim.metadata.labels, **LABELS, HOSTNAME: claim.name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {
            "providerID": provider_id,
            "taints": [*taints, {"key": UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }
