"""Reads the AKS machines of an agent pool, and starts their deletion.

Whether a machine exists is judged by two answers: the list of its pool, and a GET of the machine. A GET
alone has the same answer if the cluster or the pool of a setting does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.described import DescribedInstances
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.instances.vm_reader import confirmed, read_all
from karpenter_provider_azure.machines.described_machines import (
    claim_of_machine,
    is_owned_machine,
    machine_name,
    read_machine,
)
from karpenter_provider_azure.resource_ids import agent_pool_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.instances.vm_reader import VmReader
    from karpenter_provider_azure.machines.described_machines import DescribedMachine
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["MACHINE_API_VERSION", "MACHINE_DELETION_API_VERSION", "MachineReader"]

MACHINE_API_VERSION: Final = "2026-08-02-preview"
"""Stable versions describe a machine by its zones and the id of its virtual machine alone."""
MACHINE_DELETION_API_VERSION: Final = "2026-08-01"
"""A stable version."""
_NONE_EXISTS: Final = "cannot find any valid machines"
"""The refusal of a deletion whose machines all are gone (`InvalidParameter`)."""


@final
class MachineReader:
    """Reads and deletes machines; callable from any thread.

    The methods that call Azure raise the errors of `ArmClient`.
    """

    def __init__(
        self,
        client: ArmClient,
        settings: AzureSettings,
        vms: VmReader,
        fence: LeaderFence,
    ) -> None:
        self._client: Final = client
        self._location: Final = settings.location
        self._cluster: Final = settings.cluster_name
        self._pool: Final = settings.aks_machines_pool_name
        self._pool_id: Final = agent_pool_id(
            client.subscription_id,
            settings.arm_resource_group,
            settings.cluster_name,
            settings.aks_machines_pool_name,
        )
        self._vms: Final = vms
        self._fence: Final = fence

    def instance_id(self, provider_id: str) -> str:
        """Return the instance id in a provider ID.

        Raises:
            CloudProviderError: it is not that of a machine of the pool.
        """
        name = self._vms.instance_id(provider_id)
        if not machine_name(name, self._pool):
            raise CloudProviderError(
                f'virtual machine {name} is no AKS machine of the pool "{self._pool}"'
            )
        return name

    def is_machine(self, provider_id: str) -> bool:
        """Whether a provider ID is that of a machine of the pool."""
        try:
            return bool(self.instance_id(provider_id))
        except CloudProviderError:
            return False

    def provider_id(self, instance: DescribedMachine) -> str:
        """Return how Kubernetes names a machine."""
        return instance.provider_id

    def is_ours(self, instance: DescribedMachine) -> bool:
        """Whether a machine was made for a claim of this cluster."""
        return claim_of_machine(instance) is not None

    def of_ids(self, ids: Iterable[str]) -> dict[str, DescribedMachine]:
        """Return the machines of these virtual machines; those that do not exist are left out.

        Raises:
            CloudProviderError: the machines cannot be listed, or one of them cannot be read.
        """
        # A machine that cannot be read is missing in the list: its own GET tells why.
        listed, _ = read_all(self._list(), self._read)
        return confirmed(frozenset(ids), listed, self._find)

    def of_cluster(self) -> DescribedInstances[DescribedMachine]:
        """Return all machines of the pool that were made for claims, by virtual machine."""
        machines, problems = read_all(self._list(), self._read)
        return DescribedInstances(
            instances=tuple(sorted(machines, key=lambda each: each.id)),
            problem="; ".join(problems),
        )

    def delete(self, ids: Sequence[str]) -> None:
        """Start the deletion of machines by one call; those that are gone do not count.

        Their virtual machines, interfaces and disks go with them.
        """
        names = [machine_name(each, self._pool) for each in ids]
        self._fence.check()
        try:
            self._client.send(
                "POST",
                f"{self._pool_id}/deleteMachines",
                api_version=MACHINE_DELETION_API_VERSION,
                action="agentPools/deleteMachines:post",
                body={"machineNames": names},
            )
        except ArmError as error:
            if _NONE_EXISTS not in error.text.lower():
                raise

    def _find(self, vm_name: str) -> DescribedMachine | None:
        """Return the machine of a virtual machine; None only if Azure answers that there is none."""
        name = machine_name(vm_name, self._pool)
        try:
            item = self._client.get(
                f"{self._pool_id}/machines/{quote(name, safe='')}",
                api_version=MACHINE_API_VERSION,
                action="agentPools/machines:get",
            )
        except ArmNotFoundError as error:
            if error.is_of_resource:
                return None
            raise
        path = self._vms.resource_path(vm_name)
        machine = read_machine(item, location=self._location, vm_id=path)
        return machine if machine is not None and machine.id == vm_name else None

    def _read(self, item: JsonObject) -> DescribedMachine | None:
        """Return a machine; None if it was not made for a claim, or is no instance."""
        if not is_owned_machine(item, self._cluster):
            return None
        return read_machine(item, location=self._location)

    def _list(self) -> list[JsonObject]:
        try:
            return self._client.list_all(
                f"{self._pool_id}/machines",
                api_version=MACHINE_API_VERSION,
                action="agentPools/machines:list",
            )
        except ArmNotFoundError as error:
            # It is a wrong setting, or a pool that was deleted: not an empty one.
            raise CloudProviderError(
                f'--aks-machines-pool-name "{self._pool}": {self._pool_id} is not there: {error}'
            ) from error
