"""A provider with scripted answers."""

from __future__ import annotations

from typing import ClassVar

from karpenter_core.api.base import CustomResource, ObjectMeta
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import NodeClaimNotFoundError
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    Instance,
    InstanceListing,
    LaunchedInstance,
    ProviderInfo,
    TerminationStatus,
)
from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing.builders import instance_type


class WebNodeClass(NodeClass):
    resource: ClassVar[CustomResource] = CustomResource(
        group="web.example.com",
        version="v1",
        kind="WebNodeClass",
        plural="webnodeclasses",
        singular="webnodeclass",
    )


class DataNodeClass(NodeClass):
    resource: ClassVar[CustomResource] = CustomResource(
        group="data.example.com",
        version="v1",
        kind="DataNodeClass",
        plural="datanodeclasses",
        singular="datanodeclass",
    )


def node_class(model: type[NodeClass] = WebNodeClass, name: str = "default") -> NodeClass:
    return model(metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1"))


def launched(request) -> LaunchedInstance:
    return LaunchedInstance(
        provider_id=f"fake://{request.node_claim.name}",
        instance_type="small",
        zone="zone-a",
        capacity_type="on-demand",
        capacity={"cpu": 4000},
        allocatable={"cpu": 3900},
    )


class FakeProvider:
    """Serves one kind; keeps the calls it got, and answers by the functions a test puts in."""

    def __init__(
        self,
        name="web",
        model: type[NodeClass] = WebNodeClass,
        *,
        version=CONTRACT_VERSION,
        batch_limits=None,
        observes=False,
    ):
        self.name = name
        self.model = model
        self.version = version
        self.batch_limits = batch_limits or {}
        self.observes = observes
        self.launches = []
        self.terminations = []
        self.answer = lambda requests: [launched(request) for request in requests]

    @hookimpl
    def karpenter_provider_info(self):
        return ProviderInfo(
            name=self.name,
            contract_version=self.version,
            node_classes=(self.model,),
            batch_limits=self.batch_limits,
            observes=self.observes,
        )

    @hookimpl
    def karpenter_list_instance_types(self):
        return [instance_type("small", cpu="4"), instance_type("large", cpu="32")]

    @hookimpl
    def karpenter_launch_instances(self, requests):
        self.launches.append([request.node_claim.name for request in requests])
        return self.answer(requests)

    @hookimpl
    def karpenter_fetch_instances(self, provider_ids):
        return [
            NodeClaimNotFoundError(provider_id)
            if "gone" in provider_id
            else Instance(provider_id=provider_id)
            for provider_id in provider_ids
        ]

    @hookimpl
    def karpenter_list_instances(self):
        return InstanceListing(instances=())

    @hookimpl
    def karpenter_terminate_instances(self, provider_ids):
        self.terminations.append(list(provider_ids))
        return [TerminationStatus.GONE] * len(provider_ids)
