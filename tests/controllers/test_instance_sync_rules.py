"""An instance is synced once for each state of its claim and NodeClass."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim.instance_sync import InstanceSyncController
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.events import InformersSynced, ObjectObserved, ObjectRemoved
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import KWOK, node, node_claim, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import StoryClock


def claim_of(name="web", *, stage="Registered", version=1, **options):
    return node_claim(name, stage=stage, resource_version=version, **options)


def node_class(version=1, **fields):
    metadata = ObjectMeta(name=KWOK.name, uid="uid-class", resource_version=str(version))
    return KWOKNodeClass.model_validate(
        {"metadata": metadata.model_dump(by_alias=True), "spec": {}, "status": {}, **fields}
    )


class Syncs:
    """The controller over a state; it is also its providers."""

    def __init__(self, *objects, serves=True):
        self.clock, self.serves = StoryClock(), serves
        self.state = ClusterState(synced_state(*objects), self.clock)
        self.synced = []
        self.controller = InstanceSyncController(
            cluster_state=self.state,
            providers=self,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=Metrics()
            ),
        )

    def syncs(self, _ref):
        return self.serves

    async def sync_instance(self, claim, its_node):
        self.synced.append((claim.name, its_node.name))

    def play(self, *events):
        """Let it run; apply an event, or several, every second."""

        async def story():
            running = asyncio.create_task(self.controller.run())
            self.state.fold(InformersSynced())
            for event in (None, *events):
                await asyncio.sleep(1)
                if event is not None:
                    self.state.fold(event)
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        run_virtual(story())
        return self.synced


WEB = claim_of()
NODE = node("web-node", claim=WEB)
ONCE = ("web", "web-node")


def test_a_registered_claim_is_synced_once():
    assert Syncs(WEB, NODE, node_class()).play(ObjectObserved(claim_of(version=2))) == [ONCE]


def test_a_claim_without_its_node_class_is_synced_too():
    assert Syncs(WEB, NODE).play() == [ONCE]


@pytest.mark.parametrize(
    "objects",
    [
        (claim_of(stage="Launched"), node("web-node", claim=WEB)),
        (claim_of(deleted=EPOCH), node("web-node", claim=WEB)),
        (WEB,),
        (WEB, NODE, node("web-twin", claim=WEB)),
        (
            claim_of(node_class_ref=NodeClassRef(group="other.io", kind="Other", name="a")),
            node("web-node", claim=WEB),
        ),
    ],
    ids=["not registered", "deleted", "no node", "two nodes", "of nobody"],
)
def test_other_claims_are_not_synced(objects):
    assert Syncs(*objects, node_class()).play() == []


def test_a_provider_that_syncs_nothing_is_not_called():
    assert Syncs(WEB, NODE, node_class(), serves=False).play() == []


@pytest.mark.parametrize(
    ("changed", "times"),
    [
        (ObjectObserved(claim_of(version=2, labels={"team": "a"})), 2),
        (ObjectObserved(claim_of(version=2, annotations={"team": "a"})), 2),
        (ObjectObserved(claim_of(version=2, stage="Initialized")), 1),
        (ObjectObserved(node_class(2, status={"conditions": []})), 1),
    ],
)
def test_labels_and_annotations_are_synced_again_and_a_status_is_not(changed, times):
    assert Syncs(WEB, NODE, node_class()).play(changed) == [ONCE] * times


def test_a_change_of_the_node_class_is_synced_to_all_of_its_claims(monkeypatch):
    """But not to those of another one."""
    other = NodeClassRef(group=KWOK.group, kind=KWOK.kind, name="other")
    api, lab = claim_of("api"), claim_of("lab", node_class_ref=other)
    nodes = [node(f"{claim.name}-node", claim=claim) for claim in (WEB, api, lab)]
    syncs = Syncs(WEB, api, lab, *nodes, node_class())
    texts = {1: "before", 2: "after"}
    monkeypatch.setattr(
        "karpenter_core.controllers.nodeclaim.instance_sync.spec_text",
        lambda item: texts[int(item.metadata.resource_version)],
    )
    synced = syncs.play(ObjectObserved(node_class(2)))
    assert sorted(synced[:3]) == [("api", "api-node"), ("lab", "lab-node"), ONCE]
    assert sorted(synced[3:]) == [("api", "api-node"), ONCE]


def test_a_claim_that_is_made_anew_is_synced_anew():
    again = ObjectObserved(claim_of(version=9, uid="uid-again"))
    assert Syncs(WEB, NODE, node_class()).play(ObjectRemoved(WEB), again) == [ONCE, ONCE]
