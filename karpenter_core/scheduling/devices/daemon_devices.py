"""Reserves devices for the pods of DaemonSets on nodes still to come.

Their ResourceClaims are generated once such a pod exists, and the pod may get its devices before any
other. On nodes that are initialised the claims themselves say what is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.devices.allocator import DeviceSources, allocate_devices
from karpenter_core.scheduling.devices.pools import DeviceNode
from karpenter_core.scheduling.devices.requests import DeviceRefusal, read_claim
from karpenter_core.scheduling.devices.usage import UsageLayer, UsageView
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from karpenter_core.api.devices import InstanceDevices
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.devices.pools import DevicePool
    from karpenter_core.scheduling.devices.requests import ClaimRequests

__all__ = ["DaemonDevices"]

_NOWHERE: Final = DeviceNode(requirements=Requirements(), may_narrow=False)
"""Devices of templates are those of the node itself, whichever it is."""


@final
class DaemonDevices:
    """The devices that DaemonSets take of the templates of instance types."""

    def __init__(self, inventory: DeviceInventory) -> None:
        self._inventory: Final = inventory
        self._layers: Final = dict[
            "tuple[InstanceDevices | None, frozenset[str]]", "UsageLayer | DeviceRefusal"
        ]()

    def layer(
        self,
        devices: InstanceDevices | None,
        daemons: frozenset[str],
        pools: tuple[DevicePool, ...],
    ) -> UsageLayer | DeviceRefusal:
        """Return what DaemonSets (by name) take of the template pools of some devices.

        A DaemonSet that finds no devices there takes none: its pod will not run. A refusal says that
        what one asks for is not supported, so that nothing there is certain.
        """
        key = (devices, daemons)
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = self._taken(devices, daemons, pools)
        return found

    def takes(self, devices: InstanceDevices | None, daemons: frozenset[str]) -> bool:
        """Tell whether `layer` has found devices for these DaemonSets."""
        return (
            bool(daemons)
            and isinstance(found := self._layers.get((devices, daemons)), UsageLayer)
            and bool(found)
        )

    def _taken(
        self,
        devices: InstanceDevices | None,
        daemons: frozenset[str],
        pools: tuple[DevicePool, ...],
    ) -> UsageLayer | DeviceRefusal:
        layer = UsageLayer()
        if not pools:
            return layer
        for name in sorted(daemons):
            claims: list[ClaimRequests] = []
            for claim in self._inventory.daemon_claims.get(name, ()):
                requests = read_claim(claim, self._inventory.classes)
                if isinstance(requests, DeviceRefusal):
                    return DeviceRefusal(message=f'daemonset "{name}": {requests.message}')
                claims.append(requests)
            sources = DeviceSources(
                pools=pools,
                own_layers=(layer,),
                bindings=() if devices is None else devices.bindings,
            )
            allocation = allocate_devices(claims, _NOWHERE, sources)
            if isinstance(allocation, DeviceRefusal):
                continue
            view = UsageView((layer,))
            for one in allocation.picked:
                if not one.admin_access:
                    counts = not view.is_used(one.placed.id)
                    layer.take(one.placed.id, one.placed.device, one.consumed, counts=counts)
        return layer
