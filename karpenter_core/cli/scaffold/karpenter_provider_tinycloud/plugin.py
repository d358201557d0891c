"""Implements the hooks of the provider contract."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    SPOT,
    ZONE,
)
from karpenter_core.errors import (
    NodeClaimNotFoundError,
    NodeClassNotReadyError,
    OfferingKey,
    SettingsError,
)
from karpenter_core.provider.contract import (
    DriftFinding,
    Finding,
    Instance,
    InstanceListing,
    Interruption,
    InterruptionKind,
    LaunchedInstance,
    NodeClassHash,
    NodeClassResolution,
    PeriodicTask,
    ProviderInfo,
    SettingSpec,
    TerminationStatus,
)
from karpenter_core.provider.kit.doctor import DoctorCheck, ok_finding, run_checks
from karpenter_core.provider.kit.launch.cheapest import launch_cheapest
from karpenter_core.provider.kit.node_registration import registration_labels, registration_taints
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.kit.plugin import provider_info, setting_specs
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_tinycloud.api import TinyCloudNodeClass, static_hash
from karpenter_provider_tinycloud.catalogue import instance_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchRequest, ProviderContext
    from karpenter_provider_tinycloud.client import Json, TinyCloudClient

__all__ = ["PREFIX", "TinyCloud"]

PREFIX: Final = "tinycloud://"
SETTINGS: Final = setting_specs(
    ("--tinycloud-endpoint", "https://api.tinycloud.example.com", "URL of the tinycloud API."),
    ("--tinycloud-token", "", "Token of the account; prefer the variable to the flag."),
    ("--tinycloud-timeout", timedelta(seconds=30), "Time limit of one call to tinycloud."),
)


@final
class TinyCloud:
    """The plug-in; one object for each process."""

    _client: TinyCloudClient
    _cluster: str
    _catalogue: tuple[InstanceType, ...] = ()

    @hookimpl
    def karpenter_provider_info(self) -> ProviderInfo:
        """Serve TinyCloudNodeClass."""
        return provider_info("tinycloud", TinyCloudNodeClass)

    @hookimpl
    def karpenter_add_settings(self) -> Sequence[SettingSpec]:
        """Add endpoint, token and time limit."""
        return SETTINGS

    @hookimpl
    def karpenter_start(self, context: ProviderContext) -> None:
        """Create the client; send no request yet."""
        from karpenter_provider_tinycloud.client import TinyCloudClient

        if not context.cluster.name:
            raise SettingsError(
                "--cluster-name: must be given; without it the provider cannot distinguish the VMs of "
                "this cluster from those of other clusters"
            )
        settings = context.settings
        timeout = settings["tinycloud-timeout"]
        if not isinstance(timeout, timedelta) or timeout <= timedelta():
            raise SettingsError(f"--tinycloud-timeout: must be above zero, not {timeout}")
        self._cluster = context.cluster.name
        self._client = TinyCloudClient(
            str(settings["tinycloud-endpoint"]), str(settings["tinycloud-token"]), timeout=timeout
        )

    @hookimpl
    def karpenter_resolve_node_class(self, node_class: TinyCloudNodeClass) -> NodeClassResolution:
        """Find the newest version of the image."""
        image = node_class.spec.image
        version = self._client.image_version(image)
        if version is None:
            return NodeClassResolution.not_ready(
                "ImageNotFound", f'spec.image: there is no image "{image}"'
            )
        return NodeClassResolution.ready({"imageVersion": version})

    @hookimpl
    def karpenter_hash_node_class(self, node_class: TinyCloudNodeClass) -> NodeClassHash:
        """Hash the fields that cannot be compared with a VM."""
        return static_hash(node_class.spec)

    @hookimpl
    def karpenter_list_instance_types(self) -> Sequence[InstanceType]:
        """Return the catalogue that was read last."""
        if not self._catalogue:
            self._refresh_catalogue()
        return self._catalogue

    def _refresh_catalogue(self) -> None:
        self._catalogue = instance_types(self._client.sizes())

    @hookimpl
    @one_by_one
    def karpenter_launch_instances(self, request: LaunchRequest) -> LaunchedInstance:
        """Try the offerings that the claim allows, the cheapest first."""
        return launch_cheapest(request, lambda offering: self._create(request, offering))

    def _create(self, request: LaunchRequest, offering: OfferingKey) -> Instance:
        claim = request.node_claim
        wish = {
            "token": request.token,
            "cluster": self._cluster,
            "claim": claim.name,
            "size": offering.instance_type,
            "zone": offering.zone,
            "spot": offering.capacity_type == SPOT,
            "image": self._image_version(request),
            "user_data": _user_data(claim, offering),
        }
        return _instance(self._client.create_vm(wish))

    def _image_version(self, request: LaunchRequest) -> str:
        node_class = request.node_class
        assert isinstance(node_class, TinyCloudNodeClass)  # noqa: S101 - the only kind we serve
        found = node_class.status.image_version or self._client.image_version(node_class.spec.image)
        if not found:
            raise NodeClassNotReadyError(f'there is no image "{node_class.spec.image}"')
        return found

    @hookimpl
    @one_by_one
    def karpenter_fetch_instances(self, provider_id: str) -> Instance:
        """Fetch one VM."""
        vm = self._client.vm(_vm_id(provider_id))
        if vm is None:
            raise NodeClaimNotFoundError(f"there is no VM {provider_id}")
        return _instance(vm)

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List the VMs of this cluster."""
        answer = self._client.vms(self._cluster)
        unread = answer["unread_zones"]
        return InstanceListing(
            instances=tuple(_instance(vm) for vm in answer["vms"]),
            complete=not unread,
            problem=f"zones that could not be read: {', '.join(unread)}" if unread else "",
        )

    @hookimpl
    def karpenter_sync_instance(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Tag the VM with the name of its Node."""
        vm_id = _vm_id(node_claim.status.provider_id)
        self._client.tag_vm(vm_id, {"node": node.name})

    @hookimpl
    @one_by_one
    def karpenter_detect_drift(
        self, node_claim: NodeClaim, node_class: TinyCloudNodeClass
    ) -> DriftFinding | None:
        """Compare the VM's image with the newest version."""
        vm = self._client.vm(_vm_id(node_claim.status.provider_id))
        if vm is None:
            raise NodeClaimNotFoundError(f"there is no VM for NodeClaim {node_claim.name}")
        version = self._client.image_version(node_class.spec.image)
        if version is None or vm["image"] == version:
            return None
        return DriftFinding(reason="ImageDrift")

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Read the notices about spot VMs."""
        return [
            Interruption(
                id=notice["id"],
                kind=InterruptionKind.SPOT_RECLAIM
                if notice["kind"] == "reclaim"
                else InterruptionKind.UNKNOWN,
                provider_id=PREFIX + notice["vm"],
                deadline=datetime.fromtimestamp(notice["deadline"], UTC),
                detail=notice["kind"],
            )
            for notice in self._client.notices(self._cluster)
        ]

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Delete the notices."""
        for notice_id in ids:
            self._client.delete_notice(notice_id)

    @hookimpl
    @one_by_one
    def karpenter_terminate_instances(self, provider_id: str) -> TerminationStatus:
        """Start the deletion of one VM."""
        is_there = self._client.delete_vm(_vm_id(provider_id))
        return TerminationStatus.STARTED if is_there else TerminationStatus.GONE

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Refresh prices and availability every five minutes."""
        return (
            PeriodicTask(
                name="catalogue",
                period=timedelta(minutes=5),
                run=self._refresh_catalogue,
                leader_only=False,
            ),
        )

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Check that the cloud answers and accepts the token."""
        return run_checks(
            DoctorCheck(
                run=lambda: ok_finding(f"tinycloud has {len(self._client.sizes())} sizes"),
                remedy="check that --tinycloud-endpoint can be reached from this host",
                denied="set TINYCLOUD_TOKEN to a token of the account",
            )
        )


def _user_data(claim: NodeClaim, offering: OfferingKey) -> str:
    """Return labels and taints of the Node; a real image reads them at its first boot."""
    labels = {
        **registration_labels(claim),
        INSTANCE_TYPE: offering.instance_type,
        ZONE: offering.zone,
        CAPACITY_TYPE: offering.capacity_type,
    }
    return json.dumps({"labels": labels, "taints": registration_taints(claim)})


def _instance(vm: Json) -> Instance:
    return Instance(
        provider_id=PREFIX + vm["id"],
        node_claim=vm["claim"],
        token=vm["token"],
        instance_type=vm["size"],
        zone=vm["zone"],
        capacity_type=SPOT if vm["spot"] else ON_DEMAND,
        image_id=vm["image"],
        created=datetime.fromtimestamp(vm["created"], UTC),
        terminating=vm["state"] == "stopping",
    )


def _vm_id(provider_id: str) -> str:
    return provider_id.removeprefix(PREFIX)
