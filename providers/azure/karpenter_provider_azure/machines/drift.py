"""Finds nodes that their NodeClass or cluster would make differently now.

The hash of the NodeClass covers the fields of its spec, also the subnet. Reasons and their order are those
of Karpenter's provider for Azure; events that come later are this provider's own. AKS itself looks after the
identity of a machine's kubelet.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.drift import detect_drift, require_resolved
from karpenter_provider_azure.images.families import node_image_version
from karpenter_provider_azure.kubernetes_versions import parse_version
from karpenter_provider_azure.labels import AKS_KUBELET_IDENTITY_CLIENT_ID
from karpenter_provider_azure.machines.node_instances import call_by_kind
from karpenter_provider_azure.node_class.conditions import IMAGES_READY, KUBERNETES_VERSION_READY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.machines.described_machines import DescribedMachine
    from karpenter_provider_azure.machines.node_instances import AksMachines

__all__ = ["DriftDetector", "DriftReason"]


class DriftReason(StrEnum):
    """Kinds of drift, the first one first."""

    KUBERNETES_VERSION = "K8sVersionDrift"
    KUBELET_IDENTITY = "KubeletIdentityDrift"
    IMAGE = "ImageDrift"
    CLUSTER_CONFIG = "ClusterConfigDrift"
    """AKS says that one of its machines is not as the cluster would make it now."""
    SCHEDULED_EVENT = "VMEventScheduled"
    """Azure is going to move or delete the virtual machine later: it is replaced before."""


@final
class DriftDetector:
    """Answers `karpenter_detect_drift`; callable from any thread."""

    def __init__(
        self,
        vms: ClusterInstances[DescribedVm],
        machines: AksMachines | None,
        *,
        kubelet_identity: str,
        read_nodes: Callable[[], Mapping[str, NodeView]],
        is_event_ahead: Callable[[NodeView], bool] = lambda _node: False,
    ) -> None:
        """`read_nodes` is that of the context, `is_event_ahead` that of `InterruptionSources`."""
        self._vms: Final = vms
        self._machines: Final = machines
        self._kubelet_identity: Final = kubelet_identity
        self._read_nodes: Final = read_nodes
        self._is_event_ahead: Final = is_event_ahead

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: AKSNodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the instances cannot be read.
        """
        if node_class.is_deleting:
            return [None] * len(node_claims)
        nodes = {
            node.provider_id.lower(): node
            for node in self._read_nodes().values()
            if node.provider_id and not node.is_deleting
        }

        def compare_vm(claim: NodeClaim, vm: DescribedVm) -> DriftReason | None:
            vm.require_no_machine()
            node = nodes.get(claim.status.provider_id.lower())
            if node is not None and _has_older_version(node, node_class):
                return DriftReason.KUBERNETES_VERSION
            if node is not None and _has_other_identity(node, self._kubelet_identity):
                return DriftReason.KUBELET_IDENTITY
            images = {each.id.lower() for each in node_class.status.images}
            unknown = f'NodeClaim "{claim.name}": status.imageID is empty'
            if _has_other_image(claim.status.image_id, node_class, images, unknown=unknown):
                return DriftReason.IMAGE
            return self._announced(node)

        def compare_machine(claim: NodeClaim, machine: DescribedMachine) -> DriftReason | None:
            node = nodes.get(claim.status.provider_id.lower())
            if node is not None and _has_older_version(node, node_class):
                return DriftReason.KUBERNETES_VERSION
            images = {node_image_version(each.id).lower() for each in node_class.status.images}
            unknown = f"AKS machine {machine.name} has no nodeImageVersion"
            if _has_other_image(machine.image_id, node_class, images, unknown=unknown):
                return DriftReason.IMAGE
            return DriftReason.CLUSTER_CONFIG if machine.must_be_replaced else self._announced(node)

        machines = self._machines
        if machines is None:
            return detect_drift(node_claims, self._vms, compare_vm)
        return call_by_kind(
            node_claims,
            lambda claim: machines.is_machine(claim.status.provider_id),
            (
                lambda claims: detect_drift(claims, self._vms, compare_vm),
                lambda claims: detect_drift(claims, machines.instances, compare_machine),
            ),
        )

    def _announced(self, node: NodeView | None) -> DriftReason | None:
        is_ahead = node is not None and self._is_event_ahead(node)
        return DriftReason.SCHEDULED_EVENT if is_ahead else None


def _has_older_version(node: NodeView, node_class: AKSNodeClass) -> bool:
    """Whether a kubelet is older than the version of the NodeClass; False if the latter is not known.

    A newer one is that of the image, and a new node would have it, too: versions of NodeClasses never become
    lower. A version that cannot be read differs by its text.
    """
    version = node_class.status.kubernetes_version
    if not version or not node.kubelet_version or not _is_met(node_class, KUBERNETES_VERSION_READY):
        return False
    # The numbers alone decide on an upgrade (`choose_version`), so they decide on its nodes.
    wanted, own = parse_version(version), parse_version(node.kubelet_version)
    if wanted is not None and own is not None:
        return own < wanted
    return node.kubelet_version.removeprefix("v") != version.removeprefix("v")


def _has_other_identity(node: NodeView, kubelet_identity: str) -> bool:
    """Whether kubelets have another identity than a node has; False if either is not known."""
    label = node.labels.get(AKS_KUBELET_IDENTITY_CLIENT_ID, "")
    return bool(label and kubelet_identity) and label.lower() != kubelet_identity.lower()


def _has_other_image(
    image: str, node_class: AKSNodeClass, images: Collection[str], *, unknown: str
) -> bool:
    """Whether an image is none of those of the NodeClass, in lower case.

    Raises:
        CloudProviderError: the NodeClass has no images, or the node has none (`unknown`).
    """
    if not _is_met(node_class, IMAGES_READY):
        return False
    require_resolved(f'AKSNodeClass "{node_class.name}"', images=node_class.status.images)
    if not image:
        raise CloudProviderError(unknown)
    return image.lower() not in images


def _is_met(node_class: AKSNodeClass, condition_type: str) -> bool:
    """Whether a condition holds for the spec as it is now."""
    condition = find_condition(node_class.status.conditions, condition_type)
    if condition is None or condition.status != TRUE:
        return False
    seen, current = condition.observed_generation, node_class.metadata.generation
    return seen is None or not current or seen == current
