"""Describes the provider to the conformance kit, with a simulated cloud for each test."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_tinycloud.api import TinyCloudNodeClass, TinyCloudNodeClassSpec
from karpenter_provider_tinycloud.plugin import PREFIX, TinyCloud
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

    def drift(_: object, provider_id: str) -> None:
        cloud.vms[provider_id.removeprefix(PREFIX)]["image"] = "debian-v6"

    return ConformanceSubject(
        name="tinycloud",
        make=TinyCloud,
        node_class=node_class(TinyCloudNodeClassSpec()),
        settings={
            "tinycloud-endpoint": cloud.endpoint,
            "tinycloud-token": TOKEN,
            "tinycloud-timeout": timedelta(seconds=1),
        },
        troubles=frozenset(CloudTrouble)
        - {CloudTrouble.LATE_FAILURE},  # it creates VMs in the call
        trouble=lambda _, trouble: cloud.trouble(trouble.value),
        node_manifest=lambda _, provider_id: cloud.boot(provider_id.removeprefix(PREFIX)),
        list_resources=lambda _: [PREFIX + vm_id for vm_id in cloud.vms],
        create_foreign_instance=lambda _: PREFIX + cloud.make_foreign(),
        sell_out=lambda _, offering: cloud.sell_out(offering.zone),
        interrupt=lambda _, provider_id: cloud.announce(provider_id.removeprefix(PREFIX)),
        protect=lambda _, provider_id: cloud.protect(provider_id.removeprefix(PREFIX)),
        drift=drift,
        changed_node_class=node_class(TinyCloudNodeClassSpec(disk_gib=50)),
        unusable_node_classes={
            "no-such-image": node_class(TinyCloudNodeClassSpec(image="no-such-image"))
        },
        sdk_modules=("urllib.request",),
    )
