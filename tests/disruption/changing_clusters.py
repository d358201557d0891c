"""Random clusters that change: the events between two passes."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import CONSOLIDATABLE, DRIFTED
from karpenter_core.api.records import VolumeView
from karpenter_core.api.storage_records import (
    CSINodeView,
    PersistentVolumeClaimView,
    StorageClassView,
)
from karpenter_core.api.workload_records import DaemonSetView
from karpenter_core.state.events import (
    CataloguePublished,
    DeletionMarked,
    DeletionUnmarked,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    PodsDecided,
)
from karpenter_core.testing.builders import EPOCH, catalogue, node_pool, pod, pod_shape
from karpenter_core.testing.state_builders import (
    disruption_budget,
    node_claim,
    with_claim_conditions,
)
from tests.disruption.random_clusters import APPS, draw_node, draw_pod, drawn
from tests.disruption.small_clusters import NOW, cluster

CSI = "csi.example.com"


class ChangingCluster:
    """A cluster of `random_clusters` with a builder, and events that change it a little."""

    def __init__(self, random, **shares):
        self.random = random
        objects, self.market = drawn(random, **shares)
        self.builder = cluster(*objects, market=self.market)
        self.now = NOW
        self._made = 0
        self._version = 1000
        self._observe(StorageClassView(uid="uid-class", name="fast", provisioner=CSI))

    def fill(self, share):
        """Fill this share of the nodes with pods."""
        for state_node in self.snapshot.state_nodes:
            if state_node.node is None or self.random.random() >= share:
                continue
            room = state_node.allocatable.get("cpu", 0) - state_node.requests.get("cpu", 0)
            while room >= 100:
                cpu, made = draw_pod(self.random, self._name("fills"), state_node.node.name, room)
                self._observe(made)
                room -= cpu

    def change(self):
        """Apply one to four events."""
        self.now += timedelta(seconds=self.random.choice((0, 1, 30, 4000)))
        for _ in range(self.random.choice((1, 1, 2, 4))):
            self.random.choice(_CHANGES)(self)

    @property
    def snapshot(self):
        return self.builder.snapshot()

    def _observe(self, obj):
        self.builder.apply_event(ObjectObserved(obj))

    def _versioned(self, obj, **changes):
        self._version += 1
        self._observe(msgspec.structs.replace(obj, resource_version=self._version, **changes))

    def _name(self, kind):
        self._made += 1
        return f"{kind}-{self._made}"

    def _pod(self):
        return self.random.choice([*self.snapshot.pods.values()] or [None])

    def _state_node(self):
        return self.random.choice(self.snapshot.state_nodes or [None])

    def _claim(self):
        return self.random.choice([*self.snapshot.node_claims.values()] or [None])

    def _pool(self):
        return self.random.choice([pool for _, pool in sorted(self.snapshot.node_pools.items())])

    # -- changes -----------------------------------------------------------------------------------

    def add_pod(self):
        """A pod starts to run, or waits."""
        state_node = self._state_node()
        if state_node is None or state_node.node is None or self.random.random() < 0.4:
            cpu = f"{self.random.choice((250, 1000, 3000))}m"
            self._observe(pod(self._name("new"), cpu=cpu, labels={"app": self.random.choice(APPS)}))
            return
        room = state_node.allocatable.get("cpu", 0) - state_node.requests.get("cpu", 0)
        if room >= 100:
            _, made = draw_pod(self.random, self._name("new"), state_node.node.name, room)
            self._observe(made)

    def bind_pod(self):
        """A pod that waits is bound."""
        state_node = self._state_node()
        waiting = [*self.snapshot.pending_pods.values()]
        if waiting and state_node is not None and state_node.node is not None:
            self._versioned(
                self.random.choice(waiting), node_name=state_node.node.name, phase="Running"
            )

    def remove_pod(self):
        """A pod ends."""
        ended = self._pod()
        if ended is not None:
            self.builder.apply_event(ObjectRemoved(ended))

    def change_pod(self):
        """A pod becomes unready, begins to end, or gets an annotation."""
        changed = self._pod()
        if changed is None:
            return
        match self.random.randrange(3):
            case 0:
                self._versioned(changed, ready=self.random.choice((True, False)))
            case 1:
                self._versioned(changed, deletion_timestamp=self.now)
            case _:
                value = self.random.choice(("true", "1h", "nonsense", None))
                notes = {} if value is None else {DO_NOT_DISRUPT: value}
                shape = msgspec.structs.replace(changed.shape, annotations=notes)
                self._versioned(changed, shape=shape, start_time=self.now)

    def add_volume_pod(self):
        """A pod with a volume runs."""
        state_node = self._state_node()
        if state_node is None or state_node.node is None:
            return
        name = self._name("stateful")
        made = pod(name, node_name=state_node.node.name, phase="Running", cpu="100m")
        shape = msgspec.structs.replace(
            made.shape, volumes=(VolumeView(name="data", claim_name=f"data-{name}"),)
        )
        self._observe(msgspec.structs.replace(made, shape=shape))

    def add_volume_claim(self):
        """The volume claim of some pod appears."""
        names = [
            volume.claim_name
            for item in self.snapshot.pods.values()
            for volume in item.shape.volumes
        ]
        if names:
            name = self.random.choice(names)
            self._observe(
                PersistentVolumeClaimView(
                    uid=f"uid-{name}", namespace="default", name=name, storage_class="fast"
                )
            )

    def change_csi_node(self):
        """A node gets a limit of volumes, or another one."""
        state_node = self._state_node()
        if state_node is not None and state_node.node is not None:
            self._version += 1
            self._observe(
                CSINodeView(
                    uid=f"uid-csi-{state_node.node.name}",
                    name=state_node.node.name,
                    resource_version=self._version,
                    limits={CSI: self.random.choice((1, 2, 20))},
                )
            )

    def change_node(self):
        """A node gets another label or becomes unready."""
        state_node = self._state_node()
        if state_node is None or state_node.node is None:
            return
        labels = {**state_node.node.labels, "example.com/rack": self.random.choice("ab")}
        self._versioned(state_node.node, labels=labels)

    def add_node(self):
        """A node joins, or a claim is created whose instance does not exist yet."""
        pools = [pool for _, pool in sorted(self.snapshot.node_pools.items())]
        if self.random.random() < 0.3:
            self._observe(node_claim(self._name("starts"), pool=self.random.choice(pools).name))
            return
        of = self.random.choice(self.market)
        for made in draw_node(self.random, self._name("joined"), of, pools, drifted=0.1):
            self._observe(made)

    def remove_node(self):
        """A node goes with its claim and its pods."""
        state_node = self._state_node()
        if state_node is None:
            return
        for gone in (*state_node.pods, state_node.node, state_node.claim):
            if gone is not None:
                self.builder.apply_event(ObjectRemoved(gone))

    def change_claim(self):
        """A claim settles, is used again, or drifts."""
        claim = self._claim()
        if claim is None:
            return
        conditions = claim.status.conditions
        changed = with_claim_conditions(
            claim, self.random.choice((CONSOLIDATABLE, DRIFTED)), now=EPOCH
        )
        if self.random.random() < 0.3:
            status = claim.status.model_copy(
                update={"conditions": tuple(c for c in conditions if c.type != CONSOLIDATABLE)}
            )
            changed = claim.model_copy(update={"status": status})
        self._observe(self._newer(changed))

    def _newer(self, obj):
        self._version += 1
        metadata = obj.metadata.model_copy(update={"resource_version": str(self._version)})
        return obj.model_copy(update={"metadata": metadata})

    def mark_node(self):
        """A node is marked for deletion, or not any more."""
        claim = self._claim()
        if claim is not None:
            kind = self.random.choice((DeletionMarked, DeletionUnmarked))
            names = (claim.name,)
            self.builder.apply_event(
                DeletionMarked(names=names, cause="test")
                if kind is DeletionMarked
                else kind(names=names)
            )

    def nominate_node(self):
        """Pods are expected on a node for a while."""
        claim = self._claim()
        if claim is not None:
            until = self.now + timedelta(seconds=20)
            self.builder.apply_event(NodesNominated(names=(claim.name,), until=until))

    def place_pod(self):
        """A pass places a pod that waits."""
        state_node = self._state_node()
        waiting = [*self.snapshot.pending_pods]
        if waiting and state_node is not None:
            placed = {self.random.choice(waiting): state_node.name}
            self.builder.apply_event(PodsDecided(placed=placed, failed=frozenset(), at=self.now))

    def change_budget(self):
        """A PodDisruptionBudget appears, or changes what it allows."""
        app = self.random.choice(APPS)
        made = disruption_budget(
            app,
            labels={"app": app},
            allowed=self.random.choice((0, 1)),
            max_unavailable=self.random.choice((None, "0")),
        )
        healthy = {
            name: self.random.choice((0, 2)) for name in ("current_healthy", "desired_healthy")
        }
        self._versioned(made, **healthy)

    def change_pool(self):
        """A pool gets another consolidation policy or a limit."""
        pool = self._pool()
        disruption = pool.spec.disruption.model_copy(
            update={
                "consolidation_policy": self.random.choice(
                    ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
                )
            }
        )
        limits = node_pool(limits=self.random.choice(({}, {"cpu": "64"}))).spec.limits
        spec = pool.spec.model_copy(update={"disruption": disruption, "limits": limits})
        self._observe(self._newer(pool.model_copy(update={"spec": spec})))

    def change_catalogue(self):
        """Prices or offerings change."""
        pool = self._pool()
        kept = [item for item in self.market if self.random.random() < 0.9]
        self._version += 1
        made = catalogue(*(kept or self.market), version=str(self._version))
        self.builder.apply_event(CataloguePublished(pool.name, made))

    def add_daemon(self):
        """A DaemonSet appears."""
        name = self._name("daemon")
        self._observe(
            DaemonSetView(
                uid=f"uid-{name}", namespace="default", name=name, template=pod_shape(cpu="50m")
            )
        )


_CHANGES = (
    *(ChangingCluster.add_pod,) * 5,
    *(ChangingCluster.bind_pod,) * 4,
    *(ChangingCluster.remove_pod,) * 4,
    *(ChangingCluster.change_pod,) * 2,
    *(ChangingCluster.change_claim,) * 2,
    ChangingCluster.add_volume_pod,
    ChangingCluster.add_volume_claim,
    ChangingCluster.change_csi_node,
    ChangingCluster.change_node,
    ChangingCluster.add_node,
    ChangingCluster.remove_node,
    ChangingCluster.mark_node,
    ChangingCluster.nominate_node,
    ChangingCluster.place_pod,
    ChangingCluster.change_budget,
    ChangingCluster.change_pool,
    ChangingCluster.change_catalogue,
    ChangingCluster.add_daemon,
)
