"""Network interfaces, created by calls or declared by virtual machines.

An interface exists from its creation until `gone_at`; its attachment and its reservation end in the same
way, by the time alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.ip_configurations import (
    id_of,
    missing,
    read_configurations,
    with_addresses,
)
from karpenter_simulated_azure.network_resources import NSG_TYPE
from karpenter_simulated_azure.resources import ResourceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.ip_configurations import IpConfiguration, Permit
    from karpenter_simulated_azure.networks import Networks
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["INTERFACE_TYPE", "NetworkInterface", "NetworkInterfaces", "check_tags"]

INTERFACE_TYPE: Final = "Microsoft.Network/networkInterfaces"
_CONFIGURATION_TYPE: Final = f"{INTERFACE_TYPE}/ipConfigurations"
_MOST_TAGS: Final = 50
_BAD_TAG_LETTERS: Final = frozenset("<>%&\\?/")
_KEPT: Final = timedelta(hours=1)
"""For how long a deleted interface is remembered, for the lag of Resource Graph."""


def _permit_all(_action: str, _scope: str) -> None:
    """Permit everything."""


@dataclass(slots=True, kw_only=True, eq=False)
class NetworkInterface:
    """A network interface."""

    id: str
    guid: str
    location: str
    mac_address: str
    created_at: datetime
    ready_at: datetime
    """Time at which its creation succeeds."""
    configurations: tuple[IpConfiguration, ...] = ()
    accelerated: bool = False
    ip_forwarding: bool = False
    security_group_id: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])
    version: int = 1
    """Counts its changes; the ETag follows from it."""
    virtual_machine_id: str = ""
    """The virtual machine that it is attached to."""
    attached_until: datetime | None = None
    """Time at which the attachment ends; None if nothing has ended it."""
    reserved_for: str = ""
    """The virtual machine that failed and keeps it reserved."""
    reserved_until: datetime | None = None
    gone_at: datetime | None = None
    """Time at which its deletion is done."""

    @property
    def name(self) -> str:
        """The name."""
        return self.id.rpartition("/")[2]

    @property
    def etag(self) -> str:
        """The ETag."""
        return f'W/"{self.guid[:-4]}{self.version:04x}"'

    def exists(self, now: datetime) -> bool:
        """Return whether it exists at a time."""
        return self.created_at <= now and (self.gone_at is None or now < self.gone_at)

    def attached_to(self, now: datetime) -> str:
        """Return the id of the virtual machine that has it; empty for none."""
        ended = self.attached_until is not None and now >= self.attached_until
        return "" if ended else self.virtual_machine_id

    def reserved_by(self, now: datetime) -> str:
        """Return the id of the virtual machine that keeps it reserved; empty for none."""
        ended = self.reserved_until is None or now >= self.reserved_until
        return "" if ended else self.reserved_for

    def to_json(self, now: datetime) -> JsonObject:
        """Return it as the API does."""
        state = "Succeeded" if now >= self.ready_at else "Updating"
        if self.gone_at is not None:
            state = "Deleting"
        properties: JsonObject = {
            "provisioningState": state,
            "resourceGuid": self.guid,
            "ipConfigurations": [self._configuration(each, state) for each in self.configurations],
            "dnsSettings": {"dnsServers": [], "appliedDnsServers": []},
            "macAddress": self.mac_address,
            "enableAcceleratedNetworking": self.accelerated,
            "enableIPForwarding": self.ip_forwarding,
            "hostedWorkloads": [],
            "tapConfigurations": [],
            "nicType": "Standard",
        }
        if self.security_group_id:
            properties["networkSecurityGroup"] = {"id": self.security_group_id}
        if attached := self.attached_to(now):
            properties["primary"] = True
            properties["virtualMachine"] = {"id": attached}
        return {
            "name": self.name,
            "id": self.id,
            "etag": self.etag,
            "type": INTERFACE_TYPE,
            "location": self.location,
            "tags": dict(self.tags),
            "properties": properties,
        }

    def _configuration(self, each: IpConfiguration, state: str) -> JsonObject:
        properties: JsonObject = {
            "provisioningState": state,
            "privateIPAddress": each.address,
            "privateIPAllocationMethod": "Dynamic",
            "privateIPAddressVersion": "IPv4",
            "subnet": {"id": each.subnet_id},
            "primary": each.primary,
        }
        if each.pool_ids:
            properties["loadBalancerBackendAddressPools"] = [{"id": pool} for pool in each.pool_ids]
        return {
            "name": each.name,
            "id": f"{self.id}/ipConfigurations/{each.name}",
            "etag": self.etag,
            "type": _CONFIGURATION_TYPE,
            "properties": properties,
        }


@final
class NetworkInterfaces:
    """The network interfaces of a subscription in a region."""

    def __init__(
        self,
        world: AzureWorld,
        networks: Networks,
        clock: Callable[[], datetime],
        ids: IdGenerator,
    ) -> None:
        self._world: Final = world
        self._networks: Final = networks
        self._clock: Final = clock
        self._ids: Final = ids
        self._table: Final[ResourceTable[NetworkInterface]] = ResourceTable()
        self.creation_seconds = 0.0
        """From the creation of an interface until it has succeeded."""
        self.deletion_seconds = 0.0
        """From the deletion of an interface until it is gone."""

    def clear(self) -> None:
        """Remove all interfaces and delays."""
        self._table.clear()
        self.creation_seconds = self.deletion_seconds = 0.0

    # -- state -----------------------------------------------------------------------------------

    def get(self, interface_id: str) -> NetworkInterface | None:
        """Return an interface; None if there is none with this id."""
        found = self._table.get(interface_id)
        return found if found is not None and found.exists(self._clock()) else None

    @property
    def all(self) -> Sequence[NetworkInterface]:
        """Return every interface that exists, in the order of their creation."""
        self._forget_gone()
        now = self._clock()
        return [each for each in self._table if each.exists(now)]

    @property
    def remembered(self) -> Sequence[NetworkInterface]:
        """Return every interface, those that were deleted within the last hour too."""
        self._forget_gone()
        return list(self._table)

    def create(
        self,
        interface_id: str,
        properties: JsonMapping,
        *,
        tags: Mapping[str, str],
        permit: Permit = _permit_all,
    ) -> NetworkInterface:
        """Create an interface, or replace the properties of one that exists.

        Raises:
            ArmFault: `InvalidRequestFormat`, `InvalidResourceReference` with the missing id, or
                `SubnetIsFull`; nothing is changed then.
        """
        check_tags(tags)
        self._forget_gone()
        now = self._clock()
        before = self.get(interface_id)
        nic_id = interface_id if before is None else before.id
        security_group_id = id_of(properties.get("networkSecurityGroup"))
        if security_group_id:
            if not self._networks.has_security_group(security_group_id):
                raise missing(nic_id, security_group_id)
            permit(f"{NSG_TYPE}/join/action", security_group_id)
        wanted = list(read_configurations(self._networks, nic_id, properties, permit))
        old = () if before is None else before.configurations
        configurations = with_addresses(self._networks, nic_id, old, wanted)
        if before is None:
            found = NetworkInterface(
                id=nic_id,
                guid=self._ids.uuid(),
                location=self._world.location,
                mac_address=self._ids.uuid().replace("-", "")[:12].upper(),
                created_at=now,
                ready_at=now + timedelta(seconds=self.creation_seconds),
            )
            self._table.put(nic_id, found)
        else:
            found = before
            found.version += 1
        found.configurations = configurations
        found.accelerated = properties.get("enableAcceleratedNetworking") is True
        found.ip_forwarding = properties.get("enableIPForwarding") is True
        found.security_group_id = security_group_id
        found.tags = dict(tags)
        return found

    def attach(self, interface_id: str, virtual_machine_id: str) -> None:
        """Attach an interface to a virtual machine.

        Raises:
            ArmFault: `InvalidResourceReference`, `NicInUse` or `NicReservedForAnotherVm`.
        """
        self.check_free(interface_id, virtual_machine_id)
        found = self._existing(interface_id)
        found.virtual_machine_id, found.attached_until = virtual_machine_id, None
        found.reserved_for, found.reserved_until = "", None

    def check_free(self, interface_id: str, virtual_machine_id: str) -> None:
        """Check that a virtual machine could have an interface; raises as `attach` does."""
        found = self.get(interface_id)
        if found is None:
            raise missing(virtual_machine_id, interface_id)
        now = self._clock()
        attached, reserved = found.attached_to(now), found.reserved_by(now)
        own = virtual_machine_id.lower()
        if attached and attached.lower() != own:
            raise ArmFault(
                "NicInUse",
                f"Network Interface {found.id} is used by existing resource {attached}.",
            )
        if reserved and reserved.lower() != own:
            raise reserved_fault(reserved)

    def detach(self, interface_id: str, *, at: datetime | None = None) -> None:
        """End the attachment of an interface, now or later."""
        self._existing(interface_id).attached_until = at or self._clock()

    def reserve(self, interface_id: str, virtual_machine_id: str, *, until: datetime) -> None:
        """Keep an interface reserved for a virtual machine that failed."""
        found = self._existing(interface_id)
        found.reserved_for, found.reserved_until = virtual_machine_id, until

    def remove(self, interface_id: str, *, at: datetime | None = None) -> None:
        """Delete an interface, now or later; return if it does not exist."""
        found = self.get(interface_id)
        if found is not None:
            found.gone_at = at or self._clock()

    def _existing(self, interface_id: str) -> NetworkInterface:
        found = self.get(interface_id)
        if found is None:
            raise LookupError(f"there is no network interface {interface_id}")
        return found

    def _forget_gone(self) -> None:
        """Take the addresses of deleted interfaces back; forget those that are long gone."""
        now = self._clock()
        for each in self._table:
            if each.gone_at is None or now < each.gone_at:
                continue
            for configuration in each.configurations:
                subnet = self._networks.subnet(configuration.subnet_id)
                if subnet is not None:
                    subnet.release([configuration.address])
            each.configurations = ()
            if now >= each.gone_at + _KEPT:
                self._table.remove(each.id)


def check_tags(tags: Mapping[str, str]) -> None:
    """Check tags as Azure Resource Manager does.

    Raises:
        ArmFault: there are more than 50, or a key or a value is too long or has a letter that is not
            permitted.
    """
    if len(tags) > _MOST_TAGS:
        raise ArmFault("InvalidTags", f"The resource has {len(tags)} tags, more than {_MOST_TAGS}.")
    for key, value in tags.items():
        if _BAD_TAG_LETTERS & set(key):
            raise ArmFault(
                "InvalidTagNameCharacters",
                f"The tag names '{key}' have reserved characters '<,>,%,&,\\,?,/' or control"
                " characters.",
            )
        if not 0 < len(key) <= 512 or len(str(value)) > 256:  # noqa: PLR2004 - limits of tags
            raise ArmFault(
                "InvalidTags", f"The tag '{key}' is longer than 512 letters, or its value than 256."
            )


def reserved_fault(machine: str) -> ArmFault:
    """Return the refusal to use or delete an interface that is reserved."""
    return ArmFault(
        "NicReservedForAnotherVm",
        "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide"
        f" another nic(s) or retry after 180 seconds. Reserved VM: {machine}",
    )


def in_use_fault(interface: NetworkInterface, machine: str) -> ArmFault:
    """Return the refusal to delete an interface that a virtual machine has."""
    return ArmFault(
        "NicInUse",
        f"Network Interface {interface.id} is used by existing resource {machine}. In order to delete"
        " the network interface, it must be dissociated from the resource. To learn more, see"
        " aka.ms/deletenic.",
    )
