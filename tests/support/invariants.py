"""Invariants of a cluster: at every moment, and once it is quiet.

`Invariants` listens to every write of the embedded cluster and notes each breach with its time:

- an instance is ended, or its Node vanishes, only after the pods that must be drained were evicted
  and have gone, unless a deadline that the user set has passed or the cloud took the instance;
- no instance is without a claim for more than twenty minutes;
- a pod is deleted past its disruption budget only for such a deadline;
- no command disrupts more nodes of a NodePool than its budgets allow;
- no node takes a NodePool beyond its limits, as its windows of time have them; those that are being
  replaced do not count;
- no claim takes a static NodePool beyond its replicas, as its windows have them;
- no claim gets a second instance;
- no decision about an object fails by an error of the code;
- no claim is given up for being late before its time, whatever the controller's clock shows.

`quiet_violations` says what is wrong with a cluster that nothing happens to any more,
`replicas_violations` and `buffer_violations` which static NodePools and CapacityBuffers lack capacity.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.judgements import JUDGEMENT_FAILED
from karpenter_core.api.labels import DISRUPTED_TAINT, NODE_POOL, SCHEDULES
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.provisioning_request import GANG_ATTEMPT, GANG_UID
from karpenter_core.api.quantities import Quantity, parse_resources
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.kube.resources import EVENTS, NODES, POD_TEMPLATES, PODS
from karpenter_core.kube.wire.codecs import (
    CAPACITY_BUFFERS,
    NODE_CLAIMS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
)
from karpenter_core.sim.budgets import scaled
from karpenter_core.sim.registry import parse_time
from karpenter_core.sim.store import DELETED
from karpenter_core.state.pool_schedules import evaluate_schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePoolSpec
    from karpenter_core.clock import Clock
    from karpenter_core.kube.writer import WriteAttempt
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.store import ObjectChange
    from karpenter_core.testing.expectations import CloudAccount
    from karpenter_core.testing.harness import ControllerHarness

__all__ = ["Invariants", "buffer_violations", "quiet_violations", "replicas_violations"]

LAG: Final = timedelta(seconds=90)
"""Largest age of a decision's input: a pass, the wait before validation, the writes."""
MEMORY: Final = timedelta(hours=3)
"""Time for which earlier NodePools are kept: longer than any watch is frozen."""
LEAST_WAIT: Final = timedelta(minutes=10)
"""The time that a launched claim is given at least; less than any limit or lifetime in a history."""
UNCLAIMED_SECONDS: Final = 1200.0
"""The longest time without a claim for an instance: two rounds of garbage collection, and more."""
STUCK_AFTER: Final = timedelta(minutes=1)
"""A pod whose deletion hangs for so long past its grace period holds its node no more."""
REASON: Final = "DisruptionReason"
TERMINAL: Final = frozenset({"Succeeded", "Failed"})
NODES_LIMIT: Final = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PastPool:
    """A NodePool as it was at some time, and how many nodes it had."""

    at: datetime
    spec: Json
    claims: int
    schedules: str | None = None


