"""Checks the provider's access to Azure for `karpenter doctor`.

Each permission to read is tried out by a request; any answer but "not permitted" shows that the call is
permitted. Nothing is changed: Azure is asked which changes it would permit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.doctor import (
    AccessDoctor,
    DoctorCheck,
    error_finding,
    ok_finding,
    warning_finding,
)
from karpenter_provider_azure.arm.client import NETWORK_API_VERSION
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.catalogue.quotas import exhausted_quotas, parse_usages
from karpenter_provider_azure.catalogue.region_sizes import list_skus, list_usages
from karpenter_provider_azure.images.discovery import (
    COMMUNITY_API_VERSION,
    NODE_IMAGE_API_VERSION,
)
from karpenter_provider_azure.images.families import UBUNTU_GALLERY
from karpenter_provider_azure.machines.machine_reader import MACHINE_API_VERSION
from karpenter_provider_azure.network.subnets import ClusterNetwork, subnet_problem
from karpenter_provider_azure.node_class.conditions import error_code, is_refusal
from karpenter_provider_azure.node_class.validation import DISK_API_VERSION
from karpenter_provider_azure.resource_ids import agent_pool_id, resource_group_path
from karpenter_provider_azure.role_actions import missing_actions, needed_actions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.contract import Finding
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.catalogue.quotas import Quota
    from karpenter_provider_azure.network.cluster_network import SecurityGroupReader
    from karpenter_provider_azure.role_actions import ScopedActions
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ProviderDoctor", "quota_findings"]

_COMPUTE: Final = "2024-07-01"
_PERMISSIONS: Final = "2022-04-01"
_NOT_PERMITTED: Final = frozenset({"AuthorizationFailed", "LinkedAuthorizationFailed"})
"""Codes of an identity that Azure knows."""
_DISK_ENCRYPTION: Final = "node-osdisk-diskencryptionset-id"
_PROBED_IMAGE: Final = "2204gen2containerd"

_POLICY: Final = (
    "add it to the roles of the controller's identity; docs/azure.md has a complete role"
)
_REACH: Final = "check that this host reaches Azure Resource Manager (proxy, DNS, --arm-cloud, --azure-ca-bundle)"
_CREDENTIALS: Final = (
    "give the controller credentials: workload identity (annotation azure.workload.identity/client-id "
    "of its service account and a federated credential), or AZURE_TENANT_ID, AZURE_CLIENT_ID and "
    "AZURE_CLIENT_SECRET"
)


@final
class ProviderDoctor:
    """Checks credentials, permissions, the network of the cluster, and quotas."""

    def __init__(
        self,
        arm: ArmClient,
        *,
        settings: AzureSettings,
        security_groups: SecurityGroupReader,
        observing: bool = False,
    ) -> None:
        """With `observing` no permission to change anything is needed."""
        self._arm: Final = arm
        self._observing: Final = observing
        self._settings: Final = settings
        self._security_groups: Final = security_groups
        self._group: Final = resource_group_path(
            settings.azure_subscription_id, settings.node_resource_group
        )
        self._network: Final = ClusterNetwork.of(settings)

    def check(self) -> tuple[Finding, ...]:
        """Return what is found, in the order in which it should be corrected; raises nothing."""
        doctor = AccessDoctor(policy=_POLICY, reach=_REACH, is_granted=is_refusal)
        first = DoctorCheck(run=self._check_identity, remedy=_REACH, denied=_CREDENTIALS)
        return doctor.examine(first, permissions=self._tries, checks=self._checks)

    def _checks(self) -> tuple[DoctorCheck, ...]:
        return (
            *(
                DoctorCheck(run=partial(self._check_actions, it), remedy=_REACH)
                for it in (() if self._observing else needed_actions(self._settings))
            ),
            DoctorCheck(run=self._check_subnet, remedy="correct --vnet-subnet-id"),
            DoctorCheck(
                run=self._check_security_group,
                remedy="remove all but one of these network security groups",
            ),
            DoctorCheck(run=self._check_disk_encryption_set, remedy=_REACH),
            DoctorCheck(run=self._check_machines, remedy=_REACH),
            DoctorCheck(run=self._check_quotas, remedy=_REACH),
        )

    def _check_identity(self) -> Finding:
        """Make a first call, to see whether Azure answers, and knows identity and group."""
        settings = self._settings
        self._arm.check_token()
        try:
            self._listed(f"{self._group}/providers/Microsoft.Compute/virtualMachines", _COMPUTE)
        except ArmNotFoundError as error:
            is_group = "Group" in error_code(error)
            setting = "node-resource-group" if is_group else "azure-subscription-id"
            value = settings.node_resource_group if is_group else settings.azure_subscription_id
            return _wrong_setting(setting, value, error)
        except AuthError as error:
            if error_code(error) not in _NOT_PERMITTED:
                raise
        return ok_finding(
            f"credentials work for subscription {settings.azure_subscription_id}, resource group "
            f"{settings.node_resource_group}"
        )

    def _check_actions(self, needed: ScopedActions) -> tuple[Finding, ...]:
        """Compare what Azure permits at a scope with what is needed."""
        try:
            permissions = self._listed(
                f"{needed.scope}/providers/Microsoft.Authorization/permissions", _PERMISSIONS
            )
        except CloudProviderError as error:
            if not is_refusal(error):
                raise
            names = ", ".join(needed.actions)
            return (
                warning_finding(
                    f"Azure does not say whether these are permitted over {needed.scope}: {names} "
                    f"({error})",
                    f'see that the controller\'s identity has the role "{needed.role}" there',
                ),
            )
        return tuple(
            error_finding(
                f"{action} is not permitted over {needed.scope}",
                f'grant the role "{needed.role}" to the controller\'s identity there',
            )
            for action in missing_actions(needed.actions, permissions)
        )

    def _check_subnet(self) -> Finding:
        subnet_id = self._settings.vnet_subnet_id
        problem = subnet_problem(subnet_id, self._network)
        if problem:
            return error_finding(f"--vnet-subnet-id: {problem}", "correct --vnet-subnet-id")
        try:
            self._subnet()
        except AuthError:
            return ok_finding(f"--vnet-subnet-id: {subnet_id} is the id of a subnet")
        except ArmNotFoundError as error:
            return _wrong_setting("vnet-subnet-id", subnet_id, error)
        return ok_finding(f"the subnet of nodes exists: {subnet_id}")

    def _check_security_group(self) -> tuple[Finding, ...]:
        try:
            is_needed = self._network.needs_security_group(self._settings.vnet_subnet_id)
            group = self._security_groups.current()
        except (AuthError, ValueError):
            return ()  # the permission is tried out, and the subnet is checked
        if group is not None:
            return (ok_finding(f"network security group of nodes: {group.name}"),)
        if not is_needed:
            return ()
        return (
            warning_finding(
                f'resource group "{self._settings.node_resource_group}" has no network security '
                "group aks-agentpool-...-nsg: nodes get none on their interfaces",
                "see that the subnet has a network security group",
            ),
        )

    def _check_disk_encryption_set(self) -> tuple[Finding, ...]:
        setting, set_id = _DISK_ENCRYPTION, self._settings.node_osdisk_diskencryptionset_id
        if not set_id:
            return ()
        try:
            self._arm.get(set_id, api_version=DISK_API_VERSION, action="diskEncryptionSets:get")
        except AuthError as error:
            remedy = 'grant the role "Reader" on it to the controller\'s identity'
            return (_wrong_setting(setting, set_id, error, remedy),)
        except ArmNotFoundError as error:
            return (_wrong_setting(setting, set_id, error),)
        return (ok_finding("the disk encryption set can be read"),)

    def _check_machines(self) -> tuple[Finding, ...]:
        if not self._settings.manage_existing_aks_machines:
            return ()
        try:
            machines = self._machines()
        except AuthError:
            return ()  # the permission is tried out
        except ArmNotFoundError as error:
            pool = self._settings.aks_machines_pool_name
            remedy = (
                "correct it, --arm-resource-group and --cluster-name; without AKS machines "
                "switch --manage-existing-aks-machines off"
            )
            return (_wrong_setting("aks-machines-pool-name", pool, error, remedy),)
        return (ok_finding(f"the agent pool of AKS machines exists; machines: {len(machines)}"),)

    def _check_quotas(self) -> tuple[Finding, ...]:
        try:
            usages = list_usages(self._arm)
        except AuthError:
            return ()  # the permission is tried out
        except ArmError as error:
            if not is_refusal(error):
                raise
            # The subscription is known, so that the region is the only variable part of the path.
            return (_wrong_setting("location", self._arm.location, error),)
        return quota_findings(parse_usages(usages), location=self._arm.location)

    # -- permissions to read -----------------------------------------------------------------------

    def _tries(self) -> Mapping[str, Callable[[], object]]:
        """Return by action of a role the call that tries it out."""
        settings = self._settings
        listed = {
            "Microsoft.Compute/virtualMachines": _COMPUTE,
            "Microsoft.Compute/disks": DISK_API_VERSION,
            "Microsoft.Network/networkInterfaces": NETWORK_API_VERSION,
            "Microsoft.Network/loadBalancers": NETWORK_API_VERSION,
            "Microsoft.Network/networkSecurityGroups": NETWORK_API_VERSION,
        }
        tries: dict[str, Callable[[], object]] = {
            f"{kind}/read": partial(self._listed, f"{self._group}/providers/{kind}", version)
            for kind, version in listed.items()
        }
        tries["Microsoft.Compute/locations/usages/read"] = partial(list_usages, self._arm)
        tries["Microsoft.Compute/skus/read"] = partial(list_skus, self._arm)
        tries["Microsoft.Network/virtualNetworks/subnets/read"] = self._subnet
        if settings.manage_existing_aks_machines:
            action = "Microsoft.ContainerService/managedClusters/agentPools/machines/read"
            tries[action] = self._machines
        if settings.use_sig:
            path = self._regional("Microsoft.ContainerService", "nodeImageVersions")
            action = "Microsoft.ContainerService/locations/nodeImageVersions/read"
            tries[action] = partial(self._listed, path, NODE_IMAGE_API_VERSION)
        else:
            path = self._regional("Microsoft.Compute", "communityGalleries")
            images = f"{path}/{UBUNTU_GALLERY.community_name}/images/{_PROBED_IMAGE}/versions"
            action = "Microsoft.Compute/locations/communityGalleries/images/versions/read"
            tries[action] = partial(self._listed, images, COMMUNITY_API_VERSION)
        return tries

    def _listed(self, path: str, api_version: str) -> list[JsonObject]:
        kind = path.rpartition("/")[2]
        return self._arm.list_all(path, api_version=api_version, action=f"{kind}:list")

    def _machines(self) -> list[JsonObject]:
        settings = self._settings
        pool = agent_pool_id(
            self._arm.subscription_id,
            settings.arm_resource_group,
            settings.cluster_name,
            settings.aks_machines_pool_name,
        )
        return self._listed(f"{pool}/machines", MACHINE_API_VERSION)

    def _subnet(self) -> object:
        return self._arm.get(
            self._settings.vnet_subnet_id,
            api_version=NETWORK_API_VERSION,
            action="virtualNetworks/subnets:get",
        )

    def _regional(self, namespace: str, kind: str) -> str:
        return (
            f"/subscriptions/{self._arm.subscription_id}/providers/{namespace}/locations"
            f"/{self._arm.location}/{kind}"
        )


def _wrong_setting(
    setting: str, value: str, error: CloudProviderError, remedy: str = ""
) -> Finding:
    return error_finding(f'--{setting} "{value}": {error}', remedy or f"correct --{setting}")


def quota_findings(quotas: Mapping[str, Quota], *, location: str) -> tuple[Finding, ...]:
    """Return findings about quotas of vCPUs in a region that are used up; `quotas` are by name."""
    remedy = f"ask for a higher quota in {location} (Azure portal, Quotas)"
    return tuple(
        (error_finding if it.is_total else warning_finding)(
            f"no quota is left in {location} for {it.text}", remedy
        )
        for it in exhausted_quotas(quotas)
    ) or (ok_finding(f"quotas of vCPUs in {location} have room"),)
