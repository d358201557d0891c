"""Calls the API of the cloud, and describes its answers in the words of the contract."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, final
from urllib.parse import quote

from msgspec import Struct

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    TerminationRefusedError,
)
from karpenter_core.provider import contract
from karpenter_core.provider.catalogue import InstanceType, Price
from karpenter_core.provider.kit.calls.operation_limits import CallRate
from karpenter_core.provider.kit.calls.rest import RestClient, RestRefusedError
from karpenter_core.provider.kit.instance_types import MIB, build_instance_type, zone_offering
from karpenter_core.provider.kit.node_registration import registration_labels, registration_taints
from karpenter_core.provider.kit.per_instance import PerInstanceCloud, PerInstancePlugin
from karpenter_core.provider.kit.plugin import provider_info, setting_specs
from karpenter_core.provider.kit.setting_values import duration_of
from karpenter_provider_sample.api import SampleNodeClass

PREFIX: Final = "sample://"
RATE: Final = CallRate(per_second=20, burst=100)


class ServerType(Struct):
    """A server type of the price list, which does not say what is sold out."""

    name: str
    arch: str
    cpus: int
    memory_mib: int
    zones: list[str]
    eur_per_hour: str


class Server(Struct):
    """A server; `error` says why its state is `error`."""

    id: str
    type: str
    zone: str
    image: str
    labels: dict[str, str]
    state: str
    created: datetime
    error: str = ""


@final
class SampleCloud(PerInstanceCloud[SampleNodeClass]):
    """The servers of one cluster."""

    def __init__(self, context: contract.ProviderContext) -> None:
        super().__init__(context)
        settings = context.settings
        self._client: Final = RestClient(
            str(settings["sample-endpoint"]),
            headers={"Authorization": f"Bearer {settings['sample-token']}"},
            timeout=duration_of(context, "sample-timeout"),
            error_of=_error,
            rates={"read": RATE, "write": RATE},
        )

    def resolve(self, node_class: SampleNodeClass) -> contract.NodeClassResolution:
        """Find the newest version of the image."""
        name = node_class.spec.image
        found = self._client.find("get image", f"/v1/images/{quote(name, safe='')}", dict[str, str])
        if found is None:
            message = f'spec.image: there is no image "{name}"'
            return contract.NodeClassResolution.not_ready("ImageNotFound", message)
        return contract.NodeClassResolution.ready({"imageID": found["id"]})

    def hashed_fields(self, node_class: SampleNodeClass) -> dict[str, object]:
        """Return the disk size; the image of each server is compared instead."""
        return {"diskGib": node_class.spec.disk_gib}

    def read_types(self) -> list[InstanceType]:
        """Read the price list."""
        types = self._client.get("list types", "/v1/types", list[ServerType])
        return [_instance_type(each) for each in sorted(types, key=lambda each: each.name)]

    def create(
        self, request: contract.LaunchRequest, node_class: SampleNodeClass, offering: OfferingKey
    ) -> contract.Instance:
        """Create a server; its name is unique, so a claim never gets two."""
        claim, name = request.node_claim, f"karpenter-{request.token}"
        body = {
            "name": name,
            "type": offering.instance_type,
            "zone": offering.zone,
            "image": node_class.status.image_id,
            "disk_gib": node_class.spec.disk_gib,
            "labels": {"cluster": self.cluster, "claim": claim.name, "claim-uid": claim.uid},
            "node_labels": registration_labels(claim),
            "node_taints": registration_taints(claim),
        }
        try:
            server = self._client.call("create server", "POST", "/v1/servers", Server, body=body)
        except RestRefusedError as error:
            if error.code != "name_taken":
                raise
            found = self._servers(name=name)  # of an earlier request, perhaps without an answer
            if not found:
                raise CloudProviderError(f"server {name} exists and is not listed yet") from error
            server = found[0]
        return _instance(server)

    def list_instances(self) -> contract.InstanceListing:
        """List the servers of the cluster; if one page cannot be read, there is no listing."""
        return contract.InstanceListing(instances=tuple(map(_instance, self._servers())))

    def find(self, provider_id: str) -> contract.Instance | None:
        """Read one server."""
        server = self._client.find("get server", _path(provider_id), Server)
        return _instance(server) if server else None

    def terminate(self, provider_id: str) -> bool:
        """Start the deletion of a server."""
        path = _path(provider_id)
        return self._client.find("delete server", path, Server, method="DELETE") is not None

    def drift_reason(self, instance: contract.Instance, node_class: SampleNodeClass) -> str:
        """Compare the image with that of new servers."""
        newest = node_class.status.image_id
        return "ImageDrift" if newest and instance.image_id != newest else ""

    def failures(self) -> dict[str, CloudProviderError]:
        """Return the servers in the state `error`."""
        return {
            PREFIX + each.id: _error(each.error, message) or LaunchFailedError(message)
            for each in self._servers()
            if each.state == "error" and (message := f"server {each.id} failed: {each.error}")
        }

    def _servers(self, **query: str) -> list[Server]:
        query["label"] = f"cluster={self.cluster}"
        return self._client.pages("list servers", "/v1/servers", "servers", Server, **query)


@final
class SamplePlugin(PerInstancePlugin[SampleNodeClass]):
    """The plug-in; one object for each process."""

    title = "sample cloud"
    info = provider_info("sample", SampleNodeClass)
    settings = setting_specs(
        ("--sample-endpoint", "https://api.sample.example.com", "URL of the API."),
        ("--sample-token", "", "Token of the account; prefer the variable to the flag."),
        ("--sample-timeout", timedelta(seconds=20), "Time limit of one call."),
    )
    cloud = SampleCloud


def _path(provider_id: str) -> str:
    return f"/v1/servers/{quote(provider_id.removeprefix(PREFIX), safe='')}"


def _error(code: str, message: str) -> CloudProviderError | None:
    """Return the error for a code with which the cloud refuses a call, or fails a launch later."""
    match code:
        case "no_capacity":
            return InsufficientCapacityError(message)
        case "quota":
            return InsufficientCapacityError(message, scope=ExhaustedScope.REGION)
        case "protected":
            return TerminationRefusedError(message)
        case "invalid":
            return LaunchFailedError(message)
        case _:
            return None


def _instance(server: Server) -> contract.Instance:
    return contract.Instance(
        provider_id=PREFIX + server.id,
        node_claim=server.labels.get("claim", ""),
        token=server.labels.get("claim-uid", ""),
        instance_type=server.type,
        zone=server.zone,
        capacity_type=ON_DEMAND,
        image_id=server.image,
        created=server.created,
        terminating=server.state == "deleting",
    )


def _instance_type(sold: ServerType) -> InstanceType:
    price = Price(float(sold.eur_per_hour), "EUR")
    return build_instance_type(
        sold.name,
        arch=sold.arch,
        offerings=[zone_offering(zone, price) for zone in sold.zones],
        capacity={
            "cpu": sold.cpus * 1000,
            "memory": sold.memory_mib * MIB * 94 // 100,  # firmware and kernel keep the rest
            "pods": 110,
        },
    )
