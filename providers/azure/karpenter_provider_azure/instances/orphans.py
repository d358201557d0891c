"""Deletes network interfaces and disks that a virtual machine of the cluster has left behind.

A virtual machine takes its interface and its disk with it. What is left comes of launches that Azure broke
off, or of Karpenter's own provider, which makes interfaces first. Azure itself refuses to delete what is in
use, and keeps an interface for 180 seconds after a failed creation (`NicReservedForAnotherVm`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import PeriodicTask
from karpenter_core.provider.kit.orphans import OrphanTracker
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.arm.reads import NETWORK_API_VERSION
from karpenter_provider_azure.instances.vm_reader import is_owned
from karpenter_provider_azure.json_values import object_of
from karpenter_provider_azure.labels import CLUSTER_TAG
from karpenter_provider_azure.resource_ids import (
    ResourceId,
    claim_name,
    resource_group_path,
    vm_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_azure.arm.reads import ArmCalls
    from karpenter_provider_azure.instances.vm_reader import GroupListing, VmReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["OrphanCollector", "interface_query"]

PERIOD: Final = timedelta(minutes=5)
DISK_API_VERSION: Final = "2024-03-02"
_DISKS: Final = "Microsoft.Compute/disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftover:
    """An interface or disk of the cluster."""

    resource_id: str
    name: str
    """In lower case."""
    is_attached: bool


def interface_query(resource_group: str) -> str:
    """Return the query for all interfaces that Karpenter has made in a resource group."""
    return (
        "Resources"
        ' | where type == "microsoft.network/networkinterfaces"'
        f' | where resourceGroup =~ "{resource_group.lower()}"'
        f' | where tags has_cs "{CLUSTER_TAG}"'
    )


@final
class OrphanCollector:
    """Deletes leftovers in a periodic task."""

    def __init__(
        self,
        client: ArmCalls,
        clock: Clock,
        *,
        settings: AzureSettings,
        reader: VmReader,
        query: Callable[[str], list[JsonObject]],
        read_claims: Callable[[], Mapping[str, NodeClaim]],
        fence: LeaderFence,
    ) -> None:
        """`query` returns the rows of a query of Resource Graph; `read_claims` is the context's."""
        self._client: Final = client
        self._clock: Final = clock
        self._cluster: Final = settings.cluster_name
        self._group: Final = settings.node_resource_group
        self._reader: Final = reader
        self._query: Final = query
        self._read_claims: Final = read_claims
        self._fence: Final = fence
        self._interfaces: Final = OrphanTracker()
        self._disks: Final = OrphanTracker()
        self._log: FilteringBoundLogger = structlog.get_logger("azure.orphans")

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the periodic work."""
        return (PeriodicTask(name="orphaned-resources", period=PERIOD, run=self.run),)

    def run(self) -> None:
        """Delete what was unused in each run for five minutes.

        What is refused for interfaces, such as a role without them, does not keep disks.

        Raises:
            CloudProviderError: what exists cannot be read, or Azure refuses or throttles deletions.
        """
        errors: list[CloudProviderError] = []
        found: list[tuple[OrphanTracker, Sequence[_Leftover], Callable[[str], None]]] = []
        # Leftovers are listed before what uses them, so that new ones are not without a user.
        for tracker, listed, delete in (
            (self._interfaces, self._list_interfaces, self._delete_interface),
            (self._disks, self._list_disks, self._delete_disk),
        ):
            try:
                found.append((tracker, listed(), delete))
            except CloudProviderError as error:
                errors.append(error)
        if found:
            listing = self._reader.of_group()
            users = self._users(listing)
            for tracker, leftovers, delete in found:
                try:
                    self._delete(tracker, leftovers, users, not listing.problem, delete)
                except CloudProviderError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _users(self, listing: GroupListing) -> set[str]:
        """Return names of virtual machines and claims, and ids of interfaces, in lower case."""
        users = {vm.id for vm in listing.vms}
        users |= {vm_name(name).lower() for name in self._read_claims()}
        # Azure may append something to the name of an interface.
        return users | {each.lower() for vm in listing.vms for each in vm.interfaces}

    def _delete(
        self,
        tracker: OrphanTracker,
        leftovers: Iterable[_Leftover],
        users: set[str],
        is_complete: bool,  # noqa: FBT001 - private, and named in both calls
        delete: Callable[[str], None],
    ) -> None:
        by_id = {each.resource_id.lower(): each for each in leftovers}
        used = {
            key
            for key, each in by_id.items()
            if each.is_attached or not users.isdisjoint({key, each.name})
        }
        ripe = tracker.deletable(by_id.keys(), used, complete=is_complete, now=self._clock.now())
        for key in ripe:
            resource_id = by_id[key].resource_id
            self._fence.check()
            try:
                delete(resource_id)
            except ArmNotFoundError:
                continue
            except ArmError as error:
                self._log.info(
                    "leftover is not deleted yet", resource=resource_id, error=str(error)
                )
            else:
                self._log.info("leftover deleted", resource=resource_id)

    def _list_interfaces(self) -> list[_Leftover]:
        rows = self._query(interface_query(self._group))
        return [each for row in rows if (each := self._leftover(row, "virtualMachine")) is not None]

    def _list_disks(self) -> list[_Leftover]:
        items = self._client.list_all(
            f"{resource_group_path(self._client.subscription_id, self._group)}/providers/{_DISKS}",
            api_version=DISK_API_VERSION,
            action="disks:list",
        )
        found: list[_Leftover] = []
        for item in items:
            state = str(object_of(item.get("properties")).get("diskState") or "").lower()
            leftover = self._leftover(item, "")
            if leftover is not None:
                is_attached = bool(item.get("managedBy")) or state != "unattached"
                found.append(
                    _Leftover(
                        resource_id=leftover.resource_id,
                        name=leftover.name,
                        is_attached=is_attached,
                    )
                )
        return found

    def _leftover(self, item: JsonMapping, owner: str) -> _Leftover | None:
        """Return what an item is; None if it is not this cluster's, or not of a claim.

        `owner` is the property that names what an item is attached to.
        """
        tags = {str(key): str(value) for key, value in object_of(item.get("tags")).items()}
        resource_id = str(item.get("id") or "")
        try:
            name = ResourceId.parse(resource_id).name.lower()
        except ValueError:
            return None
        if not is_owned(tags, self._cluster) or not claim_name(name):
            return None
        is_attached = bool(owner and object_of(item.get("properties")).get(owner))
        return _Leftover(resource_id=resource_id, name=name, is_attached=is_attached)

    def _delete_interface(self, resource_id: str) -> None:
        self._client.send(
            "DELETE",
            resource_id,
            api_version=NETWORK_API_VERSION,
            action="networkInterfaces:delete",
        )

    def _delete_disk(self, resource_id: str) -> None:
        self._client.send(
            "DELETE",
            resource_id,
            api_version=DISK_API_VERSION,
            action="disks:delete",
        )
