"""Finds AKS machines that are not as their NodeClass or the cluster would make them now.

Reasons and their order are those of Karpenter's provider for Azure. AKS itself looks after the identity of a
machine's kubelet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.drift import detect_drift, require_resolved
from karpenter_provider_azure.images.families import node_image_version
from karpenter_provider_azure.instances.drift import (
    DriftReason,
    has_other_version,
    is_met,
    nodes_by_provider_id,
)
from karpenter_provider_azure.machines.node_instances import call_by_kind
from karpenter_provider_azure.node_class.conditions import IMAGES_READY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.instances.drift import DriftDetector
    from karpenter_provider_azure.machines.described_machines import DescribedMachine
    from karpenter_provider_azure.machines.node_instances import AksMachines

__all__ = ["NodeDriftDetector", "machine_drift_of"]


def machine_drift_of(
    machine: DescribedMachine,
    node_class: AKSNodeClass,
    node: NodeView | None,
    *,
    is_event_ahead: Callable[[NodeView], bool],
) -> DriftReason | None:
    """Return the first reason; None if there is none.

    `node` is None if the claim has no Node, or its Node is being deleted.

    Raises:
        CloudProviderError: there is nothing to compare with.
    """
    if node is not None and has_other_version(node, node_class):
        return DriftReason.KUBERNETES_VERSION
    if _has_other_image(machine, node_class):
        return DriftReason.IMAGE
    if machine.must_be_replaced:
        return DriftReason.CLUSTER_CONFIG
    if node is not None and is_event_ahead(node):
        return DriftReason.SCHEDULED_EVENT
    return None


def _has_other_image(machine: DescribedMachine, node_class: AKSNodeClass) -> bool:
    if not is_met(node_class, IMAGES_READY):
        return False
    require_resolved(f'AKSNodeClass "{node_class.name}"', images=node_class.status.images)
    if not machine.image_id:
        raise CloudProviderError(f"AKS machine {machine.name} has no nodeImageVersion")
    versions = {node_image_version(each.id).lower() for each in node_class.status.images}
    return machine.image_id.lower() not in versions


@final
class NodeDriftDetector:
    """Answers `karpenter_detect_drift`; callable from any thread."""

    def __init__(
        self,
        vms: DriftDetector,
        machines: AksMachines | None,
        *,
        read_nodes: Callable[[], Mapping[str, NodeView]],
        is_event_ahead: Callable[[NodeView], bool],
    ) -> None:
        """`read_nodes` and `is_event_ahead` are those of `DriftDetector`."""
        self._vms: Final = vms
        self._machines: Final = machines
        self._read_nodes: Final = read_nodes
        self._is_event_ahead: Final = is_event_ahead

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: AKSNodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the instances cannot be read.
        """
        machines = self._machines
        if machines is None or node_class.is_deleting:
            return self._vms.detect(node_claims, node_class)
        nodes = nodes_by_provider_id(self._read_nodes().values())

        def compare(claim: NodeClaim, machine: DescribedMachine) -> DriftReason | None:
            node = nodes.get(claim.status.provider_id.lower())
            return machine_drift_of(machine, node_class, node, is_event_ahead=self._is_event_ahead)

        return call_by_kind(
            node_claims,
            lambda claim: machines.is_machine(claim.status.provider_id),
            of_vms=lambda claims: self._vms.detect(claims, node_class),
            of_machines=lambda claims: detect_drift(claims, machines.instances, compare),
        )
