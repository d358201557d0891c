"""Declares the provider to the conformance kit: a simulated cloud per test."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.api.base import ObjectMeta
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.testing.simulated_cloud import cloud_troubles
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_tinycloud.api import TinyCloudNodeClass, TinyCloudNodeClassSpec
from karpenter_provider_tinycloud.plugin import TinyCloud
from karpenter_provider_tinycloud.simulated import TOKEN, SimulatedTinyCloud

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["node_class", "subject"]


def node_class(spec: TinyCloudNodeClassSpec) -> TinyCloudNodeClass:
    """Make a NodeClass."""
    return TinyCloudNodeClass(
        metadata=ObjectMeta(name="default", uid="uid-of-class", resource_version="1"), spec=spec
    )


@contextmanager
def subject() -> Generator[ConformanceSubject, None, None]:
    """Start a simulated cloud, and stop it after the test."""
    with SimulatedTinyCloud() as cloud:
        yield subject_of(cloud)


def subject_of(cloud: SimulatedTinyCloud) -> ConformanceSubject:
    """Describe the simulated cloud to the kit."""

    def interrupt(_: object, provider_id: str) -> None:
        cloud.reclaim(provider_id)

    troubles = {
        **cloud_troubles(
            cloud,
            launches=["create-vm"],
            throttled=CloudError(
                "throttled", "too many requests", status=429, retry_after_seconds=2
            ),
        ),
        CloudTrouble.QUOTA: cloud.no_quota,
        CloudTrouble.PARTIAL_LISTING: cloud.partial_listing,
        CloudTrouble.TOKEN_IN_PROGRESS: cloud.token_in_progress,
    }
    return ConformanceSubject(
        name="tinycloud",
        make=TinyCloud,
        node_class=node_class(TinyCloudNodeClassSpec()),
        settings={
            "tinycloud-endpoint": cloud.endpoint_url,
            "tinycloud-token": TOKEN,
            "tinycloud-timeout": timedelta(seconds=1),
        },
        troubles=frozenset(troubles) - {CloudTrouble.LATE_FAILURE},  # it creates VMs in the call
        trouble=lambda _, trouble: troubles[trouble](),
        node_manifest=lambda _, provider_id: cloud.node(provider_id),
        list_resources=lambda _: [cloud.provider_id(vm) for vm in cloud.living()],
        create_foreign_instance=lambda _: cloud.create_foreign_vm(),
        sell_out=lambda _, offering: cloud.sold_out_zones.add(offering.zone),
        interrupt=interrupt,
        protect=lambda _, provider_id: cloud.protect(provider_id),
        drift=lambda _, provider_id: cloud.change_image(provider_id, "debian-v6"),
        changed_node_class=node_class(TinyCloudNodeClassSpec(disk_gib=50)),
        unusable_node_classes={
            "no-such-image": node_class(TinyCloudNodeClassSpec(image="no-such-image"))
        },
        sdk_modules=("urllib.request",),
    )
