"""Short lives of clusters with what drawn ones rarely reach: refused writes, lost objects, deadlines."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.cluster_runs import NEWER
from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["TOLD"]

CPU: Final = "karpenter.kwok.sh/instance-cpu"
EAGER: Final = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "10s",
    "budgets": [{"nodes": "100%"}],
}


class Story:
    """A cluster, its cloud's faults and its users."""

    def __init__(self, scene: Any, folder: Path) -> None:
        self.scene, self.cluster = scene, scene.cluster
        self._folder = folder

    def begin(self, *arguments: str, pods: int = 3, disruption: Any = EAGER, **pool: Any) -> None:
        """Create a pool of small instances and pods of a core, and start."""
        requirements = [
            {
                "key": "karpenter.sh/capacity-type",
                "operator": "In",
                "values": ["on-demand", "spot"],
            },
            {"key": CPU, "operator": "In", "values": ["2", "4"]},
        ]
        template = {"requirements": requirements, **pool.pop("template", {})}
        self.cluster.apply(
            [
                NODE_CLASS,
                node_pool(template=template, disruption=disruption, **pool),
                deployment("web", pods),
            ]
        )
        self.scene.start("--disable-leader-election", *arguments)

    def scale(self, replicas: int) -> None:
        """Set the number of pods."""
        self.cluster.scale(DEPLOYMENTS, "web", replicas)

    def break_cloud(self, *faults: Any) -> None:
        """Let this go wrong in the cloud, and nothing else."""
        (self._folder / "faults.json").write_text(json.dumps(faults))

    def refuse(self, method: str, path: str, status: int, times: int = 1) -> None:
        """Refuse the next requests of a kind."""
        fault = RequestFault(
            matches=matching(method, path, watch=False), times=times, status=status
        )
        self.cluster.frontend.faults.add(fault)

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        await self.cluster.clock.sleep(seconds)

    def claims(self) -> list[str]:
        """Return the names of the claims."""
        return sorted(each["metadata"]["name"] for each in self.scene.claims())

    def lose_instance(self, claim: str) -> None:
        """Have the cloud lose the instance of a claim without a message."""
        with closing(sqlite3.connect(self._folder / "kwok.sqlite3")) as instances, instances:
            instances.execute(
                "UPDATE instances SET gone_at = ? WHERE provider_id = ?",
                (self.cluster.clock.now().timestamp(), f"kwok://{claim}"),
            )


async def observe(story: Story) -> None:
    """Plan, and write nothing."""
    story.begin("--observe", limits={"cpu": "8"})
    await story.advance(90)
    story.scale(9)
    await story.advance(60)


async def garbage(story: Story) -> None:
    """Instances, claims and Nodes vanish behind each other's backs."""
    story.begin(pods=10, disruption={**EAGER, "consolidateAfter": "Never"})
    await story.advance(30)
    lost, nodeless, orphan, *_ = story.claims()
    story.lose_instance(lost)
    story.cluster.delete(NODES, nodeless)
    story.cluster.patch(NODES, nodeless, {"metadata": {"finalizers": None}})
    story.cluster.patch(NODE_CLAIMS, orphan, {"metadata": {"finalizers": None}})
    story.cluster.delete(NODE_CLAIMS, orphan)
    story.refuse("DELETE", "nodeclaims", 500)
    story.refuse("DELETE", "nodes", 500)
    await story.advance(400)


async def refused_writes(story: Story) -> None:
    """The API server refuses each kind of write some times."""
    story.refuse("POST", "nodeclaims", 500, times=2)
    story.refuse("POST", "nodeclaims", 403)
    story.refuse("PATCH", "nodeclaims", 409, times=2)
    story.refuse("PATCH", "nodepools", 500, times=2)
    story.refuse("PATCH", "nodes", 422)
    story.refuse("POST", "events", 500, times=2)
    story.begin(pods=5)
    await story.advance(60)
    for status in (409, 500):
        story.refuse("PATCH", "nodes", status, times=2)
    story.refuse("POST", "eviction", 500, times=2)
    story.refuse("POST", "eviction", 429)
    story.refuse("DELETE", "nodeclaims", 500, times=2)
    story.refuse("PATCH", "nodeclaims", 500, times=2)
    story.cluster.patch(NODE_POOLS, "general", NEWER)
    await story.advance(90)
    story.refuse("POST", "nodeclaims", 500, times=9)
    story.cluster.patch(
        NODE_POOLS,
        "general",
        {"spec": {"template": {"metadata": {"labels": {"example.com/edition": "3"}}}}},
    )
    await story.advance(120)
    story.scale(0)
    await story.advance(60)


