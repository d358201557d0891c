"""Handmade plans for tests of the verifier: a catalogue of one type, and claims in a line each."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replaced

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.records import AffinityTerm, LabelSelector, TopologySpread
from karpenter_core.scheduling.problem import (
    CheapestOffering,
    PlanCost,
    PlannedNodeClaim,
    SchedulingPlan,
    UnschedulablePod,
)
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.testing.builders import catalogue, instance_type, pod_shape, problem
from karpenter_core.testing.builders import pod as make_pod
from tests.verifier import violations
from tests.verifier.places import pool_labels

TYPE = instance_type("large", cpu="16", memory="64Gi", price=1.0, spot_discount=0.0)
WEB = LabelSelector(match_labels={"app": "web"})
DB = LabelSelector(match_labels={"app": "db"})


def pod(name, app="web", *, namespace="default", labels=(), node_name="", **constraints):
    """Make a pod; constraints are fields of the shape, as tuples."""
    shape = pod_shape(
        namespace=namespace,
        labels={"app": app, **dict(labels)},
        node_selector=constraints.pop("node_selector", None),
        required=constraints.pop("required", ()),
        tolerations=constraints.pop("tolerations", ()),
        host_ports=constraints.pop("host_ports", ()),
    )
    return make_pod(name, shape=replaced(shape, **constraints), node_name=node_name)


def spread(key=ZONE, max_skew=1, selector=WEB, hard=True, **more):
    """Make the one spread constraint of a pod."""
    return (
        TopologySpread(
            topology_key=key,
            max_skew=max_skew,
            when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
            selector=selector,
            **more,
        ),
    )


def term(key=ZONE, selector=WEB, **more):
    """Make the one affinity term of a pod."""
    return (AffinityTerm(topology_key=key, selector=selector, **more),)


def claim(*pods, zones="a", kinds=(ON_DEMAND,), pool="default", more=(), **labels):
    """Make a claim for the large type; `zones` are the last letters of their names."""
    zones = [f"zone-{letter}" for letter in zones]
    return PlannedNodeClaim(
        pool=pool,
        pods=pods,
        requirements=(
            Requirement.of(INSTANCE_TYPE, "In", (TYPE.name,)),
            Requirement.of(ZONE, "In", zones),
            Requirement.of(CAPACITY_TYPE, "In", kinds),
            *more,
        ),
        instance_types=(TYPE.name,),
        requests={},
        cheapest=CheapestOffering(
            instance_type=TYPE.name, zone=zones[0], capacity_type=kinds[0], price_per_hour=1.0
        ),
        labels=labels,
        capacity_max={},
    )


def judged(*claims, pods=None, existing=None, sequence=None, types=(TYPE,), **more):
    """Judge a plan that puts pods on claims, and on existing nodes (by name).

    The order is that of the claims' pods, then those of the nodes, unless said otherwise.
    """
    existing = existing or {}
    placed = [p for c in claims for p in c.pods] + [p for ps in existing.values() for p in ps]
    extra = {name: more.pop(name) for name in ("volumes", "namespaces") if name in more}
    asked = problem(placed if pods is None else pods, catalogue=catalogue(*types), **more)
    asked = replace(asked, **extra)
    named = {pool.name: pool_labels(pool) for pool in asked.pools}
    plan = SchedulingPlan(
        claims=tuple(replace(c, labels={**named[c.pool], **c.labels}) for c in claims),
        existing=existing,
        unschedulable={
            p.uid: UnschedulablePod(message="left") for p in asked.pods if p not in placed
        },
        cost=PlanCost(
            hourly=sum(c.cheapest.price_per_hour for c in claims),
        ),
        sequence=tuple(p.uid for p in (placed if sequence is None else sequence)),
    )
    return violations(asked, plan)


__all__ = ["DB", "SPOT", "TYPE", "WEB", "claim", "judged", "pod", "spread", "term"]
