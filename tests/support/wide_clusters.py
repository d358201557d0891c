"""Draws clusters that use everything at once, step by step: for records of what the core decides.

A `WideCluster` is a `ChangingCluster` with odd objects and with the events of the cluster state that
other draws leave out: launches, shortages, registrations, virtual pods, deletions, taints, unhealthy
nodes, annotations, schedules, static pools, quotas, buffers, and owners and volumes of pods.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import msgspec

from karpenter_core.api.autoscalers import VerticalPodAutoscalerView
from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.conditions import Condition
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    EXPENDABLE,
    HOSTNAME,
    NODE_POOL_HASH,
    PAUSE_DISRUPTION,
    POD_DELETION_COST,
    RESERVED,
    RETURN_AFTER,
    RETURN_BUDGET,
    SAFE_TO_EVICT,
    SAVINGS_FLOOR,
    SCHEDULES,
    SPOT,
    SPOT_SHARE,
    SURGE_MOVE,
    TERMINATION_FINALIZER,
    TERMINATION_TIMESTAMP,
    ZONE,
)
from karpenter_core.api.provisioning_request import ATOMIC_SCALE_UP, CHECK_CAPACITY
from karpenter_core.api.quantities import Quantity
from karpenter_core.api.records import (
    LOWEST_PRIORITY,
    AffinityTerm,
    LabelSelector,
    NamespaceView,
    NodeConditionView,
    OwnerView,
    VirtualSource,
    VolumeView,
)
from karpenter_core.api.storage_records import (
    PersistentVolumeClaimView,
    PersistentVolumeView,
    VolumeAttachmentView,
)
from karpenter_core.api.workload_records import WorkloadView
from karpenter_core.errors import OfferingKey
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.virtual_pods import VirtualPlacement
from karpenter_core.state.events import (
    CataloguePublished,
    LaunchCallFinished,
    LaunchCallStarted,
    OfferingsUnavailable,
    PodsDecided,
    RegistrationSettled,
    TimePassed,
    VirtualPodsDeclared,
    VirtualPodsPlaced,
)
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    node_term,
    offering,
    pod,
    pod_shape,
    taint,
    toleration,
)
from karpenter_core.testing.state_builders import node_claim
from tests.disruption.changing_clusters import ChangingCluster
from tests.disruption.random_clusters import APPS, ZONES
from tests.scheduling.devices.builders import (
    allocated,
    claim,
    device_class,
    device_pod,
    gpus,
    resource_slice,
)
from tests.support.pool_windows import hours
from tests.support.problem_pools import RESERVATION
from tests.support.provisioning_requests import (
    ATTEMPT_CLAIMS,
    ATTEMPTS,
    consumer,
    gang_claim,
    gang_node,
    request,
    template,
)

__all__ = ["WideCluster"]

_TAINTS = (
    "karpenter.sh/disrupted:NoSchedule",
    "karpenter.sh/unregistered:NoExecute",
    "node.kubernetes.io/not-ready:NoExecute",
    "node.kubernetes.io/unschedulable:NoSchedule",
    "example.com/startup:NoSchedule",
    "dedicated=blue:NoSchedule",
    "soft:PreferNoSchedule",
)
_CONDITIONS = ("Launched", "Registered", "Initialized", "Drained", "VolumesDetached")
_OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "")
_PENDING = {"Accepted": "True", "Provisioned": "False"}
_BOOKED = {"Accepted": "True", "Provisioned": "True"}
_SOURCE = VirtualSource(
    api_version="autoscaling.x-k8s.io/v1beta1",
    kind="CapacityBuffer",
    namespace="default",
    name="headroom",
    uid="uid-headroom",
)


class WideCluster(ChangingCluster):
    """A cluster that changes in every way that the state knows of."""

    def change(self):
        """Apply several events of the narrow and of the wide kind."""
        super().change()
        for _ in range(self.random.choice((1, 2, 3, 5))):
            self.random.choice(_WIDE_CHANGES)(self)
        if self.random.random() < 0.5:
            self.builder.apply_event(TimePassed(self.now))

    def _node(self):
        state_node = self._state_node()
        return None if state_node is None else state_node.node

    def _with_metadata(self, obj, **changes):
        return self._newer(
            obj.model_copy(update={"metadata": obj.metadata.model_copy(update=changes)})
        )

    # -- nodes and claims --------------------------------------------------------------------------

    def change_taints(self):
        """A node has other taints."""
        node = self._node()
        if node is not None:
            count = self.random.choice((0, 1, 1, 2))
            chosen = self.random.sample(_TAINTS, count)
            self._versioned(node, taints=tuple(map(taint, chosen)))

    def change_conditions(self):
        """A node reports other conditions, some long ago."""
        node = self._node()
        if node is None:
            return
        since = self.now - timedelta(seconds=self.random.choice((0, 60, 700, 4000)))
        made = [
            NodeConditionView(
                type=kind, status=status, reason="Reported", last_transition_time=since
            )
            for kind, status in (
                ("Ready", self.random.choice(("True", "True", "False", "Unknown"))),
                ("MemoryPressure", self.random.choice(("True", "False"))),
                ("NetworkUnavailable", self.random.choice(("True", "False"))),
            )[: self.random.choice((1, 2, 3))]
        ]
        self._versioned(node, conditions=tuple(made))

    def change_amounts(self):
        """A node reports other amounts, or labels are missing, or it is cordoned."""
        node = self._node()
        if node is None:
            return
        match self.random.randrange(4):
            case 0:
                allocatable = {**node.allocatable, "cpu": self.random.choice((0, 500, 3000))}
                self._versioned(node, allocatable=allocatable)
            case 1:
                missing = self.random.choice((ZONE, CAPACITY_TYPE, "karpenter.sh/initialized"))
                labels = {key: value for key, value in node.labels.items() if key != missing}
                self._versioned(node, labels=labels)
            case 2:
                self._versioned(node, unschedulable=not node.unschedulable)
            case _:
                self._versioned(node, provider_id=self.random.choice((node.provider_id, "")))

    def annotate_node(self):
        """A node and its claim get annotations of people."""
        state_node = self._state_node()
        if state_node is None:
            return
        notes = self.random.choice(
            (
                {DO_NOT_DISRUPT: "true"},
                {DO_NOT_DISRUPT: "nonsense"},
                {SAVINGS_FLOOR: "30%"},
                {NODE_POOL_HASH: "1234"},
                {},
            )
        )
        if state_node.node is not None:
            self._versioned(state_node.node, annotations=notes)
        if state_node.claim is not None and self.random.random() < 0.7:
            self._observe(self._with_metadata(state_node.claim, annotations=notes))

    def delete_node(self):
        """A node is being deleted; it has the finalizer, or one of others."""
        node = self._node()
        if node is not None:
            finalizers = self.random.choice(((TERMINATION_FINALIZER,), ("example.com/backup",), ()))
            self._versioned(node, deletion_timestamp=self.now, finalizers=finalizers)

    def delete_claim(self):
        """A claim is being deleted, at times with a deadline."""
        claim = self._claim()
        if claim is None:
            return
        deadline = self.now + timedelta(seconds=self.random.choice((-5, 20, 600)))
        notes = self.random.choice(
            (
                {},
                {TERMINATION_TIMESTAMP: f"{deadline:%Y-%m-%dT%H:%M:%SZ}"},
                {TERMINATION_TIMESTAMP: "x"},
            )
        )
        self._observe(
            self._with_metadata(
                claim,
                deletion_timestamp=self.now,
                annotations={**claim.metadata.annotations, **notes},
            )
        )

    def set_claim_condition(self):
        """A condition of a claim has another status, for a while already."""
        claim = self._claim()
        if claim is None:
            return
        kind = self.random.choice(_CONDITIONS)
        made = Condition(
            type=kind,
            status=self.random.choice(("True", "False", "Unknown")),
            reason=self.random.choice((kind, "Waiting", "InsufficientCapacity")),
            message="it is so",
            last_transition_time=self.now - timedelta(seconds=self.random.choice((0, 200, 1000))),
            observed_generation=1,
        )
        others = tuple(each for each in claim.status.conditions if each.type != kind)
        status = claim.status.model_copy(
            update={
                "conditions": (*others, made),
                "last_pod_event_time": self.random.choice((None, EPOCH, self.now)),
            }
        )
        self._observe(self._newer(claim.model_copy(update={"status": status})))

    def start_claim(self):
        """A claim is created that has come as far as some stage, without a node."""
        pool = self._pool()
        stage = self.random.choice(("", "Launched", "Registered"))
        name = self._name("claim")
        self._observe(
            node_claim(
                name,
                pool=pool.name,
                stage=stage,
                instance_type=self.random.choice(self.market).name,
                zone=self.random.choice(ZONES),
                created=self.now - timedelta(seconds=self.random.choice((0, 100, 1200))),
                startup_taints=self.random.choice(((), ("example.com/startup:NoSchedule",))),
                taints=self.random.choice(((), ("dedicated=blue:NoSchedule",))),
                requests=self.random.choice(({}, {"cpu": "1500m"})),
                expire_after=self.random.choice(("Never", "720h", "5m")),
            )
        )
        if self.random.random() < 0.6:
            self.builder.apply_event(LaunchCallStarted(f"uid-claim-{name}", self.now))

    def finish_launch(self):
        """The launch of a claim ended, with or without an instance."""
        claim = self._claim()
        if claim is not None:
            self.builder.apply_event(
                LaunchCallFinished(
                    claim_uid=claim.metadata.uid,
                    launched=self.random.choice((claim, None)),
                    at=self.now,
                )
            )

    # -- pods --------------------------------------------------------------------------------------

    def add_odd_pod(self):
        """A pod with an owner, an annotation, a priority, a toleration, a stage of its life."""
        node = self._node()
        on = "" if node is None or self.random.random() < 0.3 else node.name
        name, owner = self._name("odd"), self.random.choice(_OWNERS)
        made = pod(name, cpu="100m", labels={"app": self.random.choice(APPS)}, node_name=on)
        shape = msgspec.structs.replace(
            made.shape,
            owner_kind=owner,
            owner_api_version="v1" if owner == "Node" else "apps/v1",
            priority=self.random.choice((0, 0, -20, 2_000_000_000)),
            priority_class_name=self.random.choice(("", "system-cluster-critical")),
            termination_grace_period_seconds=self.random.choice((0, 30, 900, None)),
            tolerations=self.random.choice(
                ((), (toleration(""),), (toleration("karpenter.sh/disrupted:NoSchedule"),))
            ),
            annotations=self.random.choice(
                (
                    {},
                    {DO_NOT_DISRUPT: "true"},
                    {DO_NOT_DISRUPT: "20m"},
                    {DO_NOT_EVICT: "true"},
                    {SAFE_TO_EVICT: "false"},
                    {POD_DELETION_COST: "-100"},
                    {EXPENDABLE: "true"},
                    {SURGE_MOVE: "true"},
                )
            ),
            scheduling_gates=self.random.choice(((), (), (), ("wait",))),
            scheduler_name=self.random.choice(("default-scheduler", "default-scheduler", "other")),
        )
        running = bool(on)
        self._observe(
            msgspec.structs.replace(
                made,
                shape=shape,
                owner_name=f"{owner.lower()}-of-pods",
                owner_uid="uid-owner",
                phase=self.random.choice(("Running", "Running", "Succeeded", "Failed"))
                if running
                else "Pending",
                unschedulable=not running,
                tried=not running,
                ready=self.random.choice((None, True, False)),
                start_time=self.random.choice((None, EPOCH, self.now)) if running else None,
                deletion_timestamp=self.random.choice((None, None, None, self.now)),
                deletion_grace_period_seconds=self.random.choice((None, 30)),
                created=self.random.choice((EPOCH, self.now)),
                nominated_node_name=self.random.choice(("", "", "n-0")),
            )
        )

    def add_expendable_pods(self):
        """Pods of a priority run for which no node is launched, and other pods avoid those of buffers."""
        for state_node in self.snapshot.state_nodes:
            room = state_node.allocatable.get("cpu", 0) - state_node.requests.get("cpu", 0)
            if state_node.node is None or room < 500 or self.random.random() < 0.5:
                continue
            name = self._name("batch")
            made = pod(name, cpu="500m", node_name=state_node.node.name, phase="Running")
            selects = LabelSelector(match_labels={"app": "headroom"})
            away = (AffinityTerm(topology_key=HOSTNAME, selector=selects),)
            shape = msgspec.structs.replace(
                made.shape,
                priority=self.random.choice((-20, -20, LOWEST_PRIORITY, 0)),
                pod_anti_affinity=away if self.random.random() < 0.2 else (),
            )
            self._observe(msgspec.structs.replace(made, shape=shape, start_time=EPOCH))

    def decide_pods(self):
        """A pass found no place for some pods, and places for others."""
        waiting = sorted(self.snapshot.pending_pods)
        state_node = self._state_node()
        if waiting and state_node is not None:
            chosen = self.random.sample(waiting, min(len(waiting), 2))
            self.builder.apply_event(
                PodsDecided(
                    placed=dict.fromkeys(chosen[1:], state_node.name),
                    failed=frozenset(chosen[:1]),
                    at=self.now,
                )
            )

    def add_volume(self):
        """A pod has a volume that is bound in a zone, and it may be attached."""
        node = self._node()
        name = self._name("vol")
        zone = self.random.choice(ZONES)
        self._observe(
            PersistentVolumeView(
                uid=f"uid-pv-{name}",
                name=f"pv-{name}",
                driver="csi.example.com",
                node_terms=(node_term((ZONE, "In", zone)),),
                is_local=self.random.random() < 0.2,
                claim=f"default/{name}",
            )
        )
        self._observe(
            PersistentVolumeClaimView(
                uid=f"uid-pvc-{name}",
                namespace="default",
                name=name,
                volume_name=self.random.choice((f"pv-{name}", f"pv-{name}", "")),
                storage_class=self.random.choice(("fast", "fast", "missing", None)),
                phase=self.random.choice(("Bound", "Pending", "Lost")),
                bind_completed=self.random.random() < 0.7,
                selected_node=self.random.choice(("", "", "n-1")),
            )
        )
        made = pod(f"with-{name}", cpu="100m", node_name="" if node is None else node.name)
        shape = msgspec.structs.replace(
            made.shape, volumes=(VolumeView(name="data", claim_name=name),)
        )
        self._observe(
            msgspec.structs.replace(made, shape=shape, phase="Running" if node else "Pending")
        )
        if node is not None and self.random.random() < 0.6:
            self._observe(
                VolumeAttachmentView(
                    uid=f"uid-va-{name}",
                    name=f"va-{name}",
                    node_name=node.name,
                    volume_name=f"pv-{name}",
                )
            )

    # -- pools, quotas, buffers --------------------------------------------------------------------

    def annotate_pool(self):
        """A pool gets an annotation, a limit or replicas."""
        pool = self._pool()
        window = hours(start="0 * * * *", duration="30m", **self.random.choice(
            ({"limits": {"cpu": "10"}}, {"shutdown": True}, {"consolidationPolicy": "WhenEmpty"})
        ))  # fmt: skip
        notes = self.random.choice(
            (
                {PAUSE_DISRUPTION: "true"},
                {SAVINGS_FLOOR: "10%"},
                {SPOT_SHARE: "50%"},
                {RETURN_AFTER: "5m"},
                {SCHEDULES: json.dumps([window])},
                {SCHEDULES: "nonsense"},
                {},
            )
        )
        changed = self._with_metadata(pool, annotations=notes)
        limits = self.random.choice(
            ({}, {"cpu": "20"}, {"nodes": "3"}, {"karpenter.sh/price-per-hour": "1.5"})
        )
        spec = changed.spec.model_copy(
            update={
                "limits": {name: Quantity(text) for name, text in limits.items()},
                "weight": self.random.choice((None, 10)),
                "replicas": self.random.choice((None, None, None, None, 2)),
            }
        )
        self._observe(changed.model_copy(update={"spec": spec}))

    def enable_return(self):
        """A pool takes its nodes back to what is preferred; another one may have a weight."""
        for _, pool in sorted(self.snapshot.node_pools.items()):
            notes = {RETURN_AFTER: self.random.choice(("1m", "5m"))}
            if self.random.random() < 0.5:
                notes[RETURN_BUDGET] = self.random.choice(("1", "50%", "0"))
            changed = self._with_metadata(pool, annotations=notes)
            weight = self.random.choice((None, 10))
            spec = changed.spec.model_copy(update={"weight": weight})
            self._observe(changed.model_copy(update={"spec": spec}))

    def unready_pool(self):
        """A pool is not ready, or it is being deleted."""
        pool = self._pool()
        if self.random.random() < 0.3:
            self._observe(self._with_metadata(pool, deletion_timestamp=self.now))
            return
        conditions = tuple(
            each.model_copy(update={"status": "False", "reason": "NotReady", "message": "no image"})
            if each.type == "Ready"
            else each
            for each in pool.status.conditions
        )
        status = pool.status.model_copy(update={"conditions": conditions})
        self._observe(self._newer(pool.model_copy(update={"status": status})))

    def add_quota(self):
        """A CapacityQuota limits nodes of all pools."""
        self._version += 1
        self._observe(
            CapacityQuota(
                api_version="autoscaling.x-k8s.io/v1beta1",
                kind="CapacityQuota",
                metadata=ObjectMeta(
                    name="team", uid="uid-team", resource_version=str(self._version), generation=1
                ),
                spec={
                    "selector": self.random.choice(
                        (
                            {},
                            {"matchLabels": {ZONE: "zone-a"}},
                            {"matchLabels": {CAPACITY_TYPE: SPOT}},
                        )
                    ),
                    "limits": {"resources": {"cpu": self.random.choice(("8", "40")), "nodes": "9"}},
                },
            )
        )

    def add_buffer(self):
        """A CapacityBuffer exists, and the virtual pods that it asks for are known."""
        self._version += 1
        self._observe(
            CapacityBuffer.model_validate(
                {
                    "metadata": {
                        "name": "headroom",
                        "namespace": "default",
                        "uid": "uid-headroom",
                        "resourceVersion": str(self._version),
                    },
                    "spec": {"podTemplateRef": {"name": "chunk"}, "replicas": 2},
                }
            )
        )
        shape = msgspec.structs.replace(
            pod_shape(
                cpu=self.random.choice(("500m", "2")),
                priority=LOWEST_PRIORITY,
                labels={"app": "headroom"},
            ),
            virtual_source=_SOURCE,
        )
        count = self.random.choice((0, 1, 3))
        made = tuple(pod(f"headroom-{n}", shape=shape) for n in range(count))
        self.builder.apply_event(VirtualPodsDeclared(source=_SOURCE, pods=made))

    def place_virtual_pods(self):
        """A pass placed virtual pods on a node."""
        state_node = self._state_node()
        if state_node is not None:
            placement = VirtualPlacement(wanted=2, on_existing=1, on_new=0, failed=1)
            self.builder.apply_event(
                VirtualPodsPlaced(counts={state_node.name: 1}, placements={_SOURCE: placement})
            )

    def reserve_capacity(self):
        """Some types are sold from reservations too."""
        for _, pool in sorted(self.snapshot.node_pools.items()):
            self._version += 1
            sold = [self._reserved(each) for each in self.market]
            made = catalogue(*sold, version=str(self._version))
            self.builder.apply_event(CataloguePublished(pool.name, made))

    def _reserved(self, kind):
        if self.random.random() < 0.5:
            return kind
        number = Requirement.of(RESERVATION, "In", (self.random.choice(("r-1", "r-2")),))
        zone = self.random.choice(ZONES)
        made = offering(zone, RESERVED, 0.0001)
        made = replace(
            made,
            requirements=made.requirements.add(number),
            reservation_capacity=self.random.choice((1, 2)),
        )
        absent = Requirement.of(RESERVATION, "DoesNotExist")
        others = [
            replace(each, requirements=each.requirements.add(absent)) for each in kind.offerings
        ]
        requirements = kind.requirements
        for key, value in ((ZONE, zone), (CAPACITY_TYPE, RESERVED)):
            values = {*requirements.get(key).values, value}
            requirements = requirements.replace(Requirement.of(key, "In", values))
        return replace(kind, offerings=(*others, made), requirements=requirements.add(number))

    def mask_offering(self):
        """An offering is out of stock."""
        mask = OfferingKey(
            instance_type=self.random.choice(self.market).name,
            zone=self.random.choice(ZONES),
            capacity_type=self.random.choice((SPOT, "on-demand")),
        )
        self.builder.apply_event(
            OfferingsUnavailable(offerings=(mask,), provider="kwok", at=self.now)
        )

    def settle_registration(self):
        """A claim of a pool registered, or its launch failed."""
        pool = self._pool()
        succeeded = self.random.random() < 0.4
        self.builder.apply_event(
            RegistrationSettled(
                pool_uid=pool.metadata.uid,
                succeeded=succeeded,
                reason="" if succeeded else "LaunchFailed",
                message="" if succeeded else "no permission",
            )
        )

    def add_request(self):
        """A ProvisioningRequest is as far as it may be, with claims, nodes and pods of it."""
        kind, state, details = self.random.choice(
            (
                (ATOMIC_SCALE_UP, {}, {}),
                (ATOMIC_SCALE_UP, {"Accepted": "True", "Provisioned": "False"}, {}),
                (ATOMIC_SCALE_UP, _PENDING, {ATTEMPTS: "1", ATTEMPT_CLAIMS: "2"}),
                (ATOMIC_SCALE_UP, _BOOKED, {}),
                (ATOMIC_SCALE_UP, {**_BOOKED, "BookingExpired": "True"}, {}),
                (CHECK_CAPACITY, _BOOKED, {}),
                (ATOMIC_SCALE_UP, {"Accepted": "True", "Failed": "True"}, {}),
                ("unknown.example.com", {}, {}),
            )
        )
        job = self.random.choice(("job", "batch"))
        asked = request(
            *self.random.choice(((3,), (2, 1))),
            name=job,
            provisioning_class=kind,
            conditions=state,
            details=details,
            deleted=self.random.choice((None, None, None, self.now)),
            **self.random.choice(
                ({}, {}, {"ValidUntilSeconds": "600"}, {"ValidUntilSeconds": "x"})
            ),
        )
        self._observe(self._newer(asked))
        if self.random.random() < 0.8:
            self._observe(template("workers", cpu=self.random.choice(("500m", "2"))))
            self._observe(template("workers-1"))
        places = self.random.choice(("0=3", "0=1,1=1", "0=2", "nonsense"))
        attempt = self.random.choice(("1", "2", ""))
        name = self._name("gang")
        if self.random.random() < 0.4:
            stage = self.random.choice(("", "Launched", "Registered"))
            self._observe(gang_claim(name, places, stage=stage, job=job, attempt=attempt))
        elif self.random.random() < 0.7:
            for made in gang_node(name, places, job=job, attempt=attempt):
                self._observe(made)
        for number in range(self.random.choice((0, 1, 2))):
            on = self.random.choice(("", name))
            self._observe(consumer(f"{name}-{number}", job=job, node_name=on))

    def add_devices(self):
        """A node has devices, and a pod a claim for one."""
        node = self._node()
        if node is None:
            return
        name = self._name("trains")
        self._observe(device_class())
        self._observe(resource_slice(*gpus(2, model="a"), node=node.name))
        held = self.random.random() < 0.5
        self._observe(
            allocated(name, "gpu-0", pool=node.name, node=node.name) if held else claim(name)
        )
        on = self.random.choice(("", node.name))
        self._observe(device_pod(name, name, node_name=on, phase="Running" if on else "Pending"))

    def add_autoscaler(self):
        """A VerticalPodAutoscaler will change the requests of a workload's next pods."""
        app = self.random.choice(APPS)
        self._version += 1
        self._observe(
            VerticalPodAutoscalerView(
                uid=f"uid-vpa-{app}",
                namespace="default",
                name=app,
                resource_version=self._version,
                created=EPOCH,
                target_group="apps",
                target_kind=self.random.choice(("Deployment", "StatefulSet", "ReplicaSet")),
                target_name=app,
                is_off=self.random.random() < 0.2,
                targets={"app": {"cpu": self.random.choice((50, 900)), "memory": 2**28}},
            )
        )

    def add_workload(self):
        """A namespace has labels, and a workload selects its pods."""
        self._observe(NamespaceView(uid="uid-default", name="default", labels={"team": "a"}))
        app = self.random.choice(APPS)
        self._version += 1
        self._observe(
            WorkloadView(
                kind=self.random.choice(("ReplicaSet", "StatefulSet")),
                uid=f"uid-{app}",
                namespace="default",
                name=app,
                resource_version=self._version,
                selector=LabelSelector(match_labels={"app": app}),
                replicas=self.random.choice((None, 1, 3)),
            )
        )

    def own_node(self):
        """A node has an owner, as after a registration."""
        state_node = self._state_node()
        if state_node is not None and state_node.node is not None and state_node.claim is not None:
            owner = OwnerView(
                api_version="karpenter.sh/v1",
                kind="NodeClaim",
                name=state_node.claim.name,
                uid=self.random.choice((state_node.claim.metadata.uid, "uid-other")),
            )
            self._versioned(state_node.node, owners=(owner,))


_WIDE_CHANGES = tuple(
    value
    for name, value in vars(WideCluster).items()
    if not name.startswith("_") and name != "change"
)
