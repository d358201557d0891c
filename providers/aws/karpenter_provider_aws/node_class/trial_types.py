"""Chooses the instance type for the dry run of a NodeClass."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_aws.families.images import STANDARD, image_for
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.labels import (
    INSTANCE_TENANCY,
    LABEL_CLASSES,
    TENANCY_DEDICATED,
    TENANCY_DEFAULT,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.api.nodeclass import Ami, EC2NodeClass

__all__ = ["trial_tenancy", "trial_type"]

DEFAULTS: Final = ("m5.large", "m6g.large")
"""For when no NodePool says what is wanted: common types, one of each architecture."""


def trial_type(
    instance_types: Sequence[InstanceType],
    node_pools: Iterable[NodePool],
    node_class: EC2NodeClass,
) -> InstanceType | None:
    """Return the type to try; None when none of the status's images is for any type.

    Of those that a NodePool of the NodeClass would take, the cheapest that can be had; one whose
    image has no drivers comes first, since images with drivers need larger volumes. Without such a
    type, and for Windows (where the catalogue lists types that no Windows image boots on), it is a
    common one.
    """
    pools = [_requirements(pool) for pool in node_pools]
    fitting = [
        it for it in instance_types if any(it.requirements.intersects(pool) for pool in pools)
    ]
    if not fitting or TRAITS[node_class.ami_family].is_windows:
        by_name = {it.name: it for it in instance_types}
        usual = [by_name[name] for name in DEFAULTS if name in by_name]
        fitting = usual or list(instance_types)
    amis = node_class.status.amis
    ranked = ((_rank(it, ami), it) for it in fitting if (ami := image_for(it, amis)) is not None)
    return min(ranked, key=lambda item: item[0], default=(None, None))[1]


def trial_tenancy(node_pools: Iterable[NodePool]) -> str:
    """Return `dedicated` if any NodePool asks for that: it needs more permissions."""
    for pool in map(_requirements, node_pools):
        if INSTANCE_TENANCY in pool and pool.get(INSTANCE_TENANCY).has(TENANCY_DEDICATED):
            return TENANCY_DEDICATED
    return TENANCY_DEFAULT


def _requirements(pool: NodePool) -> Requirements:
    template = pool.spec.template
    return Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels(template.metadata.labels)
    )


def _rank(instance_type: InstanceType, ami: Ami) -> tuple[bool, bool, float, str]:
    prices = [o.price.amount for o in instance_type.offerings if o.available]
    return (
        not prices,
        not _is_standard(ami),
        min(prices, default=inf),
        instance_type.name,
    )


def _is_standard(ami: Ami) -> bool:
    """Whether an image is for instance types without accelerators."""
    return Requirements.from_specs(ami.requirements).compatible(
        Requirements.from_specs(STANDARD), allow_undefined=LABEL_CLASSES.well_known
    )