@final
class Invariants:
    """Watches a cluster from now on; `breaches` describes each breach."""

    def __init__(self, harness: ControllerHarness) -> None:
        self._harness: Final = harness
        self._clock: Final = harness.cluster.clock
        self.controller_clock: Clock = harness.cluster.clock
        """The clock of the controller, which decides on windows of time."""
        self._leads: Final[list[tuple[datetime, timedelta]]] = []
        """Times at which that clock was seen to be ahead of the cluster's, and by how much."""
        self.blind_since: datetime | None = None
        """Since when the controller may not see what changes."""
        self._unclaimed: dict[str, float] = {}
        """By provider ID, since when no claim has it."""
        self.breaches: Final[list[str]] = []
        self._pools: Final[dict[str, list[_PastPool]]] = defaultdict(list)
        self._limits: Final[dict[str, dict[str, int]]] = {}
        """By the UID of a claim, what its pool might have when it was ordered."""
        self._marked: Final[dict[str, datetime]] = {}
        """By the UID of a claim, until when it was known to bear the reason of a disruption."""
        self._taken: Final[set[str]] = set()
        self._nodes_deleted_by_us: Final[set[str]] = set()
        """Names of the Nodes that the controller has deleted."""
        self._removed_by_others: Final[set[str]] = set()
        """Provider IDs of the Nodes that others have deleted and that are gone."""
        for kind, listener in (
            (NODE_POOLS, self._note_pool),
            (NODE_CLAIMS, self._note_claim),
            (NODES, self._note_node),
            (EVENTS, self._note_event),
        ):
            cluster = harness.workload if kind is NODES else harness.cluster
            cluster.server.registry.store.listen(kind, listener)

    def excuse(self, provider_id: str) -> None:
        """Record that an instance may end by other causes: the cloud or a user ends it."""
        self._taken.add(provider_id)

    def note_instances(self, provider_ids: Iterable[str], *, blind_seconds: float = 0.0) -> None:
        """Check the instances that the cloud has now.

        `blind_seconds` of the time since the last check the controller could not see the cluster,
        and had to leave instances alone: they do not count.
        """
        claimed = {claim.get("status", {}).get("providerID") for claim in self._harness.claims()}
        now = self._clock.monotonic()
        self._unclaimed = {
            each: self._unclaimed.get(each, now - blind_seconds) + blind_seconds
            for each in provider_ids
            if each not in claimed
        }
        for provider_id, since in self._unclaimed.items():
            if now - since > UNCLAIMED_SECONDS:
                self._breach(f"for too long: instance {provider_id} without claim")
                self._unclaimed[provider_id] = float("inf")

    def note_terminate(self, provider_ids: Iterable[str]) -> None:
        """Check a call that terminates instances, before it is carried out."""
        for provider_id in provider_ids:
            node = next(
                (n for n in self._harness.nodes() if n["spec"].get("providerID") == provider_id),
                None,
            )
            if node is not None:
                self._note_loss(node, "instance ended")

    async def note_write(self, op: WriteAttempt) -> None:
        """Check a write of the controller before it is sent; pass it as, or within, `faults`."""
        if op.verb != "delete" or op.stage != "request":
            return
        if op.kind is NODE_CLAIMS:
            self._note_given_up(self._harness.cluster.find(NODE_CLAIMS, op.name))
        if op.kind is NODES:
            self._nodes_deleted_by_us.add(op.name)
        if op.kind is not PODS:
            return
        pod = self._harness.workload.find(PODS, op.name, namespace=op.namespace)
        node = self._node_of(pod) if pod is not None else None
        if pod is None or node is None or node["spec"].get("providerID", "") in self._taken:
            return
        if not self._is_forced(node, pod):
            self._breach(f"pod {op.name} deleted before the deadline of {_name(node)}")

    # -- what the store tells ----------------------------------------------------------------------

    def _note_event(self, change: ObjectChange) -> None:
        event = change.stored.obj
        if change.type != DELETED and event["reason"] == JUDGEMENT_FAILED:
            self._breach(f"judgement failed: {event['message']}")

    def _note_pool(self, change: ObjectChange) -> None:
        if change.type != DELETED:
            self._remember(change.stored.key[1], change.stored.obj)

    def _note_claim(self, change: ObjectChange) -> None:
        claim, before = change.stored.obj, change.previous
        uid, pool = change.stored.uid, _pool_of(claim)
        if before is None or change.type == DELETED:
            if before is None:
                self._limits[uid] = self._most_allowed(pool)
                self._check_replicas(claim)
            current = self._harness.cluster.find(NODE_POOLS, pool)
            if current is not None:
                self._remember(pool, current)
        if before is not None and _condition(before.obj, REASON) is not None:
            self._marked[uid] = self._clock.now()
        if before is not None and not _is_disrupted(before.obj) and _is_disrupted(claim):
            self._check_budget(claim)
        is_new = before is None or not _capacity(before.obj)
        if change.type != DELETED and is_new and _capacity(claim):
            self._check_limits(claim)

    def _note_node(self, change: ObjectChange) -> None:
        node = change.stored.obj
        if change.type != DELETED:
            return
        if _name(node) not in self._nodes_deleted_by_us:
            self._removed_by_others.add(node["spec"].get("providerID", ""))
        if NODE_POOL in _labels(node):
            self._note_loss(node, "Node removed")

    # -- rules -------------------------------------------------------------------------------------

    def _note_loss(self, node: Json, what: str) -> None:
        if node["spec"].get("providerID", "") in self._taken:
            return
        for pod in self._harness.pods():
            if (
                pod["spec"].get("nodeName") == _name(node)
                and _must_be_drained(pod, self._clock.now())
                and not self._is_forced(node, pod)
            ):
                evicted = "" if "deletionTimestamp" in pod["metadata"] else " and was not evicted"
                self._breach(f"{what}: {_name(node)}, while pod {_name(pod)} runs there{evicted}")

    def _note_given_up(self, claim: Json | None) -> None:
        """Check a claim that the controller deletes: a starting one must not be late yet.

        Users who delete its Node may end it, even before the claim shows that the Node is registered;
        so may those who lower the replicas of its pool. An attempt for a ProvisioningRequest ends
        with all of its claims.
        """
        if (
            claim is None
            or "deletionTimestamp" in claim["metadata"]
            or (_condition(claim, "Launched") or {}).get("status") != "True"
            or (_condition(claim, "Registered") or {}).get("status") == "True"
            or claim["status"].get("providerID", "") in self._taken
            or self._is_node_deleted_by_others(claim["status"].get("providerID", ""))
            or self._is_surplus(claim)
            or is_of_ended_attempt(self._harness, claim)
        ):
            return
        created = parse_time(claim["metadata"]["creationTimestamp"])
        age = self._clock.now() - created
        if age < LEAST_WAIT:
            self._breach(
                f"claim {_name(claim)} given up {age.total_seconds():.0f} s after creation"
            )

    def _is_surplus(self, claim: Json) -> bool:
        """Whether a static pool has more claims than replicas without those being replaced."""
        pool = _pool_of(claim)
        replicas = [spec.replicas for spec in self._specs_lately(pool) if spec.replicas is not None]
        kept = sum(
            _pool_of(each) == pool
            and "deletionTimestamp" not in each["metadata"]
            and _condition(each, REASON) is None
            for each in self._harness.claims()
        )
        return bool(replicas) and kept > min(replicas)

    def _is_node_deleted_by_others(self, provider_id: str) -> bool:
        nodes = [n for n in self._harness.nodes() if n["spec"].get("providerID") == provider_id]
        if not nodes:
            return provider_id in self._removed_by_others
        return any(
            "deletionTimestamp" in node["metadata"] and _name(node) not in self._nodes_deleted_by_us
            for node in nodes
        )

    def _is_forced(self, node: Json, pod: Json) -> bool:
        """Whether the node's claim has a deadline, and it is so near that the pod has to go."""
        claim = self._claim_of(node)
        if claim is None:
            return False
        since = claim["metadata"].get("deletionTimestamp")
        period = claim["spec"].get("terminationGracePeriod")
        if since is None or period is None:
            return False
        grace = timedelta(seconds=pod["spec"].get("terminationGracePeriodSeconds", 30))
        return self._clock.now() >= parse_time(since) + parse_duration(period) - grace

    def _check_budget(self, claim: Json) -> None:
        reason = (_condition(claim, REASON) or {}).get("reason", "")
        pool = _pool_of(claim)
        nodes = {_name(node) for node in self._harness.nodes()}
        busy = sum(
            _pool_of(each) == pool and _is_disrupted(each) and not _has_lost(each, nodes)
            for each in self._harness.claims()
        )
        history = self._lately(pool)
        allowed = max((_allowed(then, reason) for then in history), default=0)
        if busy > allowed:
            self._breach(
                f"{busy} nodes of {pool} disrupted, {allowed} allowed ({reason} of {_name(claim)})"
            )

    def _check_limits(self, claim: Json) -> None:
        limits = self._limits.get(claim["metadata"]["uid"], {})
        if not limits:
            return
        used: dict[str, int] = defaultdict(int)
        for each in self._counted_with(claim):
            used[NODES_LIMIT] += 1
            requests = parse_resources(each["spec"].get("resources", {}).get("requests") or {})
            for name, amount in (_capacity(each) or requests).items():
                used[name] += amount
        for name, limit in limits.items():
            if used[name] > limit:
                self._breach(
                    f"{_pool_of(claim)} uses {used[name]} of {name}, its limit is {limit}: "
                    f"{_name(claim)}"
                )

    def _counted_with(self, claim: Json) -> Iterator[Json]:
        """Yield the claims of the same pool, up to this one, that no command is replacing."""
        created = parse_time(claim["metadata"]["creationTimestamp"])
        for each in self._harness.claims():
            metadata = each["metadata"]
            if (
                _pool_of(each) == _pool_of(claim)
                and parse_time(metadata["creationTimestamp"]) <= created
                and "deletionTimestamp" not in metadata
                and _condition(each, REASON) is None
                and self._marked.get(metadata["uid"], created - LAG) <= created - LAG
            ):
                yield each

    def _check_replicas(self, claim: Json) -> None:
        """Check a new claim of a static pool; of replicas that changed a moment ago the higher hold."""
        pool = _pool_of(claim)
        replicas = [spec.replicas for spec in self._specs_lately(pool)]
        if not replicas or None in replicas:
            return
        most = max(number for number in replicas if number is not None)
        count = sum(1 for _ in self._counted_with(claim))
        if count > most:
            self._breach(f"{pool} has {count} claims and {most} replicas: {_name(claim)}")

    # -- memory ------------------------------------------------------------------------------------

    def _remember(self, pool: str, obj: Json) -> None:
        count = sum(_pool_of(each) == pool for each in self._harness.claims())
        history = self._pools[pool]
        history.append(
            _PastPool(
                at=self._clock.now(),
                spec=obj["spec"],
                claims=count,
                schedules=(obj["metadata"].get("annotations") or {}).get(SCHEDULES),
            )
        )
        while len(history) > 1 and history[1].at < self._clock.now() - MEMORY:
            del history[0]

    def _lately(self, pool: str) -> list[_PastPool]:
        history = self._pools[pool]
        since = (self.blind_since or self._clock.now()) - LAG
        recent = [then for then in history if then.at >= since]
        before = [then for then in history if then.at < since]
        return [*before[-1:], *recent]

    def _most_allowed(self, pool: str) -> dict[str, int]:
        """Return the limits of a pool; of those edited a moment ago the higher."""
        history = [parse_resources(spec.limits) for spec in self._specs_lately(pool)]
        return {
            name: max(limits[name] for limits in history)
            for name in (history[0] if history else ())
            if all(name in limits for limits in history)
        }

    def _specs_lately(self, pool: str) -> Iterator[NodePoolSpec]:
        """Yield the spec of a pool as it was a moment ago and is now, with open windows.

        Windows are longer than the moment, so that its beginning and end show each of them.
        """
        since = (self.blind_since or self._clock.now()) - LAG
        lead = self.controller_clock.now() - self._clock.now()
        if not self._leads or self._leads[-1][1] != lead:
            self._leads.append((self._clock.now(), lead))
        # The controller corrects its clock by that of the API server, sooner or later.
        recent = {timedelta(), *(lead for at, lead in self._leads if at >= since)}
        before = [lead for at, lead in self._leads if at < since]
        instants = {
            at + each for at in (since, self._clock.now()) for each in {*recent, *before[-1:], lead}
        }
        for then in self._lately(pool):
            annotations = {} if then.schedules is None else {SCHEDULES: then.schedules}
            metadata = {"name": pool, "annotations": annotations}
            kept = NodePool.model_validate({"metadata": metadata, "spec": then.spec})
            for at in instants:
                effective, schedule = evaluate_schedule(kept, at)
                if schedule is not None and schedule.error:  # nothing may be launched
                    yield effective.spec.model_copy(update={"limits": {NODES_LIMIT: Quantity(0)}})
                else:
                    yield effective.spec

    def _node_of(self, pod: Json) -> Json | None:
        name = pod["spec"].get("nodeName", "")
        return self._harness.workload.find(NODES, name) if name else None

    def _claim_of(self, node: Json) -> Json | None:
        provider_id = node["spec"].get("providerID", "")
        for claim in self._harness.claims():
            if claim.get("status", {}).get("providerID") == provider_id:
                return claim
        return None

    def _breach(self, what: str) -> None:
        self.breaches.append(f"{self._clock.now():%H:%M:%S} {what}")


