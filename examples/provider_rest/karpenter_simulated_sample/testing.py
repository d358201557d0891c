"""Describes the sample provider to the conformance kit, with a simulated cloud for each test."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_provider_sample.api import SampleNodeClass, SampleNodeClassSpec
from karpenter_provider_sample.plugin import SamplePlugin

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.provider.kit.simulated.capacity import SimulatedQuota
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.testing.simulated_cloud import cloud_troubles, partial_listing
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_simulated_sample.cloud import SimulatedSampleCloud

if TYPE_CHECKING:
    from collections.abc import Generator

THROTTLED = CloudError("throttled", "too many requests", status=429)
QUOTA = CloudError("quota", "the account may have no more servers", status=409)


def node_class(**spec: object) -> SampleNodeClass:
    """Make a NodeClass."""
    return SampleNodeClass(
        metadata=ObjectMeta(name="default", uid="uid-of-class", resource_version="1"),
        spec=SampleNodeClassSpec.model_validate(spec),
    )


@contextmanager
def subject() -> Generator[ConformanceSubject]:
    """Start a simulated cloud, and stop it after the test."""
    with SimulatedSampleCloud() as cloud:
        yield subject_of(cloud)


def subject_of(cloud: SimulatedSampleCloud) -> ConformanceSubject:
    """Describe a simulated cloud to the kit."""
    troubles = cloud_troubles(cloud, launches=["create"], throttled=THROTTLED) | {
        CloudTrouble.QUOTA: lambda: _quota(cloud),
        CloudTrouble.LATE_FAILURE: lambda: cloud.fail_late(code="no_capacity"),
        CloudTrouble.PARTIAL_LISTING: lambda: partial_listing(
            cloud, "list", has_token=lambda parameters: "page_token" in parameters
        ),
    }

    def create_foreign_instance(_: object) -> str:
        pool = InstancePool(capacity_type=ON_DEMAND, instance_type="s-2", zone="north")
        server = cloud.launch("create", pool)
        server.tags = {"name": "foreign", "cluster": "other"}
        return cloud.provider_id(server)

    def drift(_: object, provider_id: str) -> None:
        cloud.instance(provider_id).image_id = "debian-1"

    return ConformanceSubject(
        name="sample",
        make=SamplePlugin,
        node_class=node_class(),
        settings={"sample-endpoint": cloud.endpoint_url, "sample-timeout": timedelta(seconds=1)},
        has_tokens=False,
        troubles=frozenset(troubles),
        trouble=lambda _, trouble: troubles[trouble](),
        node_manifest=lambda _, provider_id: cloud.node(provider_id),
        list_resources=lambda _: [cloud.provider_id(each) for each in cloud.living()],
        create_foreign_instance=create_foreign_instance,
        protect=lambda _, provider_id: cloud.fail(
            "delete",
            code="protected",
            status=409,
            times=None,
            where=lambda parameters: parameters["id"] == cloud.instance_id(provider_id),
        ),
        drift=drift,
        changed_node_class=node_class(disk_gib=50),
        unusable_node_classes={"no-such-image": node_class(image="no-such-image")},
        sdk_modules=("urllib.request",),
    )


@contextmanager
def _quota(cloud: SimulatedSampleCloud) -> Generator[None]:
    cloud.capacity.set_quota("all", SimulatedQuota(amount=0, covers=lambda _: True, error=QUOTA))
    try:
        yield
    finally:
        cloud.capacity.set_quota("all", None)
