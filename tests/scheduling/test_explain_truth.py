"""Every reason of a pending pod is from the closed list, and true.

Judged twice: by code that knows nothing of the scheduler, and by lifting what is named.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT, ZONE
from karpenter_core.scheduling.problem import MinValuesPolicy, PoolConstraint, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import offering
from tests.properties import examples
from tests.scheduling.plan_checks import FIRST_FIT
from tests.support.problems import ALL_FEATURES, ProblemFeature, seeded_problem
from tests.support.random_choices import TEAM, ZONES
from tests.support.run_selection import others_as_cluster_runs
from tests.verifier.first_failing import ORDER, Trial

EXAMPLES = examples(60)
"""On how many problems each property is tried, by seed."""

both_packings = pytest.mark.parametrize(
    "options", [SolveOptions(), FIRST_FIT], ids=["value", "first-fit"]
)

TRIED = ALL_FEATURES - {
    ProblemFeature.BOUNDS, ProblemFeature.MIN_VALUES, ProblemFeature.OVERRIDES, ProblemFeature.RESERVED, ProblemFeature.UNDECIDED,
}  # fmt: skip
"""Constraints that the verifier checks."""
LIFTED = ALL_FEATURES - {ProblemFeature.OVERRIDES}

OF_THE_POD = "exclude each other"
OF_THE_POOL = "filtered out all"
UNCERTAIN = ("perhaps", "may later be", "not known yet")
"""The scheduler keeps away from what may be; the judge knows what has become of it."""


@both_packings
@pytest.mark.parametrize("batch", others_as_cluster_runs(range(4)))
def test_the_reason_is_the_first_constraint_that_leaves_no_offering(batch, options):
    """Checked by trial, offering by offering."""
    for seed in _seeds(batch):
        _judge(seeded_problem(seed, TRIED), options, seed)


def _judge(asked, options, seed):
    asked = replace(asked, daemons=tuple(d for d in asked.daemons if _is_charged_by_type(d)))
    plan = solve(asked, options)
    trial = Trial(asked, plan)

    for pod, pool, reason in _reasons(asked, plan):
        is_special = any(text in reason.detail for text in (OF_THE_POD, OF_THE_POOL, *UNCERTAIN))
        if is_special or not _lists_its_labels(pool) or not trial.is_open(pod, pool):
            continue
        named, result = reason.constraint.value, trial.names(pod, pool)
        # The judge charges limits with the largest nodes that claims may ever have been.
        if "limit" in result and ORDER.index(named) > ORDER.index("limit"):
            continue
        if named not in result:
            result = Trial(asked, plan, cautious=False).names(pod, pool)
        assert named in result, (seed, pod.name, pool.name, reason)


@both_packings
@pytest.mark.parametrize("batch", others_as_cluster_runs(range(4)))
def test_a_pod_without_the_constraint_that_is_named_is_placed_or_has_another_reason(batch, options):
    """In the same pool, with nothing else changed."""
    for seed in _seeds(batch):
        _lift(seeded_problem(seed, LIFTED), options, seed)


def _lift(asked, options, seed):
    plan = solve(asked, options)
    for pod, pool, reason in _reasons(asked, plan):
        if OF_THE_POD in reason.detail and reason.constraint is not PoolConstraint.REQUIREMENT:
            continue
        again = solve(*_without(reason.constraint, asked, options, pod, pool))
        left = again.unschedulable.get(pod.uid)
        assert left is None or left.pools[pool.name] != reason, (
            seed,
            pod.name,
            pool.name,
            reason,
        )


@both_packings
def test_every_pool_has_a_reason_for_every_pending_pod(options):
    """From the closed list, in words; nothing is said of a pass that came to its end too early."""
    for seed in range(2 * EXAMPLES):
        asked = seeded_problem(seed)
        for why in solve(asked, options).unschedulable.values():
            assert set(why.pools) == {pool.name for pool in asked.pools}
            for reason in why.pools.values():
                assert reason.constraint in PoolConstraint
                assert reason.detail
                assert "tried again" not in reason.detail


@pytest.mark.parametrize("seed", range(608, 616))
def test_a_limit_on_nodes_that_is_named_is_reached(seed):
    """By existing or planned nodes, not by unneeded claims."""
    asked = seeded_problem(seed, LIFTED)
    plan = solve(asked)
    for _, pool, reason in _reasons(asked, plan):
        if "(nodes: " in reason.detail:
            used = asked.pool_usage[pool.name].get("nodes", 0)
            used += sum(claim.pool == pool.name for claim in plan.claims)
            assert used >= int(pool.spec.limits["nodes"].raw)


def _seeds(batch):
    """Return the seeds of one of four batches."""
    return range(batch, EXAMPLES, 4)


# -- which reasons are looked at ---------------------------------------------------------------------


def _reasons(asked, plan):
    """Yield one pod for each reason that differs, with the pool and the reason."""
    pods = {pod.uid: pod for pod in asked.pods}
    pools = {pool.name: pool for pool in asked.pools}
    seen = set()
    for uid, why in plan.unschedulable.items():
        for name, reason in why.pools.items():
            if (id(pods[uid].shape), name, reason) not in seen:
                seen.add((id(pods[uid].shape), name, reason))
                yield pods[uid], pools[name], reason


def _is_charged_by_type(daemon):
    """Return whether a node has the daemon for all open label values alike."""
    return not daemon.shape.node_selector.keys() & {ZONE, TEAM}


def _lists_its_labels(pool):
    return all(
        spec.operator == "In" or not spec.key.startswith("example.com/")
        for spec in pool.spec.template.spec.requirements
    )


# -- lifting a constraint ------------------------------------------------------------------------------


def _without(constraint, asked, options, pod, pool):  # noqa: C901 - one for each constraint
    """Return problem and options without a constraint of a pod and a pool."""
    match constraint:
        case PoolConstraint.TAINT:
            return _with_pool(asked, pool, taints=()), options
        case PoolConstraint.REQUIREMENT:
            lifted = _with_pool(asked, pool, requirements=())
            return _with_shape(lifted, pod, node_selector={}, required_node_terms=()), options
        case PoolConstraint.RESOURCE:
            return _with_shape(asked, pod, requests={}), options
        case PoolConstraint.PORT:
            return _with_shape(asked, pod, host_ports=()), options
        case PoolConstraint.VOLUME:
            volumes = {uid: asked.volumes[uid] for uid in asked.volumes if uid != pod.uid}
            return replace(asked, volumes=volumes), options
        case PoolConstraint.TOPOLOGY:
            return _with_shape(asked, pod, topology_spread=()), options
        case PoolConstraint.AFFINITY:
            return _without_affinity(asked), options
        case PoolConstraint.LIMIT:
            spec = pool.spec.model_copy(update={"limits": {}})
            return _with_pools(asked, pool, pool.model_copy(update={"spec": spec})), options
        case PoolConstraint.MIN_VALUES:
            return asked, replace(options, min_values=MinValuesPolicy.BEST_EFFORT)
        case PoolConstraint.RESERVATION:
            return asked, replace(options, reserved_capacity=False)
        case PoolConstraint.OFFERING:
            return _sold_everywhere(asked, pool), options
        case PoolConstraint.DAEMON:
            return replace(asked, daemons=()), options


def _with_shape(asked, pod, **changes):
    """Return the problem with another shape of one pod."""
    changed = replaced(pod, shape=replaced(pod.shape, **changes))
    pods = tuple(changed if other.uid == pod.uid else other for other in asked.pods)
    return replace(asked, pods=pods)


def _without_affinity(asked):
    """Return the problem without a pod that minds which others are beside it."""
    none = {"pod_affinity": (), "pod_anti_affinity": ()}

    def free(pods):
        return tuple(replaced(p, shape=replaced(p.shape, **none)) for p in pods)

    nodes = tuple(replace(node, pods=free(node.pods)) for node in asked.nodes)
    return replace(asked, pods=free(asked.pods), nodes=nodes)


def _with_pool(asked, pool, **changes):
    """Return the problem with another template of one pool."""
    template = pool.spec.template
    inner = template.spec.model_copy(update=changes)
    spec = pool.spec.model_copy(update={"template": template.model_copy(update={"spec": inner})})
    return _with_pools(asked, pool, pool.model_copy(update={"spec": spec}))


def _with_pools(asked, pool, changed):
    return replace(asked, pools=tuple(changed if p is pool else p for p in asked.pools))


def _sold_everywhere(asked, pool):
    """Return the problem with every type of a pool on sale in every zone, as everything."""
    kept = asked.catalogues[pool.name]
    types = tuple(_on_sale(one) for one in kept.instance_types)
    changed = replace(kept, version=f"{kept.version} everywhere", instance_types=types)
    return replace(asked, catalogues={**asked.catalogues, pool.name: changed})


def _on_sale(instance_type):
    offerings = [offering(zone, kind, 1.0) for zone in ZONES for kind in (ON_DEMAND, SPOT)]
    anywhere = (
        Requirement.of(ZONE, "In", ZONES),
        Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND, SPOT, RESERVED)),
    )
    known = {r.key: r for r in instance_type.requirements.values()}
    requirements = Requirements([*({**known, **{r.key: r for r in anywhere}}).values()])
    return replace(instance_type, offerings=tuple(offerings), requirements=requirements)
