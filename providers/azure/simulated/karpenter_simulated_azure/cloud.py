"""`SimulatedAzure`: Azure on 127.0.0.1, for its SDKs.

    with SimulatedAzure() as cloud:
        os.environ.update(cloud.environment)
        cloud.capacity.sell_out(capacity_type="spot", zone="westus2-1")
        with cloud.fail("virtualMachines:put", code="InternalServerError", status=500):
            ...
        assert cloud.calls.count("virtualMachines:put") == 2

Azure Resource Manager, tokens and prices are served over TLS, with a certificate authority of their own.
Everything is in the process that made it, and is read and changed there; a provider may run in the same
process or in any other.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.server import HttpRequest, HttpServer
from karpenter_simulated_azure.behaviour import AzureBehaviour
from karpenter_simulated_azure.certificates import Certificates
from karpenter_simulated_azure.resource_manager import ResourceManager
from karpenter_simulated_azure.virtual_machines import (
    ScheduledEvent,
    VirtualMachine,
    machine_key,
)
from karpenter_simulated_azure.vm_answers import VM_TYPE
from karpenter_simulated_azure.vm_bodies import SSH_PUBLIC_KEY, vm_body
from karpenter_simulated_azure.vm_parts import VmParts
from karpenter_simulated_azure.world import AzureWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_azure.arm_api import ArmReply
    from karpenter_simulated_azure.virtual_machines import LaunchDelay

__all__ = ["SimulatedAzure"]

_BOOTSTRAP_TOKEN: Final = "abcdef.0123456789abcdef"  # noqa: S105 - of no cluster
_TOKEN_FILE: Final = "service-account-token"  # noqa: S105 - the name of a file
_VERSION: Final = "2025-04-01"


@final
class SimulatedAzure(SimulatedCloud[VirtualMachine]):
    """One simulated cloud: of one subscription in one region, with one AKS cluster."""

    def __init__(
        self,
        *,
        world: AzureWorld | None = None,
        skus: Iterable[JsonMapping] | None = None,
        clock: Callable[[], datetime] = utc_now,
        port: int = 0,
    ) -> None:
        """Sell sizes like real ones, or those of `skus` as `az vm list-skus -o json` writes them."""
        self.world: Final = world or AzureWorld()
        time = CloudTime(clock)
        self.behaviour: Final = AzureBehaviour()
        self.manager: Final = ResourceManager(self.world, time, skus=skus)
        parts = VmParts(self.manager, time, self.behaviour)
        super().__init__(time, self.manager.application.endpoint, parts.shared)
        self._parts: Final = parts
        self._certificates: Final = Certificates()
        self._server: Final = HttpServer(
            self.manager.application.endpoint,
            name="simulated-azure",
            port=port,
            tls=self._certificates.server_context(),
        )
        self.aks_machines: Final = parts.aks_machines
        self.capacity: Final = parts.capacity
        self.disks: Final = parts.disks
        self.galleries: Final = self.manager.galleries
        self.graph: Final = self.manager.graph
        self.instances: Final = parts.machines
        self.interfaces: Final = self.manager.interfaces
        self.kubelets: Final = parts.kubelets
        self.launches: Final = parts.launches.calls
        self.networks: Final = self.manager.networks
        self.operations: Final = self.manager.operations
        self.permissions: Final = self.manager.application.permissions
        self.prices: Final = self.manager.prices
        self.quotas: Final = parts.quotas
        self.sizes: Final = self.manager.sizes
        self.tokens: Final = self.manager.application.tokens
        self.usages: Final = self.manager.usages

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Build the world, and serve."""
        self.reset()
        self._server.start()
        url = self.endpoint_url
        self._certificates.write(_TOKEN_FILE, self.tokens.federated_token())
        self._certificates.write(
            "environment.json",
            json.dumps(
                {
                    "name": "SimulatedCloud",
                    "resourceManagerEndpoint": url,
                    "activeDirectoryEndpoint": url,
                    "tokenAudience": "https://management.azure.com",
                }
            ),
        )

    def stop(self) -> None:
        """End serving, and remove the files of certificates."""
        self.faults.clear()
        self._server.stop()
        self._certificates.remove()

    def reset(self) -> None:
        """Make the cloud as it was in the beginning: the world and nothing else."""
        self.reset_controls()
        with self._state:
            self._parts.clear()
            self.manager.reset()
        self.calls.clear()

    @property
    def endpoint_url(self) -> str:
        """The URL of Azure Resource Manager, of tokens and of prices, without a slash at its end."""
        return self._server.endpoint_url

    @property
    def ca_bundle(self) -> str:
        """The file of the certificate authority."""
        return str(self._certificates.ca_bundle)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that direct the provider here, and describe the cluster."""
        folder, world = self._certificates.ca_bundle.parent, self.world
        return {
            "AZURE_ENVIRONMENT_FILEPATH": str(folder / "environment.json"),
            "AZURE_CA_BUNDLE": self.ca_bundle,
            "AZURE_PRICING_URL": f"{self.endpoint_url}/api/retail/prices",
            "AZURE_AUTHORITY_HOST": self.endpoint_url,
            "AZURE_TENANT_ID": world.tenant_id,
            "AZURE_CLIENT_ID": world.client_id,
            "AZURE_FEDERATED_TOKEN_FILE": str(folder / _TOKEN_FILE),
            "AZURE_SUBSCRIPTION_ID": world.subscription_id,
            "AZURE_NODE_RESOURCE_GROUP": world.node_group,
            "ARM_RESOURCE_GROUP": world.cluster_group,
            "LOCATION": world.location,
            "CLUSTER_NAME": world.cluster_name,
            "CLUSTER_ENDPOINT": f"https://{world.cluster_name}.simulated:443",
            "KUBELET_BOOTSTRAP_TOKEN": _BOOTSTRAP_TOKEN,
            "KUBELET_IDENTITY_CLIENT_ID": world.kubelet_client_id,
            "NODE_IDENTITIES": ",".join(world.identity_ids),
            "SSH_PUBLIC_KEY": SSH_PUBLIC_KEY,
            "VNET_SUBNET_ID": world.subnet_id,
            "VNET_GUID": world.vnet_guid,
            "DNS_SERVICE_IP": "10.0.0.10",
        }

    # -- virtual machines ------------------------------------------------------------------------

    def provider_id(self, instance: VirtualMachine) -> str:
        """Return the provider ID of a virtual machine."""
        return self.kubelets.provider_id(instance)

    def instance_id(self, named: str) -> str:
        """Return the key of a virtual machine named by provider ID, resource id, key or name.

        A name alone is one of the node resource group.
        """
        path = named.removeprefix("azure://")
        if "/providers/" not in path:
            group, _, name = path.rpartition("/")
            return machine_key(group or self.world.node_group, name)
        segments = path.strip("/").split("/")
        return machine_key(segments[3], segments[-1])

    def announce_interruption(
        self, instance: VirtualMachine, at: datetime, ends_at: datetime, /
    ) -> None:
        """Announce a scheduled event `Preempt`; the Node of the virtual machine shows it."""
        instance.event = ScheduledEvent(kind="Preempt", announced_at=at, not_before=ends_at)

    def schedule_redeployment(self, named: str, *, after_seconds: float) -> None:
        """Announce now that a virtual machine will be moved to another host; it is not moved."""
        now = self.time()
        with self._state:
            self.instance(named).event = ScheduledEvent(
                kind="Redeploy",
                announced_at=now,
                not_before=now + timedelta(seconds=after_seconds),
            )

    def disk_id(self, machine: VirtualMachine) -> str:
        """Return the id of the OS disk of a virtual machine."""
        return self._parts.answers.disk_id(machine)

    @property
    def rewritten(self) -> Sequence[str]:
        """The ids of virtual machines that existed when a PUT came, in the order of the calls."""
        return tuple(self._parts.calls.rewritten)

    def slow_launches(self, seconds: float, pool: InstancePool) -> LaunchDelay:
        """Let launches from matching pools take longer; `operations.fail(stuck=True)` is for ever."""
        return self.instances.delay(pool, seconds)

    def tag(self, named: str, tags: Mapping[str, str | None]) -> None:
        """Set tags of a virtual machine by another hand; None removes one."""
        with self._state:
            own = self.instance(named).tags
            for key, value in tags.items():
                own.pop(key, None)
                if value is not None:
                    own[key] = value

    def put(self, path: str, body: JsonObject, *, api_version: str = _VERSION) -> ArmReply:
        """Write a resource past the endpoint: without token, fault, throttling and log.

        Raises:
            ArmFault: Azure refuses it.
        """
        request = HttpRequest(
            method="PUT",
            path=path,
            query=f"api-version={api_version}",
            headers={},
            body=json.dumps(body).encode(),
        )
        with self._state:
            call = self.manager.routes.read(request)
            return call.route.handler(call)

    def create_vm(self, name: str, **fields: object) -> str:
        """Create a virtual machine in the node resource group; return its provider ID.

        `fields` are those of `vm_body`.
        """
        image_id = self.galleries.community_id("2204gen2containerd")
        write: Callable[..., JsonObject] = vm_body
        body = write(self.world, name, **{"image_id": image_id, **fields})
        self.put(self.world.resource_id(VM_TYPE, name), body)
        return self.provider_id(self.instance(name))

    def create_aks_machine(self, claim: str, *, name: str = "", **fields: object) -> str:
        """Create the AKS machine of a claim as Karpenter's own provider does; return its provider ID.

        Its name is by default that of the claim; `fields` are those of `vm_body`.
        """
        tags = {
            "karpenter.azure.com_cluster": self.world.cluster_name,
            "karpenter.azure.com_aksmachine_nodeclaim": claim,
            "karpenter.sh_nodepool": "default",
            "compute.aks.billing": "linux",
        }
        machine = name or claim
        provider_id = self.create_vm(self.aks_machines.vm_name(machine), **{"tags": tags, **fields})
        self.aks_machines.add(machine)
        return provider_id

    def create_foreign_vm(self, name: str = "aks-other-abcde", cluster: str = "other") -> str:
        """Create a virtual machine of another cluster; return its provider ID."""
        tags = {
            "karpenter.azure.com_cluster": cluster,
            "karpenter.sh_nodepool": "default",
            "compute.aks.billing": "linux",
        }
        return self.create_vm(name, tags=tags)
