"""Limits of every kind hold over histories of passes, launches, restarts and windows of time.

Ten thousand passes (each example has five):

    KARPENTER_PROPERTY_EXAMPLES=2000 pytest -n 0 -m properties tests/state/test_limits_hold.py
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODES, PRICE_PER_HOUR, ZONE
from karpenter_core.api.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED
from karpenter_core.api.quantities import format_resources, parse_amount, parse_resources
from karpenter_core.controllers.provisioning.new_claims import DecisionRef, new_claim
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import merge
from karpenter_core.scheduling.solve import solve
from karpenter_core.state import pool_schedules
from karpenter_core.state.capacity_quotas import read_quota
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, TimePassed
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchLimits
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, standard_catalogue
from karpenter_core.testing.state_builders import (
    node,
    ready_node_pool,
    synced_state,
    with_claim_conditions,
)
from tests.properties import with_examples
from tests.support.pool_windows import hours, with_windows

PASSES = 5
LIMITS = LaunchLimits()
SETTINGS = ProblemSettings(launch_limits=LIMITS, well_known=frozenset({"example.com/family"}))
TYPES = standard_catalogue()
SELECTORS = (
    None,
    {"matchLabels": {"karpenter.sh/nodepool": "first"}},
    {"matchLabels": {ZONE: "zone-a"}},
    {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["zone-a"]}]},
    {"matchExpressions": [{"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]},
    {"matchLabels": {"example.com/family": "c"}},
    {"matchLabels": {"karpenter.sh/registered": "true"}},
    {"matchExpressions": [{"key": "example.com/team", "operator": "Exists"}]},
)


@dataclass
class World:
    """The API server's objects and the cloud's instances, and one process's view of them."""

    random: Random
    pools: list = field(default_factory=list)
    quotas: list = field(default_factory=list)
    claims: dict = field(default_factory=dict)
    pools_of: dict = field(default_factory=dict)
    instances: dict = field(default_factory=dict)
    """By claim: its labels and what it takes of every resource."""
    nodes: dict = field(default_factory=dict)
    windows: dict = field(default_factory=dict)
    """By pool: first and last minute of the day, and the limits meanwhile."""
    ceilings: dict = field(default_factory=dict)
    """By claim, in the order of creation: the limits of its pool at that moment."""
    now: datetime = EPOCH
    pending: list = field(default_factory=list)
    made: int = 0

    def __post_init__(self):
        self.pools = [
            ready_node_pool(
                node_pool(
                    name,
                    limits=self.draw_limits(),
                    labels={"example.com/team": "data"} if name == "first" else None,
                )
            )
            for name in ("first", "second")
        ]
        self.pools = [self.with_schedule(pool) for pool in self.pools]
        self.quotas = [
            CapacityQuota(
                api_version="autoscaling.x-k8s.io/v1beta1",
                kind="CapacityQuota",
                metadata=ObjectMeta(name=f"quota-{number}", uid=f"uid-quota-{number}"),
                spec={
                    "selector": self.random.choice(SELECTORS),
                    "limits": {"resources": self.draw_limits(whole=True)},
                },
            )
            for number in range(self.random.randint(0, 3))
        ]
        self.restart()

    def draw_limits(self, *, whole=False):
        rolled = self.random
        price = rolled.randint(0, 300)
        amounts = {
            "cpu": str(rolled.randint(2, 60)),
            "memory": f"{rolled.randint(8, 240)}Gi",
            "nodes": str(rolled.randint(0, 8)),
            PRICE_PER_HOUR: str(price // 100) if whole else f"{price / 100:.2f}",
        }
        return {name: amount for name, amount in amounts.items() if rolled.random() < 0.5}

    def with_schedule(self, pool):
        """Give some pools windows of half an hour or more; the last one that is open counts."""
        if self.random.random() < 0.3:
            return pool
        rows, listed = [], self.windows.setdefault(pool.name, [])
        for number in range(self.random.randint(1, 3)):
            start, minutes = self.random.randint(0, 300), self.random.randint(30, 150)
            shutdown = self.random.random() < 0.2
            limits = (
                {} if shutdown else {"cpu": str(self.random.randint(1, 40)), **self.draw_limits()}
            )
            effect = {"shutdown": True} if shutdown else {"limits": limits}
            schedule = f"{start % 60} {start // 60} * * *"
            rows.append(hours(f"window-{number}", schedule, f"{minutes}m", **effect))
            listed.append((start, start + minutes, shutdown, limits))
        return with_windows(pool, *rows)

    def limits_now(self, pool):
        """Return the limits of a pool at this time, read from the windows that were drawn."""
        minute = (self.now - EPOCH).total_seconds() / 60
        limits, is_shut_down = parse_resources(pool.spec.limits), False
        for start, end, shutdown, changed in self.windows.get(pool.name, ()):
            if start <= minute < end:
                limits |= parse_resources(changed)
                is_shut_down |= shutdown
        return {**limits, NODES: 0} if is_shut_down else limits

    def let_time_pass(self):
        """Go on by up to an hour: edges of windows fall between plans, creations and launches."""
        if self.random.random() < 0.6:
            self.now += timedelta(minutes=self.random.randint(0, 60))
            self.state.apply_event(TimePassed(self.now))

    def restart(self):
        """A new process lists what exists; it knows of no decision and of nothing in flight."""
        self.state = synced_state(
            *self.pools,
            *self.quotas,
            *self.claims.values(),
            *self.nodes.values(),
            catalogues={pool.name: TYPES for pool in self.pools},
            now=self.now,
        )
        self.in_flight = []

    def add_pods(self):
        for _ in range(self.random.randint(1, 6)):
            self.made += 1
            self.pending.append(
                pod(
                    f"pod-{self.made}",
                    cpu=self.random.choice(("300m", "1", "3", "7")),
                    memory=self.random.choice(("500Mi", "4Gi", "14Gi")),
                    node_selector=self.random.choice(({}, {}, {ZONE: "zone-a"})),
                )
            )

    def plan(self, snapshot):
        """Plan for the pending pods; a snapshot may be older than what exists."""
        asked = build_provisioning_input(snapshot, now=self.now, problem_settings=SETTINGS)
        packing = self.random.choice((PackingPolicy.VALUE, PackingPolicy.FIRST_FIT))
        problem = with_pods(asked.problem, self.pending)
        return solve(problem, SolveOptions(packing=packing, work_units=0))

    def create(self, plan):
        """Create what is allowed, as the creator does; some answers are late."""
        ceilings = LaunchCeilings(
            self.state.snapshot(), LIMITS, in_flight=self.in_flight, leaving=()
        )
        created = []
        for planned in plan.claims:
            if ceilings.refusal(planned) is not None:
                continue
            ceilings.count(planned)
            created.append(planned)
        for planned in created:
            self.made += 1
            (pool,) = (each for each in self.pools if each.name == planned.pool)
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
            self.ceilings[claim.name] = (pool.name, self.limits_now(pool))
            if self.random.random() < 0.2:
                self.in_flight.append(planned)
            else:
                self.state.apply_event(ObjectObserved(claim))
            served = {one.uid for one in planned.pods}
            self.pending = [one for one in self.pending if one.uid not in served]

    def launch(self, share):
        """Launch claims, each as one of the offerings that it allows, often as the dearest."""
        for name in sorted(self.claims.keys() - self.instances.keys()):
            if self.random.random() >= share:
                continue
            claim = self.claims[name]
            requirements = Requirements.from_specs(claim.spec.requirements)
            listed = requirements.get(INSTANCE_TYPE)
            options = [
                (item, offering)
                for item in TYPES.instance_types
                if listed.has(item.name)
                for offering in item.offerings
                if requirements.compatible(
                    offering.requirements, allow_undefined={ZONE, CAPACITY_TYPE}
                )
            ]
            item, offering = self.random.choice(
                (self.random.choice(options), max(options, key=lambda one: one[1].price.amount))
            )
            self.settle(claim, item, offering)

    def settle(self, claim, item, offering):
        family = item.requirements.single_value("example.com/family")
        labels = {
            INSTANCE_TYPE: item.name,
            ZONE: offering.zone,
            CAPACITY_TYPE: offering.capacity_type,
            "example.com/family": family,
            **claim.metadata.labels,
        }
        status = claim.status.model_copy(
            update={
                "provider_id": f"kwok://{claim.name}",
                "capacity": format_resources(item.capacity),
                "allocatable": format_resources(item.allocatable()),
            }
        )
        launched = claim.model_copy(
            update={
                "status": status,
                "metadata": claim.metadata.model_copy(update={"labels": labels}),
            }
        )
        stages = (LAUNCHED, REGISTERED, INITIALIZED)[: self.random.choice((1, 3))]
        launched = with_claim_conditions(launched, *stages, now=EPOCH)
        price = parse_amount(PRICE_PER_HOUR, f"{offering.price.amount:.6f}")
        final = {**labels, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
        self.instances[claim.name] = (
            final,
            {**item.capacity, NODES: 1, PRICE_PER_HOUR: price},
        )
        self.claims[claim.name] = launched
        self.state.apply_event(ObjectObserved(launched))
        if len(stages) > 1:
            amounts = {key: str(value) for key, value in format_resources(item.capacity).items()}
            self.nodes[claim.name] = node(claim.name, claim=launched, capacity=amounts)
            self.state.apply_event(ObjectObserved(self.nodes[claim.name]))

    def remove_one(self):
        """End an instance: its limits are free again."""
        if not self.instances:
            return
        name = self.random.choice(sorted(self.instances))
        del self.instances[name], self.ceilings[name]
        self.state.apply_event(ObjectRemoved(self.claims.pop(name)))
        if name in self.nodes:
            self.state.apply_event(ObjectRemoved(self.nodes.pop(name)))

    def excesses(self):
        """Return the limits that the instances exceed.

        A lower limit ends no instance: each claim kept to the limits at its creation, with all that
        were created before it.
        """
        found = []
        taken = {pool.name: {} for pool in self.pools}
        for claim, (name, limits) in self.ceilings.items():
            if claim not in self.instances:
                continue
            taken[name] = merge((taken[name], self.instances[claim][1]))
            found += [(name, key) for key, most in limits.items() if taken[name].get(key, 0) > most]
        for quota in self.quotas:
            reading = read_quota(quota)
            taken = merge(
                amounts
                for labels, amounts in self.instances.values()
                if Requirements.from_labels(labels).compatible(reading.requirements)
            )
            found += [
                (quota.name, key)
                for key, most in reading.limits.items()
                if taken.get(key, 0) > most
            ]
        return found


def with_pods(problem, pods):
    """Return a problem with these pods."""
    return replace(problem, pods=tuple(pods))


def run_history(world, passes=PASSES):
    """Play passes; return the excesses after each, and the number of instances at the end."""
    found = []
    for _ in range(passes):
        old = world.state.snapshot()
        world.add_pods()
        if world.random.random() < 0.4:
            world.create(world.plan(world.state.snapshot()))
        plan = world.plan(old if world.random.random() < 0.4 else world.state.snapshot())
        world.let_time_pass()
        world.create(plan)
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
def test_no_limit_is_exceeded_in_histories_with_stale_plans_restarts_and_windows(seed):
    """Of cpu, memory, nodes and price, of NodePools and quotas; windows change those of NodePools."""
    assert run_history(World(Random(seed))) == []


def test_histories_launch_nodes_and_reach_limits(monkeypatch):
    """Without the check at creation some of them exceed limits: the property can fail."""
    worlds = [World(Random(seed)) for seed in range(24)]
    for world in worlds:
        run_history(world)
    assert sum(len(world.instances) for world in worlds) > 20
    monkeypatch.setattr(LaunchCeilings, "refusal", lambda _self, _planned: None)

    assert any(run_history(World(Random(seed))) for seed in range(40))


def test_histories_pass_edges_of_windows_that_matter(monkeypatch):
    """With NodePools as users wrote them some of them exceed limits."""
    monkeypatch.setattr(pool_schedules, "in_force", lambda pool, _windows: pool)

    assert any(run_history(World(Random(seed))) for seed in range(60))
