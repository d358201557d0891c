"""The lifecycle steps of all objects of drawn clusters are those that are recorded.

Nothing says that they are right: other tests do. These say which of them a change changes: patches,
conditions, Events, metrics and advice, for claims, nodes, pods and NodePools in every odd state.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import msgspec
import pytest

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeConditionView
from karpenter_core.errors import (
    BadInputError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    QuotaGroup,
)
from karpenter_core.lifecycle.capacity_buffer.declaration import buffer_declarations
from karpenter_core.lifecycle.capacity_quota.status import limit_notice, quota_status
from karpenter_core.lifecycle.changes import metadata_patch, status_patch
from karpenter_core.lifecycle.claim_status import with_conditions
from karpenter_core.lifecycle.node.detachment import pending_attachments
from karpenter_core.lifecycle.node.drain import drain_wave
from karpenter_core.lifecycle.node.eviction import disrupted_notice, drain_reason, eviction_advice
from karpenter_core.lifecycle.node.interruption import interruption_step, unclaimed_shortage
from karpenter_core.lifecycle.node.out_of_service import (
    OUT_OF_SERVICE,
    held_volumes,
    out_of_service_patch,
)
from karpenter_core.lifecycle.node.repair import repair
from karpenter_core.lifecycle.node.surge_move import early_refusal
from karpenter_core.lifecycle.node.termination import (
    DISRUPTED_NO_SCHEDULE,
    InstanceState,
    disrupted_patch,
    node_termination,
    undisrupted_patch,
)
from karpenter_core.lifecycle.nodeclaim.consistency import consistency_step
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_step
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.lifecycle.nodeclaim.drift import local_drift, with_drift
from karpenter_core.lifecycle.nodeclaim.expiration import expiration_step
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    blocking_pods,
    claims_with_stopped_instance,
    claims_without_instance,
    orphaned_instances,
    surplus_instances,
    surplus_notice,
)
from karpenter_core.lifecycle.nodeclaim.hydration import hydration_step
from karpenter_core.lifecycle.nodeclaim.launch import finalizer_step, launch_advice, launch_failed
from karpenter_core.lifecycle.nodeclaim.liveness import initialization_timeout_step
from karpenter_core.lifecycle.nodeclaim.lost_nodes import (
    are_too_many_lost,
    has_lost_its_node,
    node_lost_step,
)
from karpenter_core.lifecycle.nodeclaim.nomination import choose_nominations, planned_pods
from karpenter_core.lifecycle.nodeclaim.pod_event_time import pod_event_step
from karpenter_core.lifecycle.nodeclaim.progress import progress_step
from karpenter_core.lifecycle.nodeclaim.refused_nodes import refused_nodes, refused_notices
from karpenter_core.lifecycle.nodeclaim.termination import claim_termination, finished_step
from karpenter_core.lifecycle.nodepool.failing_passes import with_failing_passes
from karpenter_core.lifecycle.nodepool.hashing import node_pool_hash, with_current_hash, with_hash
from karpenter_core.lifecycle.nodepool.launches_held_back import with_launches_held_back
from karpenter_core.lifecycle.nodepool.open_windows import schedule_notices, with_open_windows
from karpenter_core.lifecycle.nodepool.pool_usage import with_usage
from karpenter_core.lifecycle.nodepool.static_capacity import (
    replicas_notices,
    replicas_problem,
    with_replicas_conditions,
)
from karpenter_core.lifecycle.nodepool.status import node_pool_status_patch
from karpenter_core.lifecycle.nodepool.validation import validate_node_pool, with_validation
from karpenter_core.lifecycle.provisioning_request.next_step import next_step, orphaned_claims
from karpenter_core.lifecycle.provisioning_request.notices import notices_of_change
from karpenter_core.lifecycle.provisioning_request.status import status_patch as request_patch
from karpenter_core.provider.contract import Interruption
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.bookings import bookings
from karpenter_core.state.capacity_quotas import quota_usage, read_quota
from karpenter_core.state.gang_places import claims_by_request
from karpenter_core.state.node_pool_usage import PoolStatusSums
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import KWOK
from tests.lifecycle.node.test_repair import Policy
from tests.lifecycle.nodeclaim.test_garbage_collection import Instance
from tests.support.canonical_text import canonical_text
from tests.support.recorded_digests import assert_digests
from tests.support.run_selection import telling_first
from tests.support.wide_clusters import WideCluster

RECORDED = Path(__file__).with_name("recorded_steps.json")
BATCHES = 20
TELLING = (3, 2, 15, 1, 6, 13, 16, 11, 8, 7)
"""Batches that run all but 7 of 939 blocks of code that all run together; `cluster_runs` have the others."""
CLUSTERS = 40
STEPS = 4
AGES = tuple(
    timedelta(seconds=each)
    for each in (15, 30, 60, 120, 300, 360, 600, 900, 1200, 1800, 3600, 86400)
)
"""Among them are most of the limits of time that the steps have."""
SHORTAGES = (
    InsufficientCapacityError("none left"),
    *(
        InsufficientCapacityError(
            "none left",
            offerings=[OfferingKey(instance_type="c04", zone="zone-a", capacity_type="spot")],
            scope=scope,
            quota_groups=groups,
        )
        for scope in ExhaustedScope
        for groups in ((), (QuotaGroup(zone="zone-b", capacity_type="spot"),))
    ),
)
POLICIES = (
    Policy("Ready", "False", timedelta(minutes=10)),
    Policy("Ready", "Unknown", timedelta(minutes=30)),
    Policy("MemoryPressure", "True", timedelta(minutes=1)),
)


def change_text(claim, new):
    """Return what changes in a claim."""
    return canonical_text((metadata_patch(claim, new), status_patch(claim, new)))


def result_text(claim, result):
    """Return the result of a step; a changed claim as its patches."""
    if isinstance(result, NodeClaim):
        return change_text(claim, result)
    text = canonical_text(result)
    new = getattr(result, "claim", None)
    return f"{text} {change_text(claim, new)}" if isinstance(new, NodeClaim) else text


def exact_time(random):
    """Return a time at which something that began with the cluster is exactly so old."""
    return EPOCH + random.choice(AGES)


def random_claim(random, claim, now):
    """Return a claim with another age of its conditions, at times one that is being deleted."""
    conditions = tuple(
        each.model_copy(update={"last_transition_time": EPOCH}) for each in claim.status.conditions
    )
    changed = with_conditions(claim, conditions)
    if random.random() < 0.5:
        changes = {"deletion_timestamp": EPOCH, "creation_timestamp": EPOCH - timedelta(hours=2)}
        changed = changed.model_copy(
            update={"metadata": changed.metadata.model_copy(update=changes)}
        )
    return changed


def ending_node(random, node):
    """Return a node that is being deleted by us, and may not be ready."""
    ready = NodeConditionView(
        type="Ready",
        status=random.choice(("True", "False", "Unknown")),
        last_transition_time=EPOCH,
    )
    others = tuple(each for each in node.conditions if each.type != "Ready")
    return msgspec.structs.replace(
        node,
        deletion_timestamp=EPOCH,
        finalizers=(TERMINATION_FINALIZER,),
        conditions=(ready, *others),
        taints=random.choice(
            (
                node.taints,
                (msgspec.structs.replace(OUT_OF_SERVICE, time_added="2026-01-01T00:00:00Z"),),
                (msgspec.structs.replace(OUT_OF_SERVICE, time_added="x"), DISRUPTED_NO_SCHEDULE),
            )
        ),
    )


def claim_results(random, snapshot, claim, now):
    """Yield the results of all steps of a claim."""
    nodes = snapshot.nodes_of(claim)
    pool = snapshot.node_pools.get(claim.metadata.labels.get("karpenter.sh/nodepool", ""))
    state_node = snapshot.state_nodes_by_claim.get(claim.name)
    pods = () if state_node is None else state_node.pods
    refused = refused_nodes(claim, snapshot)
    planned = tuple(
        each
        for node in ("", *(node.name for node in nodes))
        for each in planned_pods(snapshot, claim=claim.name, node=node)
    )
    yield refused, refused_notices(claim, refused), planned
    yield progress_step(
        claim, nodes, now=now, refused=refused, pending=(), gate_error=None,
        slices=random.choice((None, ())), planned=planned,
    )  # fmt: skip
    yield finalizer_step(claim), launch_advice(claim, snapshot.ledger)
    yield hydration_step(claim, nodes)
    yield consistency_step(claim, nodes, now=now)
    yield consolidatable_step(claim, pool, now=now)
    yield pod_event_step(claim, pool, now=now)
    yield expiration_step(claim, pods, now=now, paused=random.random() < 0.2)
    yield initialization_timeout_step(
        claim, nodes, now=now, timeout=timedelta(minutes=15), paused=random.random() < 0.2
    )
    yield claim_termination(claim, nodes, snapshot.ledger, now=now)
    yield finished_step(claim, now=now)
    yield has_lost_its_node(claim, snapshot), node_lost_step(claim)
    yield disrupted_metrics(snapshot, claim, "Drifted")
    if pool is not None:
        catalogue = snapshot.catalogues.get(pool.name)
        types = (
            None if catalogue is None else {each.name: each for each in catalogue.instance_types}
        )
        drift = local_drift(claim, pool, types, now=now, found_at=random.choice((None, EPOCH, now)))
        yield drift
        yield with_drift(claim, drift, random.choice((None, "", "ImageDrift")), now=now)
        yield with_current_hash(claim, pool)
        for error in (LaunchFailedError("no permission", reason="Unauthorized"), *SHORTAGES):
            yield launch_failed(
                claim, error, now=now,
                instance_types=() if catalogue is None else catalogue.instance_types,
            )  # fmt: skip
    yield interruption_step(
        snapshot,
        claim,
        Interruption(
            id="1",
            kind=random.choice(tuple(InterruptionKind)),
            deadline=random.choice((None, now, now + timedelta(minutes=2))),
            error=random.choice((None, *SHORTAGES)),
        ),
        now=now,
        act_on_rebalance=random.random() < 0.5,
    )
    failed = Interruption(
        id="2", kind=InterruptionKind.LAUNCH_FAILED, error=random.choice(SHORTAGES)
    )
    yield unclaimed_shortage(failed)


def node_results(random, snapshot, node, now):
    """Yield the results of all steps of a node and its pods."""
    pods = snapshot.pods_by_node.get(node.name, ())
    deadline = random.choice((None, now, now + timedelta(minutes=1)))
    yield disrupted_patch(node), undisrupted_patch(node), out_of_service_patch(node, now)
    try:
        yield node_termination(
            snapshot,
            node,
            now=now,
            instance=random.choice(tuple(InstanceState)),
            out_of_service=random.random() < 0.5,
        )
    except BadInputError as error:
        yield str(error)
    yield repair(snapshot, node, POLICIES, now=now)
    yield held_volumes(snapshot, node, pods, now)
    yield pending_attachments(snapshot, node, staying_pods=pods[:1])
    yield drain_wave(pods, deadline=deadline, now=now)
    yield blocking_pods(pods, now, snapshot.ledger)
    yield drain_reason(node, next(iter(snapshot.claims_of(node)), None))
    for pod in pods:
        yield eviction_advice(pod, uid=pod.uid, deadline=deadline, now=now)
        yield early_refusal(pod, deadline=deadline, now=now)
        if deadline is not None:
            yield disrupted_notice(pod, deadline, 30)


def pool_results(snapshot, pool, now):
    """Yield the results of all steps of a NodePool; a changed pool as its patch."""
    problem = replicas_problem(
        snapshot,
        pool,
        static_capacity=now.second % 2 == 0,
        aliases={},
        well_known=frozenset(),
        solve=SolveOptions(),
    )
    checked = with_validation(pool, now=now, rules=None)
    for changed in (
        checked,
        with_usage(pool, snapshot, PoolStatusSums({"USD": 1.0})),
        with_replicas_conditions(pool, problem, now=now),
        with_open_windows(pool, snapshot.pool_schedules.get(pool.name), now=now),
        with_failing_passes(pool, "a node", now=now),
        with_launches_held_back(
            pool, snapshot.ledger.launch_pauses.get(pool.metadata.uid), now=now
        ),
    ):
        yield node_pool_status_patch(pool, changed)
        yield replicas_notices(changed), schedule_notices(changed)
    yield validate_node_pool(pool, rules=None), node_pool_hash(pool)
    yield with_hash(pool).metadata.annotations


def cluster_results(random, snapshot, now):
    """Yield the results of the passes over a whole cluster."""
    instances = []
    for number, claim in enumerate(snapshot.node_claims.values()):
        if random.random() < 0.7:
            instances.append(
                Instance(
                    claim.status.provider_id or f"kwok://of-{claim.name}",
                    node_claim=claim.name,
                    token=random.choice((claim.metadata.uid, "")),
                    created=random.choice((EPOCH, now, None)),
                    terminating=random.random() < 0.2,
                )
            )
        if random.random() < 0.3:
            instances.append(
                Instance(f"kwok://extra-{number}", random.choice((claim.name, "")), created=EPOCH)
            )
    stopped = claims_with_stopped_instance(snapshot)
    missing = {each.provider_id: EPOCH for each in instances}
    uids = {claim.metadata.uid for claim in snapshot.node_claims.values()}
    yield stopped
    yield claims_without_instance(
        snapshot, instances, complete=random.random() < 0.8,
        served_kinds={(KWOK.group, KWOK.kind)}, as_of=random.choice((None, EPOCH, now)), stopped=stopped,
    )  # fmt: skip
    yield orphaned_instances(
        snapshot, instances, complete=random.random() < 0.8, now=now, missing_since=missing
    )
    surplus = surplus_instances(
        snapshot, instances, known_uids=uids, now=now, missing_since=missing
    )
    yield surplus, [surplus_notice(each, instances, snapshot) for each in surplus]
    yield are_too_many_lost(snapshot, before=random.choice((None, frozenset())))
    places = [
        (pod, node.name)
        for pod in snapshot.pending_pods.values()
        for node in snapshot.state_nodes[:2]
    ]
    yield choose_nominations(snapshot, places)
    yield buffer_declarations(snapshot)
    booked = {booking.request.uid: booking for booking in bookings(snapshot)}
    claims_of = claims_by_request(snapshot)
    yield orphaned_claims(snapshot, claims_of)
    for asked in snapshot.provisioning_requests.values():
        step = next_step(
            snapshot, asked, claims_of.get(asked.uid, ()), booked.get(asked.uid), now=now
        )
        yield step, request_patch(asked, step.request), notices_of_change(asked, step.request)
    for quota in snapshot.capacity_quotas.values():
        reading = read_quota(quota)
        used = quota_usage(snapshot, reading, {"USD": 1.0}, well_known=frozenset(), aliases={})
        yield quota_status(quota, reading, used, now=now)
        yield limit_notice(quota, reading, used, tuple(reading.limits))


def texts_of(seed):
    """Return the texts of a cluster after each step."""
    random = Random(f"steps {seed}")
    changing = WideCluster(random, drifted=0.2)
    for _ in range(STEPS):
        changing.change()
        snapshot, now = changing.snapshot, changing.now
        for claim in snapshot.node_claims.values():
            for asked, at in ((claim, now), (random_claim(random, claim, now), exact_time(random))):
                for result in claim_results(random, snapshot, asked, at):
                    yield result_text(asked, result)
        for node in snapshot.nodes.values():
            for asked, at in ((node, now), (ending_node(random, node), exact_time(random))):
                yield from map(canonical_text, node_results(random, snapshot, asked, at))
        for pool in snapshot.node_pools.values():
            yield from map(canonical_text, pool_results(snapshot, pool, now))
        yield from map(canonical_text, cluster_results(random, snapshot, now))


@pytest.mark.recorded
@pytest.mark.parametrize("batch", telling_first(BATCHES, TELLING))
def test_steps_are_the_recorded_ones(batch):
    texts = {
        f"steps-{seed:03}": "\n".join(texts_of(seed)) for seed in range(batch, CLUSTERS, BATCHES)
    }
    assert_digests(texts, RECORDED)
