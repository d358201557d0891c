"""Moments of a cluster, and contents without a cluster, for tests of the dashboard."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime

from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.errors import BadInputError
from karpenter_core.operator.dashboard.feed import DashboardFeed, DashboardSources
from karpenter_core.operator.dashboard.pod_reasons import PodReasons
from karpenter_core.operator.dashboard_content import ClusterMoment, Role
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.sim.virtual_time import LoopClock
from karpenter_core.state.ledger_view import LedgerView
from karpenter_core.state.provisioning_input import ProblemSettings
from karpenter_core.state.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 9, tzinfo=UTC)


def moment_of(snapshot=None, **changes):
    """Return a moment; without a snapshot, of an empty cluster."""
    values = {
        "snapshot": snapshot or Snapshot(version=1, synced=True, ledger=LedgerView()),
        "now": NOW,
        "role": Role.LEADER,
        "cluster_name": "production",
        "solve": SolveOptions(),
        "problem_settings": ProblemSettings(),
    }
    return ClusterMoment(**{**values, **changes})


def use(share=0.5):
    return {"requested": "2", "allocatable": "4", "share": share}


def node_row(name, **changes):
    """Return a node of the state document."""
    resources = {"cpu": use(), "memory": use(0.95)}
    row = {
        "name": name, "nodeClaim": f"claim-{name}", "nodePool": "general", "instanceType": "large",
        "zone": "zone-a", "capacityType": "spot", "state": "Ready", "reason": "",
        "createdAt": "2026-01-01T08:00:00Z", "pods": 3, "pricePerHour": 0.2, "resources": resources,
    }  # fmt: skip
    return row | changes


class ScriptedContent:
    """Contents that a test changes."""

    def __init__(self, *nodes):
        self.nodes = list(nodes)
        self.pending = []
        self.pools = ["general"]
        self.notes = []
        self.computed = 0
        self.problem = None
        self.explained = []
        self.text = "no method disrupts it"

    def load(self):
        """Nothing is imported."""

    def state(self, moment):
        self.computed += 1
        if self.problem is not None:
            raise self.problem
        totals = {
            "nodes": len(self.nodes), "states": {"Ready": len(self.nodes)}, "pods": 9,
            "runningPods": 8, "pendingPods": len(self.pending), "unpricedNodes": 0,
            "resources": {"cpu": use(), "memory": use()},
            "pricePerHour": 0.2 * len(self.nodes), "pricePerMonth": 146.0 * len(self.nodes),
        }  # fmt: skip
        pools = [
            {"name": name, "nodes": 1, "pricePerHour": 0.2, "limits": {"cpu": "100"},
             "problem": "", "resources": {"cpu": use(), "memory": use()}}
            for name in self.pools
        ]  # fmt: skip
        return {
            "apiVersion": 1, "cluster": moment.cluster_name, "role": moment.role.value,
            "leader": moment.leader, "synced": True, "paused": moment.is_paused, "currency": "USD",
            "problems": list(moment.problems),
            "totals": totals, "nodePools": pools, "nodes": list(self.nodes), "omittedNodes": 0,
            "pendingPods": list(self.pending), "pendingStates": {}, "notes": list(self.notes),
        }  # fmt: skip

    def decision(self, decision):
        return decision

    def pods_of(self, moment, node):
        if node not in {row["name"] for row in self.nodes}:
            raise BadInputError(f'no node "{node}"')
        pod = {"pod": f"default/{self.text}", "phase": "Running", "cpu": "1", "memory": "1Gi",
               "createdAt": None, "daemon": True, "doNotDisrupt": False}  # fmt: skip
        return {"node": node, "pods": [pod], "omitted": 0}

    def explain_node(self, moment, node):
        self.explained.append(node)
        method = {"verdict": "declined", "message": self.text, "move": None}
        return {"answer": self.text, "methods": {"emptiness": method}}

    def rebalance(self, moment):
        costs = {"nodes": 2, "pricePerHour": 0.4, "nodesWithoutPrice": 0}
        step = {"nodes": [{"node": self.text, "nodeClaim": "c", "nodePool": "general"}], "podsMoved": 3,
                "nodeClaims": [{"cheapest": {"instanceType": self.text, "zone": "a"}}],
                "method": "emptiness", "savingsPerHour": 0.25, "omittedNodes": 3, "omittedNodeClaims": 0}  # fmt: skip
        blocked = {"obstacle": "pod", "message": self.text, "count": 7, "nodes": [self.text]}
        return {"before": costs, "after": costs | {"nodes": 1}, "savingsPerHour": 0.25, "podsMoved": 3,
                "steps": [step], "omittedSteps": 0, "blocked": [blocked], "budgetsUsedUp": [self.text]}  # fmt: skip

    def explain_pod(self, moment, pod):
        self.explained.append(pod)
        pools = {self.text: {"constraint": "resource", "detail": self.text, "closest": "large"}}
        return {"answer": self.text, "pools": pools}


def decision(number, summary="2 nodeclaim(s) for 5 pod(s)", **changes):
    """Return the short form of a decision."""
    document = {
        "id": f"decision-{number}", "at": "2026-01-01T09:00:00Z", "kind": "provision",
        "method": "value", "reason": "", "summary": summary, "rejection": "", "failure": "",
        "removed": [], "launched": [], "more": 0, "priceBefore": 0.0, "priceAfter": 0.4,
        "currency": "USD",
    }  # fmt: skip
    return document | changes


class World:
    """A feed on scripted contents; `change` makes the next moment another one."""

    def __init__(self, content, *, interval_seconds=2.0, clock=None, role=Role.LEADER, **sources):
        self.content = content
        self.versions = itertools.count(1)
        self.version = 0
        self.role = role
        self.problems = ()
        self.failure = None
        self.sink = None
        self.journal = DecisionJournal()
        self.reasons = PodReasons()
        self.feed = DashboardFeed(
            content,
            DashboardSources(
                take_moment=self.take,
                journal=self,
                reasons=self.reasons,
                clock=clock or LoopClock(),
                version_prefix="v",
                **sources,
            ),
            interval_seconds=interval_seconds,
        )

    def add_sink(self, sink):
        self.sink = sink

    def take(self):
        if self.failure is not None:
            raise self.failure
        snapshot = Snapshot(version=self.version, synced=True, ledger=LedgerView())
        return moment_of(snapshot, role=self.role, leader="other-1", problems=self.problems)

    def change(self):
        self.version = next(self.versions)


class Running:
    """A feed that runs, as an async context manager."""

    def __init__(self, world):
        self.world = world

    async def __aenter__(self):
        self.task = asyncio.create_task(self.world.feed.run())
        return self.world

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
