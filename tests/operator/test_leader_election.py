"""Options of the leader election choose the Lease, its cluster and labels."""

from __future__ import annotations

import pytest
import yaml

from karpenter_core.errors import SettingsError
from karpenter_core.kube.resources import LEASES
from karpenter_core.operator.launcher import _connect
from karpenter_core.operator.settings_loader import load_settings
from tests.controllers.whole_controller import run_controller

NAME = "karpenter-leader-election"


def test_labels_are_read_from_flag_and_variable():
    """Parts may have spaces around them; a value may be empty."""
    expected_labels = {"app.kubernetes.io/name": "karpenter", "team": ""}
    text = "app.kubernetes.io/name=karpenter, team= ,"
    assert load_settings([], {}).leader_election_labels == {}
    assert (
        load_settings([], {"LEADER_ELECTION_LABELS": text}).leader_election_labels
        == expected_labels
    )
    flags = ["--leader-election-labels", text]
    assert load_settings(flags, {}).leader_election_labels == expected_labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("team", 'LEADER_ELECTION_LABELS: "team" is not key=value'),
        ("a b=c", 'LEADER_ELECTION_LABELS: key "a b": name must consist of'),
        ("=c", 'LEADER_ELECTION_LABELS: key "": name must consist of'),
        ("team=a b", 'LEADER_ELECTION_LABELS: value "a b" of "team": must consist of'),
    ],
)
def test_invalid_label_stops_the_start(text, message):
    with pytest.raises(SettingsError) as caught:
        load_settings([], {"LEADER_ELECTION_LABELS": text})
    assert str(caught.value).startswith(message)


def test_the_lease_has_the_labels_and_keeps_those_of_others(tmp_path):
    """A Lease that is there already gets them as well."""

    async def scenario(scene):
        mine = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        metadata = {"name": NAME, "namespace": "kube-system", "labels": {"team": "platform"}}
        scene.cluster.apply([{**mine, "metadata": metadata, "spec": {}}])
        running = scene.start("--leader-election-labels", "app=karpenter")
        await scene.settle(lambda: running.process.is_leading, seconds=30)
        [lease] = scene.cluster.list(LEASES)
        assert lease["metadata"]["labels"] == {"team": "platform", "app": "karpenter"}

    run_controller(tmp_path, scenario)


def kubeconfig(path, server):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [],
        "contexts": [{"name": "main", "context": {"cluster": "c"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize("is_apart", [True, False])
async def test_the_lease_may_be_kept_in_another_cluster(tmp_path, is_apart):
    """Without a kubeconfig of its own it is where NodePools are; its holder has the pod's name."""
    main = kubeconfig(tmp_path / "main", "http://127.0.0.1:1")
    other = kubeconfig(tmp_path / "other", "http://127.0.0.1:2")
    arguments = ["--kubeconfig", main, "--cache-folder", str(tmp_path / "cache")]
    if is_apart:
        arguments += ["--leader-election-kubeconfig", other]

    ports = await _connect(load_settings(arguments, {}), {"POD_NAME": "karpenter-7c9-x"})

    try:
        assert ports.identity.startswith("karpenter-7c9-x_")
        assert ports.objects.host == "http://127.0.0.1:1"
        assert ports.lease.host == f"http://127.0.0.1:{2 if is_apart else 1}"
    finally:
        for transport in (ports.objects, ports.lease):
            await transport.close()
        for thread in (ports.planner, ports.background, ports.executor):
            thread.close()
