"""Limits hold where everything that buys nodes shares them, and users change them meanwhile.

Pods (some of which may buy no node), virtual pods of buffers, static NodePools, spot shares, windows and
the size of the cluster; between passes users raise and lower limits, quotas and replicas. Ten thousand passes:

    KARPENTER_PROPERTY_EXAMPLES=2000 pytest -n 0 -m properties tests/state/test_limits_of_whole_clusters.py
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.labels import NODES, SPOT_SHARE
from karpenter_core.controllers.provisioning.new_claims import DecisionRef, new_claim
from karpenter_core.scheduling.problem import PackingPolicy, SchedulingPlan, SolveOptions
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import merge
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.capacity_buffers import buffer_pods, buffer_source
from karpenter_core.state.capacity_quotas import read_quota
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, VirtualPodsDeclared
from karpenter_core.state.expendable_pods import expendable_reason
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchAllowance, LaunchLimits
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import (
    StaticNodeAllowance,
    missing_replicas,
    static_pool_claims,
)
from karpenter_core.testing.builders import EPOCH, node_pool, pod, pod_shape
from karpenter_core.testing.state_builders import ready_node_pool, synced_state
from tests.properties import with_examples
from tests.state.test_limits_hold import TYPES, World
from tests.support.pool_windows import hours, with_windows

PASSES = 5
CUTOFF = 0
FIXED = "fixed"


@dataclass
class WholeCluster(World):
    """A world with a static NodePool, buffers and a largest number of nodes."""

    buffers: list = field(default_factory=list)
    unneeded: list = field(default_factory=list)
    """Claims that were created for pods that may buy no node."""
    quotas_at: dict = field(default_factory=dict)
    """By claim: the limits of every quota when it was created."""
    most_nodes: int = 0
    crowded: list = field(default_factory=list)
    """Claims that were created beyond the largest number of nodes."""
    static: set = field(default_factory=set)

    def __post_init__(self):
        rolled = self.random
        self.most_nodes = rolled.choice((0, 0, rolled.randint(1, 12)))
        self.limits = LaunchLimits(max_nodes_total=self.most_nodes)
        self.settings = ProblemSettings(
            launch_limits=self.limits,
            well_known=frozenset({"example.com/family"}),
            priority_cutoff=CUTOFF,
        )
        super().__post_init__()
        self.pools[1] = self.with_spot_share(self.pools[1])
        self.pools.append(self.fixed_pool())
        self.buffers = [
            CapacityBuffer.model_validate(
                {
                    "metadata": {
                        "name": f"buffer-{number}",
                        "namespace": "default",
                        "uid": f"uid-buffer-{number}",
                        "creationTimestamp": "2029-12-31T00:00:00Z",
                    },
                    "spec": {"podTemplateRef": {"name": "chunk"}, "replicas": rolled.randint(1, 4)},
                }
            )
            for number in range(rolled.randint(0, 2))
        ]
        self.restart()

    def with_spot_share(self, pool):
        if self.random.random() < 0.5:
            return pool
        share = {SPOT_SHARE: f"{self.random.randint(0, 100)}%"}
        annotations = {**pool.metadata.annotations, **share}
        metadata = pool.metadata.model_copy(update={"annotations": annotations})
        return pool.model_copy(update={"metadata": metadata})

    def fixed_pool(self):
        """A static NodePool, with windows for its replicas or its limit."""
        rolled = self.random
        limits = {"nodes": str(rolled.randint(0, 5))} if rolled.random() < 0.7 else None
        made = ready_node_pool(node_pool(FIXED, replicas=rolled.randint(0, 4), limits=limits))
        rows, listed = [], self.windows.setdefault(FIXED, [])
        for number in range(rolled.randint(0, 2)):
            start, minutes = rolled.randint(0, 300), rolled.randint(30, 150)
            changed = {"nodes": str(rolled.randint(0, 5))} if rolled.random() < 0.5 else {}
            effect = {"limits": changed} if changed else {"replicas": rolled.randint(0, 6)}
            schedule = f"{start % 60} {start // 60} * * *"
            rows.append(hours(f"window-{number}", schedule, f"{minutes}m", **effect))
            listed.append((start, start + minutes, False, changed))
        return with_windows(made, *rows) if rows else made

    def restart(self):
        self.state = synced_state(
            *self.pools,
            *self.quotas,
            *self.claims.values(),
            *self.nodes.values(),
            *self.buffers,
            *self.pending,
            catalogues={pool.name: TYPES for pool in self.pools},
            now=self.now,
        )
        self.in_flight = []
        for buffer in self.buffers:
            self.declare(buffer)

    def declare(self, buffer):
        shape = pod_shape(cpu="1", memory="1Gi")
        pods = buffer_pods(buffer, shape, buffer.spec.replicas)
        self.state.apply_event(VirtualPodsDeclared(source=buffer_source(buffer), pods=pods))

    def add_pods(self):
        before = len(self.pending)
        super().add_pods()
        for number in range(before, len(self.pending)):
            if self.random.random() < 0.3:
                self.made += 1
                self.pending[number] = pod(f"low-{self.made}", cpu="2", priority=CUTOFF - 1)
            self.state.apply_event(ObjectObserved(self.pending[number]))

    def plan(self, snapshot):
        asked = build_provisioning_input(snapshot, now=self.now, problem_settings=self.settings)
        packing = self.random.choice((PackingPolicy.VALUE, PackingPolicy.FIRST_FIT))
        return solve(asked.problem, SolveOptions(packing=packing, work_units=0))

    def plan_replicas(self, snapshot):
        """Plan the claims that the static NodePool lacks in a view, which may be old."""
        pool = snapshot.node_pools[FIXED]
        planned = plan_static_claim(
            snapshot,
            pool,
            aliases=self.settings.aliases,
            well_known=self.settings.well_known,
            solve=SolveOptions(),
        )
        missing = missing_replicas(pool, static_pool_claims(snapshot, FIXED))
        return SchedulingPlan(claims=(planned,) * missing if planned else ())

    def create(self, plan):
        """Create what every limit allows, in the order of the claim creator."""
        snapshot = self.state.snapshot()
        counts = Counter(planned.pool for planned in self.in_flight)
        ceilings = LaunchCeilings(snapshot, self.limits, in_flight=self.in_flight, leaving=())
        static = StaticNodeAllowance(snapshot, in_flight=counts)
        allowance = LaunchAllowance(snapshot, self.limits, now=self.now, in_flight=counts)
        for planned in plan.claims:
            pool = snapshot.node_pools[planned.pool]
            if ceilings.refusal(planned) is not None or static.refusal(pool):
                continue
            if allowance.grant(pool) is not None:
                continue
            ceilings.count(planned)
            static.grant(pool)
            self.create_one(planned, pool)

    def create_one(self, planned, pool):
        self.made += 1
        claim = new_claim(
            planned,
            pool,
            unique=str(self.made),
            decision_ref=DecisionRef(id="1", cause=""),
            annotations=None,
            overlaid=None,
            reason="provisioned",
        )
        metadata = claim.metadata.model_copy(
            update={"uid": f"uid-{self.made}", "creation_timestamp": EPOCH}
        )
        claim = claim.model_copy(update={"metadata": metadata})
        self.claims[claim.name] = claim
        self.ceilings[claim.name] = (pool.name, self.limits_now(self.pool_named(pool.name)))
        self.quotas_at[claim.name] = {quota.name: read_quota(quota).limits for quota in self.quotas}
        if self.most_nodes and len(self.claims) > self.most_nodes:
            self.crowded.append(claim.name)
        if pool.name == FIXED:
            self.static.add(claim.name)
        elif any(
            expendable_reason(each.shape, CUTOFF) for each in planned.pods if not each.is_virtual
        ):
            self.unneeded.append(claim.name)
        if self.random.random() < 0.2:
            self.in_flight.append(planned)
        else:
            self.state.apply_event(ObjectObserved(claim))
        served = {each.uid for each in planned.pods}
        for each in self.pending:
            if each.uid in served:
                self.state.apply_event(ObjectRemoved(each))
        self.pending = [each for each in self.pending if each.uid not in served]

    def pool_named(self, name):
        return next(pool for pool in self.pools if pool.name == name)

    def change_limits(self):
        """A user raises or lowers a limit, a quota, or replicas, or takes a buffer away."""
        rolled = self.random
        kind = rolled.choice(("pool", "quota", "replicas", "buffer"))
        if kind == "pool":
            number = rolled.randrange(2)
            self.edit_pool(number, limits=self.draw_limits())
        elif kind == "replicas":
            self.edit_pool(2, replicas=rolled.randint(0, 6))
        elif kind == "quota" and self.quotas:
            number = rolled.randrange(len(self.quotas))
            quota = self.quotas[number]
            spec = {**quota.spec, "limits": {"resources": self.draw_limits(whole=True)}}
            self.quotas[number] = quota.model_copy(update={"spec": spec})
            self.state.apply_event(ObjectObserved(self.quotas[number]))
        elif kind == "buffer" and self.buffers:
            gone = self.buffers.pop()
            self.state.apply_event(ObjectRemoved(gone))
            self.state.apply_event(VirtualPodsDeclared(source=buffer_source(gone), pods=None))

    def edit_pool(self, number, **changes):
        pool = self.pools[number]
        self.pools[number] = pool.model_copy(update={"spec": pool.spec.model_copy(update=changes)})
        self.state.apply_event(ObjectObserved(self.pools[number]))

    def remove_one(self):
        before = set(self.claims)
        super().remove_one()
        for name in before - self.claims.keys():
            del self.quotas_at[name]

    def excesses(self):
        """Return the limits that a claim exceeded at its creation, with all created before it."""
        found = [("unneeded", name) for name in self.unneeded]
        found += [("nodes", name) for name in self.crowded]
        held = Counter()
        of_pool, of_quota = {}, {}
        for claim, (pool, limits) in self.ceilings.items():
            if pool == FIXED:
                held[FIXED] += 1  # counted before they have an instance
                if held[FIXED] > limits.get(NODES, held[FIXED]):
                    found.append((FIXED, NODES))
            if claim not in self.instances:
                continue
            labels, amounts = self.instances[claim]
            of_pool[pool] = merge((of_pool.get(pool, {}), amounts))
            if pool != FIXED:
                found += [
                    (pool, key) for key, most in limits.items() if of_pool[pool].get(key, 0) > most
                ]
            for quota in self.quotas:
                if Requirements.from_labels(labels).compatible(read_quota(quota).requirements):
                    name = quota.name
                    of_quota[name] = merge((of_quota.get(name, {}), amounts))
                    found += [
                        (name, key)
                        for key, most in self.quotas_at[claim][name].items()
                        if of_quota[name].get(key, 0) > most
                    ]
        return found


def run_history(world, passes=PASSES):
    """Play passes; return the excesses after each."""
    found = []
    for _ in range(passes):
        old = world.state.snapshot()
        world.add_pods()
        if world.random.random() < 0.4:
            world.create(world.plan(world.state.snapshot()))
        plan = world.plan(old if world.random.random() < 0.4 else world.state.snapshot())
        replicas = world.plan_replicas(
            old if world.random.random() < 0.4 else world.state.snapshot()
        )
        if world.random.random() < 0.4:
            world.change_limits()
        world.let_time_pass()
        plans = [plan, replicas]
        world.random.shuffle(plans)
        for each in plans:
            world.create(each)
        world.let_time_pass()
        world.launch(0.5)
        found += world.excesses()
        if world.random.random() < 0.3:
            world.restart()
        elif world.random.random() < 0.3:
            world.remove_one()
    world.launch(1.0)
    return found + world.excesses()


@with_examples(12)
@given(seed=st.integers(0, 2**32))
def test_no_limit_is_exceeded_by_pods_buffers_and_replicas_together(seed):
    assert run_history(WholeCluster(Random(seed))) == []


def test_histories_have_all_of_it(monkeypatch):
    """Static nodes, nodes for buffers, pods without a node; without the checks there are excesses."""
    worlds = [WholeCluster(Random(seed)) for seed in range(25)]
    for world in worlds:
        run_history(world)
    assert sum(len(world.static) for world in worlds) > 10
    assert sum(len(world.instances) for world in worlds) > 50
    assert any(each.name.startswith("low-") for world in worlds for each in world.pending)
    monkeypatch.setattr(LaunchCeilings, "refusal", lambda _self, _planned: None)
    monkeypatch.setattr(StaticNodeAllowance, "refusal", lambda _self, _pool: "")
    found = [each for seed in range(40) for each in run_history(WholeCluster(Random(seed)))]
    kinds = {"quota" if name.startswith("quota") else name for name, _ in found}
    assert kinds >= {FIXED, "quota"}
    assert kinds & {"first", "second"}