def quiet_violations(harness: ControllerHarness, cloud: CloudAccount) -> list[str]:
    """Return the errors of a cluster that has become quiet.

    Every pod runs, instances, claims and Nodes are one to one, and nothing bears the marks of an
    abandoned disruption.
    """
    return [
        *_waiting(harness.pods()),
        *_unpaired(harness, cloud),
        *_marks(harness),
        *(f"token {token} launched {n} times" for token, n in cloud.launches.items() if n != 1),
    ]


def replicas_violations(harness: ControllerHarness) -> list[str]:
    """Return the static NodePools that do not have their replicas."""
    found: list[str] = []
    for pool in harness.cluster.list(NODE_POOLS):
        replicas = pool["spec"].get("replicas")
        count = sum(_pool_of(claim) == _name(pool) for claim in harness.claims())
        if replicas is not None and count != replicas:
            found.append(f"{_name(pool)} has {count} claims and {replicas} replicas")
    return found


def buffer_violations(harness: ControllerHarness) -> list[str]:
    """Return the CapacityBuffers for whose pods the nodes have no room; each has pods of one shape."""
    found: list[str] = []
    for buffer in harness.cluster.list(CAPACITY_BUFFERS):
        reference = buffer["spec"]["podTemplateRef"]["name"]
        template = harness.workload.find(POD_TEMPLATES, reference, namespace="default")
        if template is None:
            continue
        asked = _requests(template["template"]["spec"])
        rooms = sum(
            min(room // asked[name] for name, room in _free(harness, node, asked).items())
            for node in harness.nodes()
            if "deletionTimestamp" not in node["metadata"]
            and not any(
                taint["key"] == DISRUPTED_TAINT for taint in node["spec"].get("taints") or ()
            )
        )
        if rooms < buffer["spec"]["replicas"]:
            found.append(
                f"{_name(buffer)} has room for {rooms} of {buffer['spec']['replicas']} pods"
            )
    return found


def request_violations(harness: ControllerHarness) -> list[str]:
    """Return the claims that an attempt has left, and the requests of which nothing is said."""
    unanswered = [
        f"request {_name(each)} has no condition Accepted or Failed"
        for each in harness.cluster.list(PROVISIONING_REQUESTS)
        if not (_condition(each, "Accepted") or _condition(each, "Failed"))
    ]
    left = [
        f"claim {_name(claim)} is of an attempt that has ended"
        for claim in harness.claims()
        if is_of_ended_attempt(harness, claim)
    ]
    return [*unanswered, *left]


def is_of_ended_attempt(harness: ControllerHarness, claim: Json) -> bool:
    """Tell whether a claim was created for a request, and no attempt with it runs any more."""
    annotations = claim["metadata"].get("annotations") or {}
    if GANG_ATTEMPT not in annotations:
        return False
    for request in harness.cluster.list(PROVISIONING_REQUESTS):
        if request["metadata"]["uid"] == annotations.get(GANG_UID):
            details = request.get("status", {}).get("provisioningClassDetails") or {}
            number = details.get("karpenter.sh/attempts")
            runs = "karpenter.sh/attempt-claims" in details
            return not runs or number != annotations[GANG_ATTEMPT]
    return True


def _free(harness: ControllerHarness, node: Json, names: Iterable[str]) -> dict[str, int]:
    """Return what the pods of a node leave of some resources."""
    free = parse_resources(node["status"]["allocatable"])
    for pod in harness.pods():
        is_there = pod["spec"].get("nodeName") == _name(node)
        if is_there and pod.get("status", {}).get("phase") not in TERMINAL:
            for name, amount in _requests(pod["spec"]).items():
                free[name] = free.get(name, 0) - amount
    return {name: free.get(name, 0) for name in names}


def _requests(spec: Json) -> dict[str, int]:
    """Return the requests of a pod's containers, and the pod itself."""
    total: dict[str, int] = {"pods": 1}
    for container in spec["containers"]:
        for name, amount in parse_resources(container["resources"]["requests"]).items():
            total[name] = total.get(name, 0) + amount
    return total


def _waiting(pods: Iterable[Json]) -> Iterator[str]:
    for pod in pods:
        phase = pod.get("status", {}).get("phase", "Pending")
        if phase != "Running" or "deletionTimestamp" in pod["metadata"]:
            yield f"pod {_name(pod)} is {phase} on {pod['spec'].get('nodeName') or 'no node'}"


def _unpaired(harness: ControllerHarness, cloud: CloudAccount) -> Iterator[str]:
    instances = sorted(str(each["providerID"]) for each in cloud.instances)
    claims = sorted(str(c.get("status", {}).get("providerID", "")) for c in harness.claims())
    ours = [node for node in harness.nodes() if NODE_POOL in _labels(node)]
    nodes = sorted(str(node["spec"].get("providerID", "")) for node in ours)
    if not instances == claims == nodes:
        yield f"not one to one: instances {instances}, claims {claims}, nodes {nodes}"


def _marks(harness: ControllerHarness) -> Iterator[str]:
    for node in harness.nodes():
        keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
        yield from (f"node {_name(node)} has taint {k}" for k in keys if k.startswith("karpenter."))
        if "deletionTimestamp" in node["metadata"]:
            yield f"node {_name(node)} is being deleted"
    for claim in harness.claims():
        if _condition(claim, REASON) is not None:
            yield f"claim {_name(claim)} has a reason for disruption"
        if "deletionTimestamp" in claim["metadata"]:
            yield f"claim {_name(claim)} is being deleted"
        if (_condition(claim, "Ready") or {}).get("status") != "True":
            yield f"claim {_name(claim)} is not ready"


def _allowed(then: _PastPool, reason: str) -> int:
    """Return how many nodes budgets without a schedule let go for a reason."""
    budgets = then.spec.get("disruption", {}).get("budgets", [{"nodes": "10%"}])
    amounts = [
        scaled(_int_or_percent(str(budget["nodes"])), then.claims, up=True)
        for budget in budgets
        if "schedule" not in budget and reason in (budget.get("reasons") or [reason])
    ]
    return min(amounts, default=then.claims)


def _int_or_percent(text: str) -> int | str:
    return text if text.endswith("%") else int(text)


def _must_be_drained(pod: Json, now: datetime) -> bool:
    """Whether a node has to wait for this pod.

    It has not for finished and for static ones, for daemons, for those that tolerate its taint and
    for those whose end hangs.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    owners = metadata.get("ownerReferences") or ()
    ends = metadata.get("deletionTimestamp")
    return not (
        pod.get("status", {}).get("phase") in TERMINAL
        or any(owner["kind"] in {"DaemonSet", "Node"} for owner in owners)
        or any(map(_tolerates_disruption, spec.get("tolerations") or ()))
        or (ends is not None and now - parse_time(ends) > STUCK_AFTER)
    )


def _tolerates_disruption(toleration: Json) -> bool:
    """Whether a toleration is for the taint of nodes that are disrupted, which has no value."""
    return (
        toleration.get("key", "") in {"", DISRUPTED_TAINT}
        and toleration.get("effect", "") in {"", "NoSchedule"}
        and (toleration.get("operator") == "Exists" or not toleration.get("value"))
        and bool(toleration.get("key") or toleration.get("operator") == "Exists")
    )


def _condition(value: Json, kind: str) -> Json | None:
    conditions: list[Json] = value.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), None)


def _is_disrupted(claim: Json) -> bool:
    """Whether a command takes the claim from pods still.

    What is forced on us asks for no budget, and an instance that is being ended needs none.
    """
    is_ending = (_condition(claim, "InstanceTerminating") or {}).get("status") == "True"
    reason = (_condition(claim, REASON) or {}).get("reason")
    return reason in list(DisruptionReason) and not is_ending


def _has_lost(claim: Json, nodes: Collection[str]) -> bool:
    """Whether a claim's Node is gone: its pods are too, and only the instance has to end yet."""
    name = claim.get("status", {}).get("nodeName", "")
    return bool(name) and name not in nodes


def _capacity(claim: Json) -> Mapping[str, int]:
    return parse_resources(claim.get("status", {}).get("capacity") or {})


def _pool_of(claim: Json) -> str:
    return _labels(claim).get(NODE_POOL, "")


def _labels(value: Json) -> dict[str, str]:
    return value["metadata"].get("labels") or {}


def _name(value: Json) -> str:
    return str(value["metadata"]["name"])
