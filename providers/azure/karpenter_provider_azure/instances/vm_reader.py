"""Reads the virtual machines of a cluster.

All of them are in the node resource group: one listing reads them together, however many there are. A
listing may lack a virtual machine that exists, so the absence of one is confirmed by a GET of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final
from urllib.parse import quote

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.described import DescribedInstances
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.described_vms import (
    VM_API_VERSION,
    DescribedNode,
    instance_id,
    read_vm,
)
from karpenter_provider_azure.instance_tags import CLAIM_NAME_TAG, CLAIM_UID_TAG
from karpenter_provider_azure.json_values import tags_of
from karpenter_provider_azure.labels import (
    AKS_MACHINE_NODE_CLAIM_TAG,
    CLUSTER_TAG,
    NODE_POOL_TAG,
)
from karpenter_provider_azure.resource_ids import (
    VIRTUAL_MACHINES,
    claim_name,
    parse_provider_id,
    resource_group_path,
    vm_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["GroupListing", "VmReader", "claim_of", "confirmed", "is_owned", "read_all"]

Node = TypeVar("Node", bound=DescribedNode)

SINGLE_READS: Final = 2
"""So many virtual machines are read one by one; more are read by a listing."""
_READS_AT_ONCE: Final = 8


def is_owned(tags: Mapping[str, str], cluster: str) -> bool:
    """Whether a resource with these tags was made for a claim of a cluster.

    Virtual machines of AKS machines have the cluster's tag too, and belong to AKS.
    """
    own = {key.lower(): value for key, value in tags.items()}
    return (
        own.get(CLUSTER_TAG) == cluster
        and AKS_MACHINE_NODE_CLAIM_TAG not in own
        and (NODE_POOL_TAG in own or CLAIM_UID_TAG in own)
    )


def claim_of(vm: DescribedVm) -> ClaimRef | None:
    """Return the claim of a virtual machine; None if its name is not that of a claim's.

    The UID is empty for one that Karpenter's own provider has made.
    """
    name = claim_name(vm.name.lower())
    own = {key.lower(): value for key, value in vm.tags.items()}
    if not name:
        return None
    return ClaimRef(name=own.get(CLAIM_NAME_TAG, name), uid=own.get(CLAIM_UID_TAG, ""))


def read_all(
    items: Iterable[JsonObject], read: Callable[[JsonObject], Node | None]
) -> tuple[list[Node], list[str]]:
    """Return the nodes that can be read, and why others cannot; `read` returns None for no node."""
    nodes: list[Node] = []
    problems: list[str] = []
    for item in items:
        try:
            node = read(item)
        except CloudProviderError as error:
            problems.append(str(error))
        else:
            nodes += [] if node is None else [node]
    return nodes, problems


def confirmed(
    ids: Collection[str], listed: Iterable[Node], find: Callable[[str], Node | None]
) -> dict[str, Node]:
    """Return the nodes with these ids, those that are not listed by a read of their own."""
    found = {each.id: each for each in listed if each.id in ids}
    absent = sorted(each for each in ids if each not in found)
    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="read-node") as pool:
        return found | {each.id: each for each in pool.map(find, absent) if each is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """All virtual machines of the node resource group."""

    vms: tuple[DescribedVm, ...]
    problem: str
    """Reason why `vms` lacks some of the cluster's; empty if it has all."""


@final
class VmReader:
    """Reads virtual machines; callable from any thread.

    The methods that call Azure raise the errors of `ArmClient`.
    """

    def __init__(self, client: ArmClient, settings: AzureSettings) -> None:
        self._client: Final = client
        self._cluster: Final = settings.cluster_name
        self._group: Final = settings.node_resource_group
        self._without_size: frozenset[str] = frozenset()
        """Ids of virtual machines of this cluster that were reported as such."""
        self._log: FilteringBoundLogger = structlog.get_logger("azure.instances")

    def instance_id(self, provider_id: str) -> str:
        """Return the instance id in a provider ID.

        Raises:
            CloudProviderError: it is not that of a virtual machine in the node resource group. One in
                another group could not be distinguished from one that is gone.
        """
        try:
            vm = parse_provider_id(provider_id)
        except ValueError as error:
            raise CloudProviderError(str(error)) from error
        own = (self._client.subscription_id.lower(), self._group.lower())
        if (vm.subscription.lower(), vm.resource_group.lower()) != own:
            raise CloudProviderError(
                f'virtual machine {vm.name} is in resource group "{vm.resource_group}" of '
                f'subscription {vm.subscription}, not in "{self._group}" of '
                f"{self._client.subscription_id}"
            )
        return instance_id(vm.name)

    def provider_id(self, instance: DescribedVm) -> str:
        """Return how Kubernetes names an instance."""
        return instance.provider_id

    def resource_path(self, name: str) -> str:
        """Return the path of the virtual machine with a name."""
        return vm_id(self._client.subscription_id, self._group, quote(name, safe=""))

    def is_ours(self, instance: DescribedVm) -> bool:
        """Whether an instance was launched for a claim of this cluster."""
        return is_owned(instance.tags, self._cluster) and claim_of(instance) is not None

    def find(self, name: str) -> DescribedVm | None:
        """Return a virtual machine; None only if Azure answers that it does not exist."""
        try:
            return read_vm(self._get(name))
        except ArmNotFoundError as error:
            if error.is_of_resource:
                return None
            raise

    def of_ids(self, ids: Iterable[str]) -> dict[str, DescribedVm]:
        """Return the virtual machines with these ids; those that do not exist are left out."""
        wanted = frozenset(ids)
        listed = read_all(self._list(), self._read)[0] if len(wanted) > SINGLE_READS else []
        return confirmed(wanted, listed, self.find)

    def of_cluster(self) -> DescribedInstances[DescribedVm]:
        """Return all virtual machines of the cluster, by name."""
        listing = self.of_group()
        instances = tuple(vm for vm in listing.vms if self.is_ours(vm))
        self._report_without_size(instances)
        return DescribedInstances(instances=instances, problem=listing.problem)

    def of_group(self) -> GroupListing:
        """Return all virtual machines of the node resource group, also those of others, by name."""
        vms, problems = read_all(self._list(), self._read)
        return GroupListing(
            vms=tuple(sorted(vms, key=lambda vm: vm.id)), problem="; ".join(problems)
        )

    def _read(self, item: JsonObject) -> DescribedVm | None:
        """Return a virtual machine; None if it cannot be read and is not of this cluster.

        The node resource group has virtual machines of others, too, such as instances of scale sets.
        """
        try:
            return read_vm(item)
        except CloudProviderError:
            if is_owned(tags_of(item.get("tags")), self._cluster):
                raise
            return None

    def _report_without_size(self, instances: Iterable[DescribedVm]) -> None:
        """Log virtual machines whose size Azure does not describe, once each."""
        without_size = {vm.id: vm.name for vm in instances if not vm.instance_type}
        for key in sorted(without_size.keys() - self._without_size):
            self._log.warning(
                "Azure describes no size of a virtual machine: it is kept until its claim ends",
                vm=without_size[key],
                field="properties.hardwareProfile.vmSize",
            )
        self._without_size = frozenset(without_size)

    def _list(self) -> list[JsonObject]:
        return self._client.list_all(
            f"{resource_group_path(self._client.subscription_id, self._group)}"
            f"/providers/{VIRTUAL_MACHINES}",
            api_version=VM_API_VERSION,
            action="virtualMachines:list",
        )

    def _get(self, name: str) -> JsonObject:
        return self._client.get(
            self.resource_path(name),
            api_version=VM_API_VERSION,
            action="virtualMachines:get",
        )
