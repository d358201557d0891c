"""Finds virtual machines that are not as their NodeClass would make them now.

The hash of the NodeClass covers the fields of its spec, also the subnet. Reasons and their order are those
of Karpenter's provider for Azure; events that come later are this provider's own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.drift import detect_drift, require_resolved
from karpenter_provider_azure.labels import AKS_KUBELET_IDENTITY_CLIENT_ID
from karpenter_provider_azure.node_class.conditions import IMAGES_READY, KUBERNETES_VERSION_READY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = [
    "DriftDetector",
    "DriftReason",
    "drift_of",
    "has_other_version",
    "is_met",
    "nodes_by_provider_id",
]


class DriftReason(StrEnum):
    """Kinds of drift."""

    KUBERNETES_VERSION = "K8sVersionDrift"
    KUBELET_IDENTITY = "KubeletIdentityDrift"
    IMAGE = "ImageDrift"
    CLUSTER_CONFIG = "ClusterConfigDrift"
    """AKS says that one of its machines is not as the cluster would make it now."""
    SCHEDULED_EVENT = "VMEventScheduled"
    """Azure is going to move or delete the virtual machine later: it is replaced before."""


def drift_of(
    claim: NodeClaim,
    node_class: AKSNodeClass,
    node: NodeView | None,
    *,
    kubelet_identity: str,
    is_event_ahead: Callable[[NodeView], bool] = lambda _node: False,
) -> DriftReason | None:
    """Return the first reason; None if there is none.

    `node` is None if the claim has no Node, or its Node is being deleted.

    Raises:
        CloudProviderError: there is nothing to compare with.
    """
    if node is not None and has_other_version(node, node_class):
        return DriftReason.KUBERNETES_VERSION
    if node is not None and _has_other_identity(node, kubelet_identity):
        return DriftReason.KUBELET_IDENTITY
    if _has_other_image(claim, node_class):
        return DriftReason.IMAGE
    if node is not None and is_event_ahead(node):
        return DriftReason.SCHEDULED_EVENT
    return None


def has_other_version(node: NodeView, node_class: AKSNodeClass) -> bool:
    """Whether a kubelet has another version than the NodeClass; False if the latter is not known."""
    version = node_class.status.kubernetes_version
    if not version or not node.kubelet_version or not is_met(node_class, KUBERNETES_VERSION_READY):
        return False
    return node.kubelet_version.removeprefix("v") != version.removeprefix("v")


def _has_other_identity(node: NodeView, kubelet_identity: str) -> bool:
    label = node.labels.get(AKS_KUBELET_IDENTITY_CLIENT_ID, "")
    return bool(label) and label.lower() != kubelet_identity.lower()


def _has_other_image(claim: NodeClaim, node_class: AKSNodeClass) -> bool:
    if not is_met(node_class, IMAGES_READY):
        return False
    require_resolved(f'AKSNodeClass "{node_class.name}"', images=node_class.status.images)
    image = claim.status.image_id
    if not image:
        raise CloudProviderError(f'NodeClaim "{claim.name}": status.imageID is empty')
    return image.lower() not in {each.id.lower() for each in node_class.status.images}


def is_met(node_class: AKSNodeClass, condition_type: str) -> bool:
    """Whether a condition holds for the spec as it is now."""
    condition = find_condition(node_class.status.conditions, condition_type)
    if condition is None or condition.status != TRUE:
        return False
    seen, current = condition.observed_generation, node_class.metadata.generation
    return seen is None or not current or seen == current


def nodes_by_provider_id(nodes: Iterable[NodeView]) -> dict[str, NodeView]:
    """Return the Nodes that are not being deleted, by provider id in lower case."""
    return {
        node.provider_id.lower(): node
        for node in nodes
        if node.provider_id and not node.is_deleting
    }


@final
class DriftDetector:
    """Finds drift of virtual machines; callable from any thread."""

    def __init__(
        self,
        *,
        instances: ClusterInstances[DescribedVm],
        kubelet_identity: str,
        read_nodes: Callable[[], Mapping[str, NodeView]],
        is_event_ahead: Callable[[NodeView], bool] = lambda _node: False,
    ) -> None:
        """`read_nodes` is that of the context, `is_event_ahead` that of `InterruptionSources`."""
        self._instances: Final = instances
        self._kubelet_identity: Final = kubelet_identity
        self._read_nodes: Final = read_nodes
        self._is_event_ahead: Final = is_event_ahead

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: AKSNodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the virtual machines cannot be read.
        """
        if node_class.is_deleting:
            return [None] * len(node_claims)
        nodes = nodes_by_provider_id(self._read_nodes().values())

        def compare(claim: NodeClaim, vm: DescribedVm) -> DriftReason | None:
            vm.require_no_machine()
            return drift_of(
                claim,
                node_class,
                nodes.get(claim.status.provider_id.lower()),
                kubelet_identity=self._kubelet_identity,
                is_event_ahead=self._is_event_ahead,
            )

        return detect_drift(node_claims, self._instances, compare)
