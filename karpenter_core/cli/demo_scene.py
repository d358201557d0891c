"""What the demo puts into a cluster, and what it sees happen there."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from karpenter_core.api.labels import (
    API_VERSION,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    ZONE,
)
from karpenter_core.errors import PluginError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.clock import Clock
    from karpenter_core.state.events import Observed, Removed

__all__ = [
    "DEPLOYMENT",
    "NAME",
    "PROVIDER",
    "Census",
    "PriceList",
    "Scene",
    "find_node_class",
    "read_prices",
]

NAME: Final = "karpenter-demo"
"""Of the namespace, the NodePool, the NodeClass, the taint and the lease: all that is ours."""

PROVIDER: Final = "kwok"
"""The provider whose machines only pretend."""

DEPLOYMENT: Final = "nginx"

_READY: Final = "True"
PriceList = dict[tuple[str, str, str], float]
"""Price per hour by instance type, zone and capacity type."""


def find_node_class() -> type[NodeClass]:
    """Return the NodeClass of the simulated provider.

    Raises:
        SettingsError: that provider is not installed.
    """
    from karpenter_core.provider.manager import load_plugins

    try:
        return load_plugins(selected=[PROVIDER]).providers[PROVIDER].info.node_classes[0]
    except (PluginError, LookupError) as error:
        raise SettingsError(
            f"the demo needs the simulated provider (karpenter-core[kwok]): {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The objects of the demo.

    The pool is tainted and the pods select it, so that on a cluster with other work neither takes
    part in the other.
    """

    node_class: type[NodeClass]

    def namespace(self) -> dict[str, Any]:
        """Return the namespace."""
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}

    def machine(self) -> dict[str, Any]:
        """Return the NodeClass."""
        resource = self.node_class.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": NAME},
            "spec": {},
        }

    def node_pool(self) -> dict[str, Any]:
        """Return the NodePool: machines that hold several pods, gone as soon as they are empty."""
        resource = self.node_class.resource
        reference = {"group": resource.group, "kind": resource.kind, "name": NAME}
        return {
            "apiVersion": API_VERSION,
            "kind": "NodePool",
            "metadata": {"name": NAME},
            "spec": {
                "template": {
                    "spec": {
                        "nodeClassRef": reference,
                        "requirements": [
                            {"key": CAPACITY_TYPE, "operator": "In", "values": [ON_DEMAND]},
                            {
                                "key": f"{resource.group}/instance-cpu",
                                "operator": "Gt",
                                "values": ["7"],
                            },
                        ],
                        "taints": [{"key": NAME, "effect": "NoSchedule"}],
                        "expireAfter": "Never",
                    }
                },
                "disruption": {
                    "consolidationPolicy": "WhenEmpty",
                    "consolidateAfter": "0s",
                    "budgets": [{"nodes": "100%"}],
                },
            },
        }

    def deployment(self) -> dict[str, Any]:
        """Return the Deployment, without replicas at first."""
        labels = {"app": DEPLOYMENT}
        container = {
            "name": DEPLOYMENT,
            "image": "nginx",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": NAME},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {NODE_POOL: NAME},
                        "tolerations": [{"key": NAME, "operator": "Exists"}],
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container],
                    },
                },
            },
        }


async def read_prices(scene: Scene) -> tuple[PriceList, str]:
    """Ask the provider what its machines cost; returns the prices and their currency."""
    from karpenter_core.cli.source import Source

    with tempfile.TemporaryDirectory(prefix="karpenter-demo-") as folder:
        file = Path(folder) / "pool.json"
        manifests = [scene.machine(), scene.node_pool()]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
        question = await Source(files=(file,), offline=True).read()
        catalogue = question.cluster.snapshot.catalogues[NAME]
    offered = [(it.name, offer) for it in catalogue.instance_types for offer in it.offerings]
    prices = {
        (name, offer.zone, offer.capacity_type): offer.price.amount for name, offer in offered
    }
    currencies = {offer.price.currency for _, offer in offered}
    return prices, "/".join(sorted(currencies))


class Census:
    """The demo's pods, nodes and claims as they are, and what they have cost so far."""

    def __init__(self, clock: Clock, prices: PriceList) -> None:
        self._clock: Final = clock
        self._prices: Final = prices
        self._pods: Final = dict[str, bool]()
        self._nodes: Final = dict[str, bool]()
        self._claims: Final = set[str]()
        self._node_prices: Final = dict[str, float]()
        self._spent = 0.0
        self._counted_until = clock.monotonic()
        self.node_types: Final = dict[str, int]()
        """How many nodes of each instance type there ever were."""

    @property
    def pods(self) -> int:
        """Pods that exist, ending ones included."""
        return len(self._pods)

    @property
    def running(self) -> int:
        """Pods that run and are ready."""
        return sum(self._pods.values())

    @property
    def nodes(self) -> int:
        """Nodes that exist."""
        return len(self._nodes)

    @property
    def ready_nodes(self) -> int:
        """Nodes that are ready."""
        return sum(self._nodes.values())

    @property
    def claims(self) -> int:
        """NodeClaims that exist."""
        return len(self._claims)

    @property
    def price_per_hour(self) -> float:
        """What the nodes of now cost together."""
        return sum(self._node_prices.values())

    @property
    def spent(self) -> float:
        """What all nodes have cost up to now, by the second."""
        self._count_money()
        return self._spent

    def on_event(self, event: Observed | Removed) -> None:
        """Take note of a change."""
        from karpenter_core.api.nodeclaim import NodeClaim
        from karpenter_core.api.records import NodeView, PodView
        from karpenter_core.state.events import Removed

        gone = isinstance(event, Removed)
        match event.object:
            case PodView() as pod if pod.namespace == NAME:
                runs = pod.phase == "Running" and pod.ready is True and pod.is_active
                _note(self._pods, pod.uid, runs, gone=gone)
            case NodeView() as node if node.labels.get(NODE_POOL) == NAME:
                self._note_price(node.uid, node.labels, gone=gone)
                _note(self._nodes, node.uid, node.ready == _READY, gone=gone)
            case NodeClaim() as claim if claim.metadata.labels.get(NODE_POOL) == NAME:
                if gone:
                    self._claims.discard(claim.uid)
                else:
                    self._claims.add(claim.uid)
            case _:
                pass

    def _note_price(self, uid: str, labels: Mapping[str, str], *, gone: bool) -> None:
        self._count_money()
        if gone:
            self._node_prices.pop(uid, None)
            return
        name = labels.get(INSTANCE_TYPE, "")
        if uid not in self._node_prices:
            self.node_types[name] = self.node_types.get(name, 0) + 1
        key = (name, labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ""))
        self._node_prices[uid] = self._prices.get(key, 0.0)

    def _count_money(self) -> None:
        now = self._clock.monotonic()
        self._spent += self.price_per_hour * (now - self._counted_until) / 3600
        self._counted_until = now


def _note(kept: dict[str, bool], uid: str, value: bool, *, gone: bool) -> None:
    if gone:
        kept.pop(uid, None)
    else:
        kept[uid] = value
