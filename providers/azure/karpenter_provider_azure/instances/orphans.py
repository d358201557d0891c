"""Deletes network interfaces and disks that the cluster's VMs left behind.

A virtual machine takes its interface and its disk with it. What is left comes of launches that Azure broke
off, or of Karpenter's own provider, which makes interfaces first. Azure itself refuses to delete what is in
use, and keeps an interface for 180 seconds after a failed creation (`NicReservedForAnotherVm`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import PeriodicTask
from karpenter_core.provider.kit.orphans import OrphanTracker
from karpenter_provider_azure.arm.client import NETWORK_API_VERSION
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.instances.vm_reader import is_owned
from karpenter_provider_azure.json_values import properties_of, tags_of
from karpenter_provider_azure.labels import CLUSTER_TAG
from karpenter_provider_azure.resource_ids import (
    ResourceId,
    claim_name,
    resource_group_path,
    vm_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.instances.vm_reader import GroupListing, VmReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["OrphanCollector", "interface_query"]

PERIOD: Final = timedelta(minutes=5)
DISK_API_VERSION: Final = "2024-03-02"
_DISKS: Final = "Microsoft.Compute/disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of resources that virtual machines leave behind."""

    action: str
    """Of deletions."""
    api_version: str
    items: Callable[[], Iterable[JsonMapping]]
    """Lists all of the resource group."""
    is_attached: Callable[[JsonMapping], bool]
    tracker: OrphanTracker = field(default_factory=OrphanTracker)


class _Leftover(NamedTuple):
    """An interface or disk of the cluster; the name is in lower case."""

    resource_id: str
    name: str
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
        client: ArmClient,
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
        self._reader: Final = reader
        self._read_claims: Final = read_claims
        self._fence: Final = fence
        group = settings.node_resource_group
        self._kinds: Final = (
            _Kind(
                action="networkInterfaces:delete",
                api_version=NETWORK_API_VERSION,
                items=partial(query, interface_query(group)),
                is_attached=lambda item: bool(properties_of(item).get("virtualMachine")),
            ),
            _Kind(
                action="disks:delete",
                api_version=DISK_API_VERSION,
                items=partial(
                    client.list_all,
                    f"{resource_group_path(client.subscription_id, group)}/providers/{_DISKS}",
                    api_version=DISK_API_VERSION,
                    action="disks:list",
                ),
                is_attached=_is_disk_attached,
            ),
        )
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
        found: list[tuple[_Kind, Mapping[str, _Leftover]]] = []
        # Leftovers are listed before what uses them, so that new ones are not without a user.
        for kind in self._kinds:
            try:
                found.append((kind, self._leftovers(kind)))
            except CloudProviderError as error:
                errors.append(error)
        if found:
            listing = self._reader.of_group()
            users = self._users(listing)
            for kind, leftovers in found:
                used = {
                    key
                    for key, each in leftovers.items()
                    if each.is_attached or not users.isdisjoint({key, each.name})
                }
                ripe = kind.tracker.deletable(
                    leftovers.keys(), used, complete=not listing.problem, now=self._clock.now()
                )
                try:
                    self._delete_all(kind, {key: leftovers[key].resource_id for key in ripe})
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

    def _delete_all(self, kind: _Kind, ids: Mapping[str, str]) -> None:
        """Delete leftovers, by their ids in lower case, up to the first failure."""
        kind.tracker.delete_each(ids, lambda key: self._delete(kind, ids[key]))

    def _delete(self, kind: _Kind, resource_id: str) -> None:
        self._fence.check()
        try:
            self._client.send(
                "DELETE", resource_id, api_version=kind.api_version, action=kind.action
            )
        except ArmNotFoundError:
            return
        except ArmError as error:
            self._log.info("leftover is not deleted yet", resource=resource_id, error=str(error))
        else:
            self._log.info("leftover deleted", resource=resource_id)

    def _leftovers(self, kind: _Kind) -> dict[str, _Leftover]:
        """Return what is this cluster's and has the name of a claim, by id in lower case."""
        found: dict[str, _Leftover] = {}
        for item in kind.items():
            resource_id = str(item.get("id") or "")
            try:
                name = ResourceId.parse(resource_id).name.lower()
            except ValueError:
                continue
            if is_owned(tags_of(item.get("tags")), self._cluster) and claim_name(name):
                leftover = _Leftover(resource_id, name, kind.is_attached(item))
                found[resource_id.lower()] = leftover
        return found


def _is_disk_attached(item: JsonMapping) -> bool:
    state = str(properties_of(item).get("diskState") or "").lower()
    return bool(item.get("managedBy")) or state != "unattached"
