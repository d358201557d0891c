"""A cluster in memory for the acceptance cases, with the project's own code between its parts.

Objects go through `StateBuilder`; a pass asks `build_provisioning_input`, `solve` answers; claims are
built as the provisioner builds them, limits are checked again before each; a fake provider launches
them, registration lets their Nodes in, and the pods are bound. What is made up here is only what
Karpenter does not do itself: the cloud, the kubelet and the Kubernetes scheduler.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count

import msgspec

from karpenter_core.api.labels import (
    HOSTNAME,
    NODE_POOL,
    UNREGISTERED_TAINT,
)
from karpenter_core.api.labels import INITIALIZED as INITIALIZED_LABEL
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.nodeclaim import INITIALIZED, NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import NodeConditionView, NodeView, PodView, Taint
from karpenter_core.api.workload_records import DaemonSetView
from karpenter_core.controllers.provisioning.new_claims import DecisionRef, new_claim
from karpenter_core.lifecycle.nodeclaim.launch import launched_claim, launched_step
from karpenter_core.lifecycle.nodeclaim.registration import registration_step
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.problem import Catalogue, PackingPolicy, SchedulingPlan, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    PodsDecided,
    TimePassed,
)
from karpenter_core.state.node_pool_usage import exceeded_limits, pool_usage
from karpenter_core.state.placements import NOMINATION_WINDOW
from karpenter_core.state.pod_volumes import UnsupportedVolumes
from karpenter_core.state.provisioning_input import (
    ProblemSettings,
    ProvisioningInput,
    build_provisioning_input,
)
from karpenter_core.state.taints import UNREGISTERED, is_ephemeral
from karpenter_core.testing.builders import EPOCH, pod, taint
from karpenter_core.testing.state_builders import (
    MANAGED_KINDS,
    ready_node_pool,
    with_claim_conditions,
)
from tests.scheduling.acceptance.catalogues import DEFAULT_TYPES, FAKE_WELL_KNOWN
from tests.scheduling.acceptance.provider import FakeProvider
from tests.scheduling.acceptance.workloads import TEST, template
from tests.verifier import may_run, violations

__all__ = ["Cluster", "Pass"]

NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
MAX_TYPES = 60
"""As the reference's own suite has it."""

_COMPILED = CatalogueCache()
_CATALOGUES = {}
_versions = count(1)
_POD_FIELDS = {
    "node_name", "phase", "created", "deletion_timestamp", "start_time", "owner_uid", "owner_name",
    "ready", "unschedulable", "nominated_node_name",
}  # fmt: skip


@dataclass(kw_only=True)
class Pass:
    """One scheduling pass and what came of it."""

    asked: ProvisioningInput
    plan: SchedulingPlan
    claims: list[NodeClaim] = field(default_factory=list)
    """Created NodeClaims, as launched."""
    refused: list[str] = field(default_factory=list)
    """The reasons why planned claims were not created."""

    def reason(self, pod):
        """Return the text of why a pod has no place; empty when it has one."""
        ignored = {item.pod.uid: item.reason for item in self.asked.ignored}
        if pod.uid in ignored:
            return ignored[pod.uid]
        result = self.plan.unschedulable.get(pod.uid)
        return "" if result is None else result.message


