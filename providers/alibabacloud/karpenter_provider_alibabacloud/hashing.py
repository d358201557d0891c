"""Hashes the NodeClass fields whose change drifts its nodes.

The results of discovery (vSwitches, groups, images, private pools) are not hashed: a node drifts
when the resources *found* no longer include its own. Nor are tags, which are updated on running
instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.node_class.hashing import hash_fields, significant_value
from karpenter_provider_alibabacloud.api.disks import SystemDisk

if TYPE_CHECKING:
    from karpenter_core.provider.contract import NodeClassHash
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ECSNodeClassSpec

__all__ = ["HASH_VERSION", "hash_node_class"]

HASH_VERSION: Final = "py-v1"
"""To be raised when the same NodeClass would get another hash."""

_NOT_HASHED: Final = frozenset(
    {
        "v_switch_selector_terms",
        "security_group_selector_terms",
        "image_selector_terms",
        "capacity_reservation_selector_terms",
        "tags",
        "system_disk",  # counts with size and categories in effect, however they are written
        "data_disks",  # so do these
        "data_disk_categories",
    }
)


def hash_node_class(node_class: ECSNodeClass) -> NodeClassHash:
    """Return the hash of a NodeClass.

    Neither the order of lists counts, nor whether a default or an empty value is written out, nor
    how the size of a disk is spelled, nor whether all categories of disks or none are named.
    """
    spec = node_class.spec
    hashed = {
        "spec": significant_value(
            spec.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude=set(_NOT_HASHED)
            )
        ),
        "systemDisk": significant_value(_system_disk(spec)),
        "dataDisks": significant_value(_data_disks(spec)),
        "dataDiskCategories": sorted(
            spec.effective_data_disk_categories if spec.data_disks else ()
        ),
    }
    return hash_fields(hashed, version=HASH_VERSION)


def _system_disk(spec: ECSNodeClassSpec) -> dict[str, object]:
    disk = spec.system_disk or SystemDisk()
    rest = disk.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        exclude={"size", "volume_size", "categories"},
    )
    return {
        **rest,
        "gib": spec.system_disk_gib,
        "categories": list(spec.system_disk_categories),
    }


def _data_disks(spec: ECSNodeClassSpec) -> list[object]:
    return [
        {
            **disk.model_dump(mode="json", by_alias=True, exclude={"volume_size"}),
            "gib": disk.size_gib,
        }
        for disk in spec.data_disks
    ]
