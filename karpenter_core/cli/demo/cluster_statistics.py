"""Collects the numbers that the demo shows."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INSTANCE_TERMINATING
from karpenter_core.cli.demo.demo_manifests import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.cli.demo.demo_manifests import DemoManifests
    from karpenter_core.clock import Clock
    from karpenter_core.state.events import ObjectObserved, ObjectRemoved

__all__ = ["ClusterStatistics", "PriceList", "price_by", "read_prices"]

_READY: Final = "True"
PriceList = dict[tuple[str, str, str], float]
"""Price per hour by instance type, zone and capacity type."""


async def read_prices(demo_manifests: DemoManifests) -> tuple[PriceList, str]:
    """Return the provider's prices and their currency."""
    from karpenter_core.cli.cluster_source import ClusterSource

    with tempfile.TemporaryDirectory(prefix="karpenter-demo-") as folder:
        file = Path(folder) / "pool.json"
        manifests = [demo_manifests.node_class_manifest(), demo_manifests.node_pool()]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
        question = await ClusterSource(files=(file,), offline=True).read()
        catalogue = question.cluster.snapshot.catalogues[NAME]
    offered = [(it.name, offer) for it in catalogue.instance_types for offer in it.offerings]
    prices = {
        (name, offer.zone, offer.capacity_type): offer.price.amount for name, offer in offered
    }
    currencies = {offer.price.currency for _, offer in offered}
    return prices, "/".join(sorted(currencies))


def price_by(prices: PriceList) -> Callable[[NodeView], float]:
    """Return a function that returns a node's price per hour by its labels; 0 if not listed."""

    def price_of(node: NodeView) -> float:
        labels = node.labels
        key = (labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ""))
        return prices.get(key, 0.0)

    return price_of


class _PodPlacement(NamedTuple):
    runs: bool
    node: str


class ClusterStatistics:
    """The demo's pods, nodes and claims, and the cost up to now."""

    def __init__(self, clock: Clock, price_of: Callable[[NodeView], float]) -> None:
        self._clock: Final = clock
        self._price_of: Final = price_of
        self._pods: Final = dict[str, _PodPlacement]()
        self._nodes: Final[dict[str, NodeView]] = {}
        self._claims: Final = dict[str, bool]()
        """Whether a node is being removed, by UID."""
        self._node_prices: Final = dict[str, float]()
        self._spent = 0.0
        self._counted_until = clock.monotonic()
        self.node_types: Final = dict[str, int]()
        """Number of nodes of each instance type since the start."""
        self.most_leaving = 0
        """Maximum number of nodes that were being removed at the same time; can be reset.

        As in budgets, a node whose instance is already terminating does not count.
        """

    @property
    def pods(self) -> int:
        """Return the number of pods, including terminating ones."""
        return len(self._pods)

    @property
    def running(self) -> int:
        """Return the number of ready pods."""
        return sum(pod.runs for pod in self._pods.values())

    @property
    def nodes(self) -> int:
        """Return the number of Nodes."""
        return len(self._nodes)

    @property
    def ready_nodes(self) -> int:
        """Return the number of ready Nodes."""
        return sum(node.ready == _READY for node in self._nodes.values())

    @property
    def claims(self) -> int:
        """Return the number of NodeClaims."""
        return len(self._claims)

    @property
    def provider_ids(self) -> frozenset[str]:
        """Return the provider IDs of the nodes."""
        return frozenset(node.provider_id for node in self._nodes.values())

    @property
    def running_by_zone(self) -> Mapping[str, int]:
        """Return the number of running pods by zone, for zones with nodes, in order."""
        zones = {node.name: node.labels.get(ZONE, "") for node in self._nodes.values()}
        count = Counter(dict.fromkeys(zones.values(), 0))
        count.update(
            zones[pod.node] for pod in self._pods.values() if pod.runs and pod.node in zones
        )
        return dict(sorted(count.items()))

    def is_settled_at(self, replicas: int) -> bool:
        """Return whether this many pods run, without others, and without nodes if it is zero."""
        if replicas:
            return self.running == self.pods == replicas
        return not (self.pods or self.nodes or self.claims)

    @property
    def price_per_hour(self) -> float:
        """Return the price per hour of all current nodes."""
        return sum(self._node_prices.values())

    @property
    def spent(self) -> float:
        """Return the cost of all nodes up to now, by the second."""
        self._count_money()
        return self._spent

    def on_event(self, event: ObjectObserved | ObjectRemoved) -> None:
        """Record a watch event."""
        from karpenter_core.api.nodeclaim import NodeClaim
        from karpenter_core.api.records import NodeView, PodView
        from karpenter_core.state.events import ObjectRemoved

        gone = isinstance(event, ObjectRemoved)
        match event.object:
            case PodView() as pod if pod.namespace == NAME:
                self._note_pod(pod, gone=gone)
            case NodeView() as node if node.labels.get(NODE_POOL) == NAME:
                self._note_node(node, gone=gone)
            case NodeClaim() as claim if claim.metadata.labels.get(NODE_POOL) == NAME:
                self._note_claim(claim, gone=gone)
            case _:
                pass

    def _note_pod(self, pod: PodView, *, gone: bool) -> None:
        if gone:
            self._pods.pop(pod.uid, None)
            return
        runs = pod.phase == "Running" and pod.ready is True and pod.is_active
        self._pods[pod.uid] = _PodPlacement(runs, pod.node_name)

    def _note_node(self, node: NodeView, *, gone: bool) -> None:
        self._count_money()
        if gone:
            self._node_prices.pop(node.uid, None)
            self._nodes.pop(node.uid, None)
            return
        if node.uid not in self._node_prices:
            name = node.labels.get(INSTANCE_TYPE, "")
            self.node_types[name] = self.node_types.get(name, 0) + 1
            self._node_prices[node.uid] = self._price_of(node)
        self._nodes[node.uid] = node

    def _note_claim(self, claim: NodeClaim, *, gone: bool) -> None:
        if gone:
            self._claims.pop(claim.uid, None)
            return
        self._claims[claim.uid] = _is_leaving(claim)
        self.most_leaving = max(self.most_leaving, sum(self._claims.values()))

    def _count_money(self) -> None:
        now = self._clock.monotonic()
        self._spent += self.price_per_hour * (now - self._counted_until) / 3600
        self._counted_until = now


def _is_leaving(claim: NodeClaim) -> bool:
    conditions = claim.status.conditions
    is_disrupted = claim.is_deleting or is_true(conditions, DISRUPTION_REASON)
    return is_disrupted and not is_true(conditions, INSTANCE_TERMINATING)
