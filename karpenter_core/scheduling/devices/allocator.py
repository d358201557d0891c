"""Searches devices for one pod's claims on one node by backtracking.

The order is that of the Kubernetes scheduler: claims, requests and alternatives as written, pools
by driver and name, published ones before those of templates, devices as listed. The effort is
bounded by steps, so that equal input gives an equal answer; a search that exceeds them is refused.
A device that is interchangeable with one that failed at the same place is not tried.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.devices import MAX_DEVICES_PER_CLAIM
from karpenter_core.scheduling.devices.capacity import consumed_capacity
from karpenter_core.scheduling.devices.constraints import MatchedAttribute
from karpenter_core.scheduling.devices.requests import DeviceRefusal
from karpenter_core.scheduling.devices.selectors import DeviceSelectorError, matches_device
from karpenter_core.scheduling.devices.usage import UsageLayer, UsageView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from karpenter_core.api.devices import AttributeBinding, Device
    from karpenter_core.scheduling.devices.pools import DeviceNode, DevicePool, PlacedDevice
    from karpenter_core.scheduling.devices.requests import ClaimRequests, WantedDevices

__all__ = ["MAX_STEPS", "DeviceAllocation", "DeviceSources", "PickedDevice", "allocate_devices"]

MAX_STEPS: Final = 20_000
"""The most devices that one search tries: some tenths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSources:
    """The pools that a node sees, in the order in which they are tried, and what is in use."""

    pools: tuple[DevicePool, ...]
    layers: tuple[UsageLayer, ...] = ()
    """In use of published devices."""
    own_layers: tuple[UsageLayer, ...]
    """In use of the devices of templates."""
    bindings: tuple[AttributeBinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PickedDevice:
    """A device for a request of a claim."""

    claim: str
    request: str
    """`parent/sub` for an alternative of `firstAvailable`."""
    placed: PlacedDevice
    consumed: tuple[tuple[str, Decimal], ...]
    admin_access: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceAllocation:
    """The devices of all claims of a pod, and the node that they can be used on."""

    picked: tuple[PickedDevice, ...]
    node: DeviceNode


def allocate_devices(
    claims: Sequence[ClaimRequests],
    node: DeviceNode,
    sources: DeviceSources,
    *,
    max_steps: int = MAX_STEPS,
) -> DeviceAllocation | DeviceRefusal:
    """Return devices for claims on a node, or why there are none."""
    search = _DeviceSearch(claims, node, sources, max_steps)
    try:
        if search.run():
            return DeviceAllocation(picked=tuple(search.picked), node=search.node)
        return DeviceRefusal(message=search.failure())
    except (DeviceSelectorError, _SearchRefusedError) as error:
        return DeviceRefusal(message=str(error))


class _SearchRefusedError(Exception):
    """The search cannot go on."""


@final
class _DeviceSearch:
    """One search; `picked` and `node` are its result."""

    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        node: DeviceNode,
        sources: DeviceSources,
        max_steps: int,
    ) -> None:
        self.node = node
        self.picked: Final = list[PickedDevice]()
        self._requests: Final = [request for claim in claims for request in claim.requests]
        self._matches: Final = {
            claim.claim: [MatchedAttribute(one, sources.bindings) for one in claim.constraints]
            for claim in claims
        }
        self._counts: Final = dict.fromkeys(self._matches, 0)
        self._devices: Final = [
            placed for pool in sources.pools if not pool.problem for placed in pool.devices
        ]
        self._has_shareable: Final = any(one.device.is_shareable for one in self._devices)
        self._problems: Final = [pool for pool in sources.pools if pool.problem]
        self._taken: Final = UsageLayer()
        self._taken_here: Final = UsageLayer()
        self._published: Final = UsageView((*sources.layers, self._taken))
        self._templates: Final = UsageView((*sources.own_layers, self._taken_here))
        self._steps = 0
        self._max_steps: Final = max_steps
        self._deepest = -1

    def run(self) -> bool:
        """Search; tell whether every request is met."""
        return self._meet_request(0)

    def failure(self) -> str:
        """Return the reason of a search without result: the first request that was never met."""
        alternatives = self._requests[max(self._deepest, 0)]
        wanted = alternatives[-1]
        offered = sum(self._matches_class(wanted, placed) for placed in self._devices)
        selected = sum(self._matches_wanted(wanted, placed) for placed in self._devices)
        for pool in self._problems:
            if not offered:
                return (
                    f"no device is left for {wanted}: pool {pool.driver}/{pool.name} {pool.problem}"
                )
        if not offered:
            return f"no instance type offers a device of class {wanted.request.device_class}"
        if not selected:
            selectors = " and ".join(wanted.request.selectors) or "what its class requires"
            return (
                f"no instance type offers a device of class {wanted.request.device_class} with "
                f"{selectors}"
            )
        return f"{selected} device(s) match, but not enough of them are free for {wanted}"

    # -- requests ------------------------------------------------------------------------------

    def _meet_request(self, number: int) -> bool:
        if number == len(self._requests):
            return True
        self._deepest = max(self._deepest, number)
        for wanted in self._requests[number]:
            if wanted.request.count is None:
                if self._take_all(number, wanted):
                    return True
            elif self._take_some(number, wanted, wanted.request.count, 0):
                return True
        return False

    def _take_some(self, number: int, wanted: WantedDevices, left: int, start: int) -> bool:
        """Take devices from a position on, and meet the requests that follow."""
        if not left:
            return self._meet_request(number + 1)
        if self._counts[wanted.claim] + left > MAX_DEVICES_PER_CLAIM:
            return False
        failed = set[object]()
        for position in range(start, len(self._devices)):
            placed = self._devices[position]
            self._count_step()
            if len(self._devices) - position < left and not self._has_shareable:
                return False
            kind = self._kind(placed)
            if kind is not None and kind in failed:
                continue
            if not self._matches_wanted(wanted, placed):
                continue
            before = self.node
            if self._take(wanted, placed):
                following = position if placed.device.is_shareable else position + 1
                if self._take_some(number, wanted, left - 1, following):
                    return True
                self._give_back(wanted, before)
            if kind is not None:
                failed.add(kind)
        return False

    def _take_all(self, number: int, wanted: WantedDevices) -> bool:
        """Take every device that matches; all of them have to be free."""
        for pool in self._problems:
            raise _SearchRefusedError(
                f"pool {pool.driver}/{pool.name} {pool.problem}, so {wanted} are not known"
            )
        chosen = [placed for placed in self._devices if self._matches_wanted(wanted, placed)]
        if not chosen or self._counts[wanted.claim] + len(chosen) > MAX_DEVICES_PER_CLAIM:
            return False
        before: list[DeviceNode] = []
        for placed in chosen:
            self._count_step()
            before.append(self.node)
            if not self._take(wanted, placed):
                before.pop()
                break
        else:
            if self._meet_request(number + 1):
                return True
        while before:
            self._give_back(wanted, before.pop())
        return False

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > self._max_steps:
            raise _SearchRefusedError(
                f"the search for devices was given up after {self._max_steps} steps"
            )

    # -- devices -------------------------------------------------------------------------------

    def _matches_class(self, wanted: WantedDevices, placed: PlacedDevice) -> bool:
        with suppress(DeviceSelectorError):
            return all(
                matches_device(one, placed.device, placed.pool.driver)
                for one in wanted.class_selectors
            )
        return False

    def _matches_wanted(self, wanted: WantedDevices, placed: PlacedDevice) -> bool:
        if placed.device.unsupported:
            return False
        return all(
            matches_device(one, placed.device, placed.pool.driver)
            for one in (*wanted.class_selectors, *wanted.request.selectors)
        )

    def _view(self, placed: PlacedDevice) -> UsageView:
        return self._templates if placed.pool.is_template else self._published

    def _kind(self, placed: PlacedDevice) -> object:
        """Return a key that is equal for interchangeable devices; None if nothing is like it."""
        device = placed.device
        if device.is_shareable or self._view(placed).is_used(placed.id):
            return None
        return (
            placed.pool.driver,
            placed.pool.name,
            placed.pool.is_template,
            device.attributes,
            tuple([type(value) for _, value in device.attributes]),
            device.capacity,
            device.counter_uses,
            device.taints,
            placed.node_terms,
            placed.bindings,
        )

    def _take(self, wanted: WantedDevices, placed: PlacedDevice) -> bool:
        """Take a device for a request, if that is possible now."""
        request, device, pool = wanted.request, placed.device, placed.pool
        for taint in device.taints:
            if taint.effect in {"NoSchedule", "NoExecute"} and not any(
                one.tolerates(taint) for one in request.tolerations
            ):
                return False
        consumed = consumed_capacity(device, request.capacity, pool.driver)
        if consumed is None:
            return False
        if not request.admin_access and not self._is_free(placed, consumed):
            return False
        node = self.node.narrowed(placed.node_terms)
        if node is None or not self._add_to_constraints(wanted, placed):
            return False
        if not device.is_shareable:
            consumed = ()
        if not request.admin_access:
            layer = self._taken_here if pool.is_template else self._taken
            first = not self._view(placed).is_used(placed.id)
            layer.take(placed.id, device, consumed, counts=first)
        self.node = node
        self._counts[wanted.claim] += 1
        self.picked.append(
            PickedDevice(
                claim=wanted.claim,
                request=wanted.result_name,
                placed=placed,
                consumed=consumed,
                admin_access=request.admin_access,
            )
        )
        return True

    def _give_back(self, wanted: WantedDevices, before: DeviceNode) -> None:
        """Give back the device that was taken last."""
        last = self.picked.pop()
        if not last.admin_access:
            layer = self._taken_here if last.placed.pool.is_template else self._taken
            layer.give_back(last.placed.id, last.consumed)
            if not self._view(last.placed).is_used(last.placed.id):
                layer.free_counters(last.placed.id, last.placed.device)
        self._counts[wanted.claim] -= 1
        for match in self._matches[wanted.claim]:
            match.remove(wanted)
        self.node = before

    def _add_to_constraints(self, wanted: WantedDevices, placed: PlacedDevice) -> bool:
        added: list[MatchedAttribute] = []
        for match in self._matches[wanted.claim]:
            if not match.add(wanted, placed):
                for one in added:
                    one.remove(wanted)
                return False
            added.append(match)
        return True

    def _is_free(self, placed: PlacedDevice, consumed: tuple[tuple[str, Decimal], ...]) -> bool:
        view, device = self._view(placed), placed.device
        is_used = view.is_used(placed.id)
        if is_used and not device.is_shareable:
            return False
        if device.is_shareable:
            totals = {capacity.name: capacity.value for capacity in device.capacity}
            if any(
                view.consumed(placed.id, name) + amount > totals[name] for name, amount in consumed
            ):
                return False
        return is_used or self._has_counters(view, placed, device)

    @staticmethod
    def _has_counters(view: UsageView, placed: PlacedDevice, device: Device) -> bool:
        pool = placed.pool
        return all(
            view.counted(pool.driver, pool.name, use.counter_set, name) + amount
            <= pool.budgets[use.counter_set, name]
            for use in device.counter_uses
            for name, amount in use.counters
        )