class Cluster:
    """Pools, pods, nodes and volumes, and a provisioner that runs on request."""

    def __init__(self, packing=PackingPolicy.FIRST_FIT):
        self.options = SolveOptions(packing=packing, max_instance_types=MAX_TYPES)
        self.now = EPOCH
        self.provider = FakeProvider()
        self.sold = DEFAULT_TYPES
        """Default catalogue of a pool."""
        self.default_spread = ()
        self.unsupported_volumes = UnsupportedVolumes()
        self.is_judged = True
        """Whether the verifier looks at plans; it does not know of offerings that override types."""
        self.passes = []
        self._numbers = count(1)
        self._claim_numbers = count(1)
        self.state = StateBuilder(MANAGED_KINDS)
        self.state.apply_event(TimePassed(self.now))
        self.state.apply_event(InformersSynced())

    # -- what is there -----------------------------------------------------------------------------

    @property
    def snapshot(self):
        """The state as it is now."""
        return self.state.snapshot()

    @property
    def nodes(self):
        """Every Node, by name."""
        return [node for _, node in sorted(self.snapshot.nodes.items())]

    @property
    def claims(self):
        """Every NodeClaim, by name."""
        return [claim for _, claim in sorted(self.snapshot.node_claims.items())]

    @property
    def created(self):
        """Every claim that the provider was asked to launch."""
        return self.provider.calls

    def node_of(self, of):
        """Return the Node that a pod is bound to, or None."""
        return self.snapshot.nodes.get(self.snapshot.pods[of.uid].node_name)

    def claim_of(self, of):
        """Return the NodeClaim of the node that a pod is bound to."""
        return self.snapshot.state_nodes_by_node[self.snapshot.pods[of.uid].node_name].claim

    def labels_of(self, of):
        """Return the labels of the Node that a pod is bound to."""
        return self.node_of(of).labels

    def is_scheduled(self, *pods):
        """Return whether all of these pods are bound."""
        return all(self.snapshot.pods[item.uid].node_name for item in pods)

    def is_unscheduled(self, *pods):
        """Return whether none of these pods is bound."""
        return not any(self.snapshot.pods[item.uid].node_name for item in pods)

    def scheduled(self, pods):
        """Return those of the pods that are bound."""
        return [item for item in pods if self.snapshot.pods[item.uid].node_name]

    def skew(self, key, of=TEST, namespace="default"):
        """Return how many pods with these labels run per value of a node label, sorted."""
        return sorted(self.skew_by_value(key, of, namespace).values())

    def skew_by_value(self, key, of=TEST, namespace="default"):
        """Return how many pods with these labels run per value of a node label.

        Pods that are at their end or being deleted are not counted; hostnames are names of Nodes.
        """
        result = Counter()
        nodes = self.snapshot.nodes
        for item in self.snapshot.pods.values():
            node = nodes.get(item.node_name)
            if node is None or not item.is_active or item.namespace != namespace:
                continue
            if not _has(item.shape.labels, of):
                continue
            value = node.name if key == HOSTNAME else node.labels.get(key)
            if value is not None:
                result[value] += 1
        return dict(result)

    # -- what happens to it ------------------------------------------------------------------------

    def advance(self, **delta):
        """Let time pass."""
        self.now += timedelta(**delta)
        self.state.apply_event(TimePassed(self.now))

    def configure(self, **changes):
        """Change the options of the passes that follow."""
        self.options = replace(self.options, **changes)

    def apply(self, *objects):
        """Create or change objects; NodePools become Ready and sell their types."""
        for obj in objects:
            shown = ready_node_pool(obj) if isinstance(obj, NodePool) else obj
            self.state.apply_event(ObjectObserved(shown))
            if isinstance(obj, NodePool):
                self.sell(*self.provider.types.get(obj.name, self.sold), pool=obj.name)

    def use(self, *pools, types=None):
        """Have exactly these pools, which sell `types` (by default what pools sold so far)."""
        if types is not None:
            self.sold = tuple(types)
        for known in list(self.snapshot.node_pools.values()):
            if known.name not in {item.name for item in pools}:
                self.delete(known)
                self.state.apply_event(CataloguePublished(known.name, None))
                self.provider.types.pop(known.name, None)
        for item in pools:
            self.provider.types.pop(item.name, None)
        self.apply(*pools)

    def sell(self, *types, pool):
        """Have a pool sell these types only."""
        self.provider.types[pool] = types
        self.state.apply_event(CataloguePublished(pool, _catalogue(types)))

    def delete(self, *objects):
        """Remove objects at once."""
        for obj in objects:
            self.state.apply_event(ObjectRemoved(obj))

    def evict(self, *pods):
        """Remove pods as they are now."""
        self.delete(*(self.snapshot.pods[item.uid] for item in pods))

    def pod(self, **options):
        """Make a pod; see `workloads.template` for its options."""
        return self.pods(1, **options)[0]

    def pods(self, number, **options):
        """Make pods of one template, named in the order of their making."""
        own = {key: options.pop(key) for key in _POD_FIELDS & options.keys()}
        prefix = options.pop("name", "pod")
        shape = options.pop("shape", None) or template(**options)
        return [self._pod(prefix, shape, own) for _ in range(number)]

    def _pod(self, prefix, shape, own):
        made = pod(f"{prefix}-{next(self._numbers):05}", shape=shape)
        bound = {"unschedulable": False, "phase": "Running"} if own.get("node_name") else {}
        return msgspec.structs.replace(made, **{**bound, **own})

    def daemon_set(self, name="agent", **options):
        """Make a DaemonSet whose pods are of this template."""
        shape = template(owner_kind="DaemonSet", **options)
        return DaemonSetView(
            uid=f"uid-owner-{name}", namespace=shape.namespace, name=name, template=shape
        )

    def node(self, name, *, taints=(), labels=None, allocatable=None, **options):
        """Make an unmanaged Node; 10 cores, 10 GiB and 110 pods unless said."""
        amounts = parse_resources(
            {"cpu": "10", "memory": "10Gi", "pods": "110", **(allocatable or {})}
        )
        return NodeView(
            uid=f"uid-node-{name}",
            name=name,
            labels=dict(labels or {}),
            taints=tuple(taint(text) for text in taints),
            capacity=amounts,
            allocatable=amounts,
            created=self.now,
            **options,
        )

    def bind(self, of, to):
        """Bind a pod to a Node and let it run."""
        name = to if isinstance(to, str) else to.name
        known = self.snapshot.pods.get(of.uid, of)
        bound = msgspec.structs.replace(
            known, node_name=name, phase="Running", unschedulable=False, start_time=self.now
        )
        self.apply(bound)
        return bound

    def change(self, obj, **changes):
        """Change a pod or a Node as it is now."""
        table = self.snapshot.pods if isinstance(obj, PodView) else self.snapshot.nodes
        known = table[obj.uid if isinstance(obj, PodView) else obj.name]
        changed = msgspec.structs.replace(known, **changes)
        self.apply(changed)
        return changed

    def initialize(self, *nodes):
        """Have the kubelets report Nodes ready, and the core find them initialised."""
        for item in nodes:
            known = self.snapshot.nodes[item.name]
            marks = {REGISTERED_LABEL: "true", INITIALIZED_LABEL: "true"}
            self.change(
                known,
                labels={**known.labels, **marks},
                taints=tuple(t for t in known.taints if not is_ephemeral(t)),
                conditions=(_ready(self.now),),
            )
            state_node = self.snapshot.state_nodes_by_node[item.name]
            if state_node.claim is not None:
                self.apply(with_claim_conditions(state_node.claim, INITIALIZED, now=self.now))

    def terminate(self, node):
        """Start to delete a node: its claim, or its Node when there is no claim."""
        claim = self.snapshot.state_nodes_by_node[node.name].claim
        if claim is None:
            self.change(node, deletion_timestamp=self.now)
            return
        metadata = claim.metadata.model_copy(update={"deletion_timestamp": self.now})
        self.apply(claim.model_copy(update={"metadata": metadata}))

    # -- provisioning ------------------------------------------------------------------------------

    def provision(self, *pods, bind=True):
        """Create these pods, make one pass over all that wait, and bind those that got a place.

        Only the given pods are bound, although others were placed.
        """
        self.apply(*pods)
        made = self.plan()
        self.carry_out(made, bind=pods if bind else ())
        return made

    def carry_out(self, made, *, bind=()):
        """Do what a pass has planned, and bind those of these pods that got a place."""
        places = {item.uid: name for name, result in made.plan.existing.items() for item in result}
        if made.plan.existing:
            names = tuple(made.plan.existing)
            self.state.apply_event(NodesNominated(names=names, until=self.now + NOMINATION_WINDOW))
            self.state.apply_event(PodsDecided(placed=places, at=self.now))
        where = {
            uid: state_node.node
            for uid, name in places.items()
            if (state_node := self.snapshot.state_node(name)) is not None
            and state_node.node is not None
        }
        for planned in made.plan.claims:
            node = self._launch(planned, made)
            if node is not None:
                where.update((item.uid, node) for item in planned.pods)
        failed = frozenset(made.plan.unschedulable)
        self.state.apply_event(PodsDecided(failed=failed, at=self.now))
        for item in bind:
            if item.uid in where:
                self._bind_as_scheduler(item, where[item.uid])

    def plan(self):
        """Make a plan, verify it, and change nothing."""
        asked = build_provisioning_input(
            self.snapshot,
            now=self.now,
            problem_settings=ProblemSettings(
                well_known=FAKE_WELL_KNOWN,
                default_spread=self.default_spread,
                unsupported_volumes=self.unsupported_volumes,
            ),
        )
        plan = solve(asked.problem, self.options, cache=_COMPILED)
        strict = self.options.min_values == "Strict"
        if self.is_judged:
            assert violations(asked.problem, plan, strict_min_values=strict) == []
        self.state.apply_event(
            PodsDecided(failed=frozenset(i.pod.uid for i in asked.ignored), at=self.now)
        )
        made = Pass(asked=asked, plan=plan)
        self.passes.append(made)
        return made

    def _launch(self, planned, made):
        """Create a claim, launch it, and let its Node in; None when the pool is at its limit."""
        pool = self.snapshot.node_pools[planned.pool]
        usage = pool_usage(self.snapshot).get(pool.name, {})
        exceeded = exceeded_limits(parse_resources(pool.spec.limits), usage)
        if exceeded:
            made.refused.append(f"resource usage exceeds limit ({', '.join(exceeded)})")
            return None
        number = next(self._claim_numbers)
        claim = new_claim(
            planned,
            pool,
            unique=f"{number}",
            decision_ref=DecisionRef(id="pass", cause="pods"),
            annotations=None,
            overlaid=None,
            reason="provisioned",
        )
        metadata = claim.metadata.model_copy(
            update={"uid": f"uid-claim-{number}", "creation_timestamp": self.now, "generation": 1}
        )
        claim = claim.model_copy(update={"metadata": metadata})
        self.state.apply_event(ObjectWritten(claim))
        self.state.apply_event(
            PodsDecided(placed={item.uid: claim.name for item in planned.pods}, at=self.now)
        )
        launched_instance = self.provider.create(claim)
        for name, types in self.provider.types.items():
            if launched_instance.capacity_type == "reserved":
                self.sell(*types, pool=name)
        claim = launched_step(claim, launched_claim(claim, launched_instance), self.now).claim
        node = NodeView(
            uid=f"uid-node-{claim.name}",
            name=f"node-{number:03}",
            labels=dict(claim.metadata.labels),
            provider_id=launched_instance.provider_id,
            taints=(UNREGISTERED, NOT_READY),
            capacity=launched_instance.capacity,
            allocatable=launched_instance.allocatable,
            created=self.now,
        )
        step = registration_step(claim, [node], now=self.now)
        node = step.node.applied_to(node)
        self.apply(step.claim, node)
        made.claims.append(step.claim)
        return node

    def _bind_as_scheduler(self, of, to):
        """Bind a pod, once the Kubernetes scheduler has nothing against it."""
        state_node = self.snapshot.state_nodes_by_node[to.name]
        startup = [] if state_node.claim is None else state_node.claim.spec.startup_taints
        passing = {(item.key, item.effect) for item in startup}
        taints = [
            item
            for item in to.taints
            if not is_ephemeral(item)
            and (item.key, item.effect) not in passing
            and item.key != UNREGISTERED_TAINT
        ]
        labels = {HOSTNAME: to.name, **to.labels}
        if not state_node.initialized:
            labels[INITIALIZED_LABEL] = "true"
        assert list(may_run(of, labels, taints)) == []
        self.bind(of, to)
        after = self.snapshot.state_nodes_by_node[to.name]
        over = {
            name: amount
            for name, amount in after.requests.items()
            if amount > after.allocatable.get(name, 0)
        }
        assert not over, f"{to.name} is overcommitted by {over}"

    def pools_of(self, pods):
        """Return the names of the pools whose nodes these pods run on."""
        return {self.labels_of(item)[NODE_POOL] for item in pods}


def _catalogue(types):
    """Return the catalogue of these very types; compiled once for all tests."""
    key = tuple(map(id, types))
    known = _CATALOGUES.get(key)
    if known is None:
        made = Catalogue(version=f"acceptance-{next(_versions)}", instance_types=tuple(types))
        known = _CATALOGUES[key] = made
    return known


def _has(labels, selected_labels):
    return all(labels.get(key) == value for key, value in selected_labels.items())


def _ready(now):
    return NodeConditionView(type="Ready", status="True", last_transition_time=now)
