"""Manifests of files become the objects that a server would have sent."""

from __future__ import annotations

import pytest

from karpenter_core.kube.objects import complete_manifest, view_from_manifest
from karpenter_core.kube.wire.codecs import Codecs


def manifest(**fields):
    container = {"name": "main", "image": "nginx"}
    spec = {"containers": [container], **fields.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec, **fields}


@pytest.mark.parametrize(
    ("given", "pending"),
    [
        (manifest(), True),
        (manifest(spec={"nodeName": "node-1"}), False),
        (manifest(status={"phase": "Running"}), False),
        (manifest(status={}), False),
    ],
)
def test_only_a_pod_without_status_and_node_is_one_that_the_scheduler_has_no_node_for(
    given, pending
):
    pod = view_from_manifest(given)
    assert pod.is_provisionable is pending


def test_a_server_gives_uid_and_namespace():
    metadata = complete_manifest(manifest(), Codecs())["metadata"]
    assert metadata == {"uid": "pod/default/web", "name": "web", "namespace": "default"}
    metadata = complete_manifest(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "1"}}, Codecs()
    )["metadata"]
    assert metadata == {"uid": "1", "name": "n"}
