"""Drift of virtual machines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.machines.drift import DriftDetector

from .fake_azure import IMAGE

IDENTITY = "kubernetes.azure.com/kubelet-identity-client-id"
MINE = "12345678-1234-1234-1234-1234567890ab"


def node_class(
    *,
    images=(IMAGE,),
    version="1.34.1",
    images_ready="True",
    version_ready="True",
    seen=1,
    deleted=None,
):
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": kind,
            "message": "",
            "observedGeneration": seen,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, status in (
            ("ImagesReady", images_ready),
            ("KubernetesVersionReady", version_ready),
        )
    ]
    return AKSNodeClass.model_validate(
        {
            "metadata": {"name": "default", "generation": 1, "deletionTimestamp": deleted},
            "status": {
                "images": [{"id": image, "requirements": []} for image in images],
                "kubernetesVersion": version,
                "conditions": conditions,
            },
        }
    )


def claim_of(provider_id, *, name="web-1", image=IMAGE, labels=None):
    return NodeClaim.model_validate(
        {
            "metadata": {
                "name": name,
                "labels": {NODE_POOL: "web"} if labels is None else labels,
            },
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.azure.com",
                    "kind": "AKSNodeClass",
                    "name": "default",
                }
            },
            "status": {"providerID": provider_id, "imageID": image},
        }
    )


class Stage:
    def __init__(self, world, *, kubelet_identity=MINE):
        self.world = world
        self.provider_id = world.add_vm()
        self.ahead = False
        self.detector = DriftDetector(
            world.instances,
            None,
            kubelet_identity=kubelet_identity,
            read_nodes=lambda: world.nodes,
            is_event_ahead=lambda _node: self.ahead,
        )
        self.join()

    def join(self, version="v1.34.1", *, identity=MINE, **more):
        self.world.nodes["node"] = NodeView(
            uid="u",
            name="node",
            provider_id=self.provider_id,
            kubelet_version=version,
            labels={IDENTITY: identity} if identity is not None else {},
            **more,
        )

    def detect(self, claim=None, of=None):
        (found,) = self.detector.detect([claim or claim_of(self.provider_id)], of or node_class())
        return found.reason if isinstance(found, DriftFinding) else found


@pytest.fixture
def stage(world):
    return Stage(world)


def test_a_node_as_it_would_be_made_now_has_not_drifted(stage):
    assert stage.detect() is None


def test_an_older_kubelet_is_drift(stage):
    """# case 109"""
    stage.join("v1.30.4")
    assert stage.detect(of=node_class(version="1.30.5")) == "K8sVersionDrift"


@pytest.mark.parametrize(
    ("kubelet", "version", "reason"),
    [
        ("v1.30.101-akslts", "1.30.101-akslts", None),
        ("v1.30.101", "1.30.101-akslts", None),
        ("v1.30.101-akslts", "1.30.101", None),
        ("v1.30.100-akslts", "1.30.101-akslts", "K8sVersionDrift"),
        ("custom", "1.30.101", "K8sVersionDrift"),
        ("v1.30.101", "another", "K8sVersionDrift"),
        ("another", "another", None),
    ],
)
def test_the_end_of_a_version_is_no_drift(stage, kubelet, version, reason):
    """Numbers alone decide about an upgrade, so they alone decide about its nodes."""
    stage.join(kubelet)
    assert stage.detect(of=node_class(version=version)) == reason


@pytest.mark.parametrize("kubelet", ["v1.34.2", "v1.35.0"])
def test_a_newer_kubelet_is_no_drift(stage, kubelet):
    """Its image installs it: a new node would have it, too, and be replaced again without end."""
    stage.join(kubelet)
    assert stage.detect(of=node_class(version="1.34.1")) is None


@pytest.mark.parametrize(
    "more",
    [{"version_ready": "False"}, {"seen": 0}, {"version": ""}],
)
def test_a_version_that_is_not_ready_is_no_drift(stage, more):
    stage.join("v1.30.4")
    assert stage.detect(of=node_class(**more)) is None


def test_a_missing_or_deleting_node_has_no_version(stage):
    """# case 109"""
    stage.join("v1.30.4", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert stage.detect() is None
    stage.world.nodes.clear()
    assert stage.detect() is None
    stage.join("")
    assert stage.detect() is None


def test_another_image_is_drift(stage):
    """# case 110"""
    assert stage.detect(of=node_class(images=["/other"])) == "ImageDrift"
    assert stage.detect(of=node_class(images=["/other", IMAGE.upper()])) is None
    assert stage.detect(of=node_class(images=["/other"], images_ready="False")) is None
    assert stage.detect(of=node_class(images=["/other"], seen=0)) is None


def test_an_unknown_image_is_an_error(stage):
    """# case 110"""
    assert "status.imageID" in str(stage.detect(claim_of(stage.provider_id, image="")))
    error = stage.detect(of=node_class(images=()))
    assert isinstance(error, CloudProviderError)
    assert "status.images is empty" in str(error)


@pytest.mark.parametrize(
    ("identity", "reason"),
    [(MINE.upper(), None), ("", None), (None, None), ("other", "KubeletIdentityDrift")],
)
def test_another_kubelet_identity_is_drift(stage, identity, reason):
    """# case 111"""
    stage.join(identity=identity)
    assert stage.detect() == reason


def test_no_node_drifts_from_a_kubelet_identity_that_is_not_set(world):
    """Nodes of a controller that was given the identity stay if the next one is not."""
    stage = Stage(world, kubelet_identity="")
    stage.join(identity=MINE)
    assert stage.detect() is None


def test_reasons_have_an_order(stage):
    stage.ahead = True
    stage.join("v1.30.4", identity="other")
    changed = node_class(images=["/other"])
    assert stage.detect(of=changed) == "K8sVersionDrift"
    stage.join(identity="other")
    assert stage.detect(of=changed) == "KubeletIdentityDrift"
    stage.join()
    assert stage.detect(of=changed) == "ImageDrift"
    assert stage.detect() == "VMEventScheduled"


def test_a_deleted_node_class_causes_no_drift(stage):
    """# case 113"""
    deleted = node_class(images=["/other"], deleted="2026-01-01T00:00:00Z")
    assert stage.detect(of=deleted) is None


def test_a_claim_without_a_node_pool_never_drifts(stage):
    claim = claim_of(stage.provider_id, image="/other", labels={})
    assert stage.detect(claim) is None


def test_a_claim_without_an_instance_is_an_error(stage):
    assert "status.providerID is empty" in str(stage.detect(claim_of("")))
    stage.world.remove()
    assert isinstance(stage.detect(), NodeClaimNotFoundError)


def test_many_claims_cost_one_listing(stage):
    ids = [stage.world.add_vm(f"many-{n}") for n in range(20)]
    stage.world.azure.calls.clear()
    claims = [claim_of(each, name=f"many-{number}") for number, each in enumerate(ids)]
    assert stage.detector.detect(claims, node_class()) == [None] * 20
    assert stage.world.azure.actions() == ["virtualMachines:list"]
