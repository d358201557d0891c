"""Finds open nodes and new claims with devices for a pod; allocates them.

Pods with ResourceClaims are classes of their own and are placed one by one. That a node has no devices
for some claims is computed once, until something is allocated there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import HOSTNAME, WELL_KNOWN, ZONE
from karpenter_core.scheduling.compiled.bitsets import rows_of
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.devices.node_devices import NodeDevices
from karpenter_core.scheduling.devices.pools import DeviceNode
from karpenter_core.scheduling.devices.requests import DeviceRefusal
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.arrays import Columns
    from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.devices.node_devices import DeviceGroup, DeviceOffer
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes
    from karpenter_core.scheduling.problem import ExistingNode

__all__ = ["DevicePlaces"]


@final
class DevicePlaces:
    """The devices of the nodes and planned claims of one plan."""

    def __init__(
        self, compiled: CompiledProblem, nodes: OpenNodes, inventory: DeviceInventory
    ) -> None:
        self._compiled: Final = compiled
        self._signatures: Final = compiled.signatures
        self._nodes: Final = nodes
        self._inventory: Final = inventory
        self._devices: Final = NodeDevices(
            inventory,
            moving=(
                pod.uid
                for pod_class in compiled.classes
                for pod in pod_class.members
                if pod.node_name
            ),
            considered=frozenset(
                node.node_name for node in compiled.nodes if node.initialized and not node.closed
            ),
        )
        self._groups: Final = dict[int, dict["DeviceGroup", int]]()
        self._daemons: Final = dict[int, dict["DeviceGroup", frozenset[str]]]()
        self._device_nodes: Final = dict[int, DeviceNode]()
        self._unusable: Final = set[int]()
        """Nodes whose pods have unknown devices: no others get any there."""
        self._refused: Final = set[tuple[int, ...]]()
        """The questions that were answered with no."""
        self._keep_placed_pods()

    def _keep_placed_pods(self) -> None:
        """Allocate for pods that were placed by earlier passes and have no devices yet."""
        waiting = {pod.uid for one in self._compiled.classes for pod in one.members}
        for column, node in enumerate(self._compiled.nodes):
            if node.closed:
                continue
            if not node.initialized and node.node_name:
                groups = dict.fromkeys(self._groups_of_node(node))
                if not self._devices.use_published(column, node.node_name, groups):
                    self._unusable.add(column)
            for pod in node.pods:
                if not pod.shape.resource_claims or pod.uid in waiting or pod.is_daemon:
                    continue
                offer = self._existing_offer(column, pod)
                if isinstance(offer, DeviceRefusal):
                    if not pod.node_name:
                        self._unusable.add(column)
                elif offer.claims:
                    self._devices.take(column, pod, offer, fixed=node.initialized)
                else:
                    self._devices.join(pod, offer)

    # -- open nodes ----------------------------------------------------------------------------

    def able(self, task: PlacementTask, columns: Columns, met: Columns) -> Columns:
        """Return the nodes that have devices for a pod: the first, or all where zones limit it.

        `met` is the signature that each one becomes with the pod, by signature.
        """
        pod = task.pod_class.members[0]
        if not pod.shape.resource_claims:
            return columns
        chosen: list[int] = []
        for column in columns.tolist():
            if column < self._nodes.existing:
                is_able = self._has_devices(column, pod)
            else:
                number = met.item(self._nodes.signature.item(column))
                is_able = self._narrowing(task, column, number) is not None
            if is_able:
                chosen.append(column)
                if not task.topology.zonal:
                    break
        return np.array(chosen, dtype=np.intp)

    def _has_devices(self, column: int, pod: PodView) -> bool:
        """Tell whether a node has devices for a pod; full nodes answer many pods alike."""
        question = self._devices.question(column, pod)
        if question in self._refused:
            return False
        if not isinstance(self._existing_offer(column, pod), DeviceRefusal):
            return True
        if question is not None:
            self._refused.add(question)
        return False

    def _existing_offer(self, column: int, pod: PodView) -> DeviceOffer | DeviceRefusal:
        if column in self._unusable:
            return DeviceRefusal(message="the devices of other pods there are not known")
        node = self._compiled.nodes[column]
        groups = dict.fromkeys(self._groups_of_node(node))
        expected = self._inventory.expected_daemons.get(node.name)
        return self._devices.offer(
            column,
            pod,
            self._device_node(column, node),
            groups,
            daemons=None if expected is None else dict.fromkeys(groups, expected),
            every=True,
            local=node.initialized,
        )

    def _groups_of_node(self, node: ExistingNode) -> tuple[DeviceGroup, ...]:
        if node.initialized:
            return (None,)
        return self._inventory.node_types.get(node.name, (None,))

    def _device_node(self, column: int, node: ExistingNode) -> DeviceNode:
        found = self._device_nodes.get(column)
        if found is None:
            if node.requirements is not None:
                found = DeviceNode(
                    requirements=node.requirements, undecided=WELL_KNOWN, may_narrow=False
                )
            else:
                labels = {HOSTNAME: node.name, **node.labels}
                found = DeviceNode(
                    requirements=Requirements.from_labels(labels),
                    name=node.node_name,
                    may_narrow=False,
                )
            self._device_nodes[column] = found
        return found

    # -- planned claims ------------------------------------------------------------------------

    def _narrowing(
        self, task: PlacementTask, column: int | None, number: int
    ) -> tuple[int, DeviceOffer] | None:
        """Return what a claim becomes with a pod and its devices; None if it has none for it."""
        claim = self._signatures.claim(number)
        used = task.request.copy() if column is None else self._nodes.used[:, column] + task.request
        bits = claim.bits_of(claim.fitting(used))
        node = _claim_node(claim, bits)
        offer = self._claim_offer(column, task.pod_class.members[0], claim, node, bits)
        if isinstance(offer, DeviceRefusal):
            return None
        narrowed = self._narrowed(number, claim, offer)
        if narrowed == NO_MATCH:
            return None
        after = self._signatures.claim(narrowed)
        if column is not None and not after.fit_count(
            self._nodes.used[:, column], task.request, task.requested_lines
        ):
            return None
        return narrowed, offer

    def _claim_offer(
        self, column: int | None, pod: PodView, claim: ClaimSignature, node: DeviceNode, bits: int
    ) -> DeviceOffer | DeviceRefusal:
        groups = self._groups_of(claim.pool)
        return self._devices.offer(
            column,
            pod,
            node,
            [group for group, rows in groups.items() if rows & bits],
            daemons=self._daemons_of(claim.pool),
        )

    def _narrowed(self, number: int, claim: ClaimSignature, offer: DeviceOffer) -> int:
        groups = self._groups_of(claim.pool)
        bits = 0
        for group in offer.allocations:
            bits |= groups[group]
        if offer.is_restricted:
            number = self._signatures.restricted(number, offer.node.requirements)
            if number == NO_MATCH:
                return NO_MATCH
        return self._signatures.narrowed(number, bits)

    def _groups_of(self, pool: CompiledPool) -> dict[DeviceGroup, int]:
        """Return the rows of a pool's catalogue by their devices."""
        groups = self._groups.get(id(pool))
        if groups is None:
            groups = self._groups[id(pool)] = {}
            for row, instance_type in enumerate(pool.catalogue.instance_types):
                devices = instance_type.devices
                groups[devices] = groups.get(devices, 0) | 1 << row
        return groups

    def _daemons_of(self, pool: CompiledPool) -> dict[DeviceGroup, frozenset[str]]:
        """Return the DaemonSets with claims that run on some row of each group."""
        daemons = self._daemons.get(id(pool))
        if daemons is None:
            asking = [
                (daemon.name, bits)
                for daemon, bits in pool.daemons
                if daemon.name in self._inventory.daemon_claims
            ]
            daemons = self._daemons[id(pool)] = {
                group: frozenset(name for name, bits in asking if bits & rows)
                for group, rows in self._groups_of(pool).items()
                if asking
            }
        return daemons

    def opening(self, task: PlacementTask, number: int) -> int:
        """Return the signature of new claims that have devices for a pod; NO_MATCH for none."""
        if not task.pod_class.members[0].shape.resource_claims:
            return number
        narrowing = self._narrowing(task, None, number)
        return NO_MATCH if narrowing is None else narrowing[0]

    def refusal(self, task: PlacementTask, claim: ClaimSignature) -> str:
        """Return why no new claim has devices for a pod; empty if one has."""
        bits = claim.bits_of(claim.fitting(task.request))
        pod = task.pod_class.members[0]
        offer = self._claim_offer(None, pod, claim, _claim_node(claim, bits), bits)
        return offer.message if isinstance(offer, DeviceRefusal) else ""

    def take(self, task: PlacementTask, columns: list[int]) -> None:
        """Allocate the devices of a pod that was put on a node, and narrow a planned claim."""
        pod = task.pod_class.members[0]
        if not pod.shape.resource_claims:
            return
        for column in columns:
            if column < self._nodes.existing:
                offer = self._existing_offer(column, pod)
                if isinstance(offer, DeviceRefusal):
                    raise RuntimeError(f"no devices for {pod.key} where it was put")
                is_fixed = self._compiled.nodes[column].initialized
                self._devices.take(column, pod, offer, fixed=is_fixed)
            else:
                self._take_planned(task, column)

    def _take_planned(self, task: PlacementTask, column: int) -> None:
        number = self._nodes.signature.item(column)
        claim = self._signatures.claim(number)
        bits = claim.bits_of(claim.fitting(self._nodes.used[:, column]))
        node = _claim_node(claim, bits)
        offer = self._claim_offer(column, task.pod_class.members[0], claim, node, bits)
        narrowed = NO_MATCH
        if not isinstance(offer, DeviceRefusal):
            self._devices.take(column, task.pod_class.members[0], offer, fixed=False)
            narrowed = self._narrowed(number, claim, offer)
        if narrowed == NO_MATCH:
            raise RuntimeError(f"no devices for {task.pod_class.members[0].key} where it was put")
        if narrowed != number:
            limit = self._signatures.claim(narrowed).largest
            self._nodes.set_signature([column], narrowed, limit)

    def drivers(self, column: int, rows: Columns) -> tuple[str, ...]:
        """Return the drivers of the devices that pods get from the node itself, in order.

        `rows` are those that a planned claim may still become.
        """
        claim = self._signatures.claim(self._nodes.signature.item(column))
        types = claim.pool.catalogue.instance_types
        numbers: list[int] = rows.tolist()
        self._devices.keep_groups(column, frozenset(types[row].devices for row in numbers))
        return self._devices.drivers(column)


def _claim_node(claim: ClaimSignature, bits: int) -> DeviceNode:
    """Return the node that a claim may become, in the zones where some of its rows are sold."""
    catalogue = claim.pool.catalogue
    rows = rows_of(bits, catalogue.size)
    zones = {
        catalogue.groups[number].zone
        for number in np.flatnonzero(claim.allowed_groups).tolist()
        if np.isfinite(catalogue.prices[number][rows]).any()
    } - {""}
    requirements = claim.requirements
    if zones:
        requirements = requirements.add(
            Requirement(key=ZONE, complement=False, values=frozenset(zones))
        )
    return DeviceNode(requirements=requirements, undecided=claim.pool.well_known, may_narrow=True)