async def failed_launches(story: Story) -> None:
    """Launches fail in each way, one after another."""
    story.break_cloud({"fault": "auth-failure", "operation": "launch", "count": 1})
    story.begin("--registration-timeout=2m", "--initialization-timeout=2m", pods=2)
    await story.advance(40)
    for number, fault in enumerate(
        (
            {"fault": "throttle", "operation": "launch", "count": 2, "retryAfter": "5s"},
            {"fault": "stock-out", "count": 1},
            {"fault": "quota", "instanceTypes": ["std1.*"], "count": 1},
            {"fault": "late-failure", "count": 1, "delay": "20s"},
            {"fault": "slow-call", "operation": "launch", "count": 1, "delay": "45s"},
            {"fault": "lost-reply", "operation": "launch", "count": 2},
        )
    ):
        story.break_cloud(fault)
        story.scale(4 + 2 * number)
        await story.advance(50)
    story.break_cloud({"fault": "slow-node", "count": 1, "delay": "20m"})
    story.scale(18)
    await story.advance(150)
    story.break_cloud({"fault": "missing-resource", "resources": ["memory"], "count": 1})
    story.scale(22)
    await story.advance(170)
    story.break_cloud(
        {"fault": "throttle", "operation": "terminate", "count": 2, "retryAfter": "5s"}
    )
    story.scale(0)
    await story.advance(60)


async def own_claim(story: Story) -> None:
    """A user creates NodeClaims without a pool."""
    story.begin(pods=1)
    for number, cpu in enumerate(("1", "2000")):
        story.cluster.apply(
            [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodeClaim",
                    "metadata": {"name": f"own{number}"},
                    "spec": {
                        "nodeClassRef": {
                            "group": GROUP, "kind": "KWOKNodeClass", "name": "default",
                        },
                        "requirements": [
                            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
                        ],
                        "resources": {"requests": {"cpu": cpu}},
                        "expireAfter": "3m",
                    },
                }
            ]
        )  # fmt: skip
    await story.advance(240)


async def deadlines(story: Story) -> None:
    """Pods that may not be evicted hold Nodes until the deadline."""
    story.begin(pods=2, template={"terminationGracePeriod": "90s", "expireAfter": "6m"})
    kept = deployment("kept", 1, terminationGracePeriodSeconds=120)
    kept["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    guarded = deployment("guarded", 2)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}, "maxUnavailable": 0},
    }
    story.cluster.apply([kept, guarded, budget])
    await story.advance(30)
    story.cluster.patch(NODE_POOLS, "general", NEWER)
    await story.advance(60)
    for name in story.claims():
        story.cluster.delete(NODE_CLAIMS, name)
    await story.advance(180)


async def static_nodes(story: Story) -> None:
    """A static pool grows, drifts, is refused a claim and shrinks."""
    story.begin("--feature-gates=StaticCapacity=true,NodeRepair=true", pods=0)
    story.cluster.apply(
        [
            node_pool(
                "fixed",
                replicas=3,
                limits={"nodes": 4},
                template={"requirements": [{"key": CPU, "operator": "In", "values": ["2"]}]},
                disruption=EAGER,
            )
        ]
    )
    await story.advance(30)
    story.cluster.patch(NODE_POOLS, "fixed", NEWER)
    story.refuse("POST", "nodeclaims", 500, times=2)
    await story.advance(120)
    story.cluster.patch(NODE_POOLS, "fixed", {"spec": {"replicas": 6}})
    await story.advance(30)
    story.refuse("DELETE", "nodeclaims", 500)
    story.cluster.patch(NODE_POOLS, "fixed", {"spec": {"replicas": 1}})
    await story.advance(60)
    story.cluster.delete(NODE_POOLS, "fixed")
    await story.advance(30)


async def sick_nodes(story: Story) -> None:
    """Kubelets stop, and the cloud takes instances back."""
    story.begin("--feature-gates=NodeRepair=true", pods=10)
    await story.advance(30)
    names = story.claims()
    now = story.cluster.clock.now().isoformat().replace("+00:00", "Z")
    condition = {
        "type": "Ready", "status": "False", "reason": "KubeletNotReady",
        "lastTransitionTime": now, "lastHeartbeatTime": now,
    }  # fmt: skip
    body = {"status": {"conditions": [condition]}}
    story.cluster.server.registry.patch(NODES, body, names[0], part="status")
    story.break_cloud({"fault": "reclaim", "nodeClaims": names[1:2], "count": 1, "notice": "30s"})
    await story.advance(120)
    story.break_cloud({"fault": "protected", "nodeClaims": names[2:3]})
    story.cluster.delete(NODE_CLAIMS, names[2])
    await story.advance(120)
    story.break_cloud({"fault": "partial-listing", "count": 3})
    await story.advance(480)


STORIES: Final[tuple[Callable[[Story], Awaitable[None]], ...]] = (
    observe, garbage, refused_writes, failed_launches, own_claim, deadlines, static_nodes, sick_nodes,
)  # fmt: skip


def _live(tell: Callable[[Story], Awaitable[None]], folder: Path) -> None:
    async def life(scene: Any) -> None:
        await tell(Story(scene, folder))

    faults = folder / "faults.json"
    faults.write_text("[]")
    run_controller(folder, life, arguments=[f"--kwok-faults-file={faults}"])


TOLD: Final[dict[str, Callable[[Path], None]]] = {
    each.__name__.replace("_", "-"): lambda folder, tell=each: _live(tell, folder)
    for each in STORIES
}
"""Each takes a folder for the state of its cloud."""
