"""Serves the reads about what surrounds the nodes: cluster, region, disk encryption sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmReply
from karpenter_simulated_azure.resources import ResourceTable, not_found, page

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["ClusterResources"]

_CLUSTER_TYPE: Final = "Microsoft.ContainerService/managedClusters"
_ENCRYPTION_TYPE: Final = "Microsoft.Compute/diskEncryptionSets"
_PAGE: Final = 100


@final
class ClusterResources:
    """The managed cluster, the region and the disk encryption sets."""

    def __init__(self, world: AzureWorld) -> None:
        self._world: Final = world
        self._encryption_sets: Final[ResourceTable[JsonObject]] = ResourceTable()
        self.kubernetes_version = world.kubernetes_version

    def reset(self) -> None:
        """Restore the version of the cluster; remove the disk encryption sets."""
        self.kubernetes_version = self._world.kubernetes_version
        self._encryption_sets.clear()

    def add_disk_encryption_set(self, name: str, *, group: str = "") -> str:
        """Make a disk encryption set, by default in the node resource group; return its id."""
        set_id = self._world.resource_id(_ENCRYPTION_TYPE, name, group=group)
        properties = {"encryptionType": "EncryptionAtRestWithCustomerKey"}
        body = {
            "id": set_id,
            "name": name,
            "type": _ENCRYPTION_TYPE,
            "location": self._world.location,
            "properties": {**properties, "provisioningState": "Succeeded"},
        }
        self._encryption_sets.put(set_id, body)
        return set_id

    def has_disk_encryption_set(self, set_id: str) -> bool:
        """Return whether a disk encryption set exists."""
        return set_id in self._encryption_sets

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        routes.add("GET", _ENCRYPTION_TYPE, self._get_encryption_set)
        routes.add("GET", _CLUSTER_TYPE, self._get_cluster, operation_class="reads")
        routes.add("LIST", _CLUSTER_TYPE, self._list_clusters, operation_class="reads")
        routes.add(
            "LIST",
            "Microsoft.Resources/locations",
            self._list_locations,
            api_versions=ApiVersions(earliest="2022-12-01"),
        )
        routes.add("GET", "Microsoft.Resources/resourceGroups", self._get_group)

    def _get_encryption_set(self, call: ArmCall) -> ArmReply:
        found = self._encryption_sets.get(call.path)
        if found is None:
            raise not_found(call)
        return ArmReply(body=found)

    def _cluster(self) -> JsonObject:
        world = self._world
        return {
            "id": world.cluster_id,
            "name": world.cluster_name,
            "type": _CLUSTER_TYPE,
            "location": world.location,
            "properties": {
                "provisioningState": "Succeeded",
                "powerState": {"code": "Running"},
                "kubernetesVersion": self.kubernetes_version,
                "currentKubernetesVersion": self.kubernetes_version,
                "nodeResourceGroup": world.node_group,
                "identityProfile": {
                    "kubeletidentity": {
                        "resourceId": world.identity_ids[0],
                        "clientId": world.kubelet_client_id,
                    }
                },
                "networkProfile": {
                    "networkPlugin": "azure",
                    "networkPluginMode": "overlay",
                    "networkDataplane": "cilium",
                    "dnsServiceIP": "10.0.0.10",
                    "loadBalancerSku": "standard",
                },
            },
        }

    def _get_cluster(self, call: ArmCall) -> ArmReply:
        if call.path.lower() != self._world.cluster_id.lower():
            raise not_found(call)
        return ArmReply(body=self._cluster())

    def _list_clusters(self, call: ArmCall) -> ArmReply:
        scope = call.path.lower().partition("/providers/")[0]
        here = self._world.cluster_id.lower().startswith(f"{scope}/")
        return page(call, [self._cluster()] if here else [], size=_PAGE)

    def _list_locations(self, call: ArmCall) -> ArmReply:
        world = self._world
        count = len(world.zones)
        mappings = [
            # The physical zone of a logical one differs between subscriptions.
            {"logicalZone": zone, "physicalZone": f"{world.location}-az{number % count + 1}"}
            for number, zone in enumerate(world.zones, start=1)
        ]
        row = {
            "id": f"{world.subscription_path}/locations/{world.location}",
            "name": world.location,
            "type": "Region",
            "displayName": world.location,
            "regionalDisplayName": world.location,
            "metadata": {"regionType": "Physical", "regionCategory": "Recommended"},
            "availabilityZoneMappings": mappings,
        }
        return page(call, [row], size=_PAGE)

    def _get_group(self, call: ArmCall) -> ArmReply:
        return ArmReply(
            body={
                "id": call.path,
                "name": call.resource_group,
                "type": "Microsoft.Resources/resourceGroups",
                "location": self._world.location,
                "properties": {"provisioningState": "Succeeded"},
            }
        )
