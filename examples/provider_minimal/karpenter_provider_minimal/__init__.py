"""The smallest provider for karpenter-core that keeps the contract.

Its cloud is a dictionary, and a machine is a Node that it creates itself; a real cloud's machines
boot and register on their own. What a real provider adds: calls to an SDK in place of the
dictionary, prices, zones, images, and the optional hooks.
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
    """Nothing can be chosen, so the kind has no fields of its own."""

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
    """The plug-in."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        """By provider id. A cloud would keep them; here, Nodes remind us after a restart."""
        self._used_up: set[str] = set()
        """Tokens whose machine is gone. A cloud would keep these too."""

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Say who we are."""
        return ProviderInfo(
            name="minimal", contract_version=CONTRACT_VERSION, node_classes=(MinimalNodeClass,)
        )

    @hookimpl
    def karpenter_start(self, context: ProviderContext) -> None:
        """Keep the context."""
        self._context = context

    @hookimpl
    def karpenter_resolve_node_class(self) -> NodeClassResolution:
        """There is nothing to find, so every NodeClass is ready."""
        return NodeClassResolution.ready()

    @hookimpl
    def karpenter_list_instance_types(self) -> Sequence[InstanceType]:
        """Sell the one type."""
        return (ONE,)

    @hookimpl
    @one_by_one
    async def karpenter_launch_instances(self, request: LaunchRequest) -> LaunchedInstance:
        """Create the machine unless the token's machine is there already."""
        claim = request.node_claim
        requirements = Requirements.from_specs(claim.spec.requirements)
        if not any(compatible_offerings(it, requirements) for it in request.instance_types):
            raise InsufficientCapacityError(f"nothing here for NodeClaim {claim.name}")
        if request.token in self._used_up:
            raise LaunchFailedError(f"the machine of token {request.token} is gone")
        provider_id = PREFIX + claim.name
        self._instances.setdefault(
            provider_id,
            Instance(provider_id=provider_id, node_claim=claim.name, token=request.token),
        )
        with suppress(ConflictError):  # launched before, and the answer was lost
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
        """Look one machine up."""
        self._remember()
        if provider_id not in self._instances:
            raise NodeClaimNotFoundError(f"no instance {provider_id}")
        return self._instances[provider_id]

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List every machine."""
        self._remember()
        return InstanceListing(instances=tuple(self._instances.values()))

    @hookimpl
    @one_by_one
    async def karpenter_terminate_instances(self, provider_id: str) -> TerminationStatus:
        """Remove the machine, and its Node."""
        self._remember()
        if provider_id in self._instances:
            await self._context.nodes.delete(provider_id.removeprefix(PREFIX))
            self._used_up.add(self._instances.pop(provider_id).token)
        return TerminationStatus.GONE

    def _remember(self) -> None:
        """Take in machines launched before this process began."""
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
