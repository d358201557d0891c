"""Describes launched virtual machines to the core. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch.launched_instances import describe_launch, offering_in
from karpenter_provider_azure import labels
from karpenter_provider_azure.catalogue.zones import placement_scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchedInstance
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = ["launched_node", "uses_ultra_ssd"]

_RESERVATION_LABEL: Final = ""
"""No offering is reserved."""


def uses_ultra_ssd(claim: NodeClaim) -> bool:
    """Whether a claim asks for a virtual machine that ultra disks can be attached to.

    It does if its requirements allow `true` and not `false`.
    """
    requirements = Requirements.from_specs(claim.spec.requirements)
    if labels.SKU_STORAGE_ULTRA_SSD not in requirements:
        return False
    wanted = requirements.get(labels.SKU_STORAGE_ULTRA_SSD)
    return wanted.has(labels.TRUE) and not wanted.has(labels.FALSE)


def launched_node(
    claim: NodeClaim,
    vm: DescribedVm,
    instance_type: InstanceType,
    *,
    image_id: str,
    annotations: Mapping[str, str] | None = None,
) -> LaunchedInstance:
    """Return the outcome of a claim whose virtual machine exists.

    `instance_type` is that of the virtual machine, with all its offerings.
    """
    priority = labels.PRIORITY_OF[vm.capacity_type]
    offering = offering_in(
        instance_type,
        zone=vm.zone,
        capacity_type=vm.capacity_type,
        reservation_label=_RESERVATION_LABEL,
    )
    return describe_launch(
        claim,
        instance_type,
        offering,
        provider_id=vm.provider_id,
        zone=vm.zone,
        capacity_type=vm.capacity_type,
        image_id=image_id,
        labels={
            **_own_labels(claim),
            labels.PLACEMENT_SCOPE: placement_scope(vm.zone),
            labels.AKS_SCALE_SET_PRIORITY: priority,
            labels.AKS_PRIORITY: priority,
            labels.SKU_STORAGE_ULTRA_SSD: labels.TRUE if uses_ultra_ssd(claim) else labels.FALSE,
        },
        offering_labels=labels.OFFERING_LABELS,
        annotations=annotations,
    )


def _own_labels(claim: NodeClaim) -> dict[str, str]:
    """Return the labels of AKS and this provider that the claim's requirements fix to one value."""
    requirements = Requirements.from_specs(claim.spec.requirements)
    return {
        key: value
        for key in requirements
        if key in labels.WELL_KNOWN - WELL_KNOWN and (value := requirements.single_value(key))
    }
