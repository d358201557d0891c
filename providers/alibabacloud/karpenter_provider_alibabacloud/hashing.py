"""Hashes the NodeClass fields whose change drifts its nodes.

The results of discovery (vSwitches, groups, images, private pools) are not hashed: a node drifts
when the resources *found* no longer include its own. Nor are tags, which are updated on running
instances. The Go implementation hashes structs in a way that cannot be repeated elsewhere; this
hash has a version of its own, and hashes of different versions are never compared. So taking over a
cluster drifts no node.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.contract import NodeClassHash
from karpenter_provider_alibabacloud.api.disks import SystemDisk

if TYPE_CHECKING:
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
_DIGITS: Final = 16


def hash_node_class(node_class: ECSNodeClass) -> NodeClassHash:
    """Return the hash of a NodeClass.

    Neither the order of lists counts, nor whether a default or an empty value is written out, nor
    how the size of a disk is spelled, nor whether all categories of disks or none are named.
    """
    spec = node_class.spec
    hashed = {
        "spec": _significant(
            spec.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude=set(_NOT_HASHED)
            )
        ),
        "systemDisk": _significant(_system_disk(spec)),
        "dataDisks": _significant(_data_disks(spec)),
        "dataDiskCategories": sorted(
            spec.effective_data_disk_categories if spec.data_disks else ()
        ),
    }
    digest = hashlib.sha256(_canonical(hashed).encode())
    return NodeClassHash(value=digest.hexdigest()[:_DIGITS], version=HASH_VERSION)


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
            **disk.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude={"volume_size"}
            ),
            "gib": disk.size_gib,
        }
        for disk in spec.data_disks
    ]


def _significant(value: object) -> object:
    """Return a JSON value without what is empty, lists in an order of their own."""
    if isinstance(value, dict):
        below = {
            name: _significant(item) for name, item in cast("dict[str, object]", value).items()
        }
        return {name: item for name, item in below.items() if item not in (None, "", {}, [])}
    if isinstance(value, list):
        return sorted(_canonical(_significant(item)) for item in cast("list[object]", value))
    return value


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
