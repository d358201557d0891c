"""The ACK cluster: network and version (section 3.3)."""

from __future__ import annotations

import json

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.discovery.cluster import (
    ClusterDetails,
    Cni,
    read_cluster,
)
from providers.alibabacloud.tests.discovery.worlds import Readers


def answer(network, **more):
    meta = {"Capabilities": {"Network": network}, "Runtime": "containerd", "RuntimeVersion": "1.6"}
    return {"meta_data": json.dumps(meta), "current_version": "1.32.1-aliyun.1", **more}


@pytest.mark.parametrize(
    ("network", "cni"),
    [
        ("terway-eniip", Cni.TERWAY_ENIIP),
        ("terway-eni", Cni.TERWAY_ENI),
        ("terway-controlplane", Cni.TERWAY_ENIIP),
        ("Flannel", Cni.FLANNEL),
        ("flannel", Cni.FLANNEL),
        ("calico", Cni.CUSTOM),
    ],
)
def test_the_network_is_read_from_the_meta_data(network, cni):
    assert read_cluster(answer(network)).cni is cni


def test_the_prefix_of_a_node_counts_for_flannel_only():
    """Case 30 needs it."""
    assert read_cluster(answer("Flannel", node_cidr_mask="26")).node_cidr_mask == 26
    assert read_cluster(answer("Flannel", node_cidr_mask="")).node_cidr_mask is None
    assert read_cluster(answer("terway-eniip", node_cidr_mask="26")).node_cidr_mask is None


def test_a_cluster_without_a_network_cannot_be_read():
    for meta in ("{}", "[]", '{"Capabilities": {}}', "no JSON"):
        with pytest.raises(ValueError):  # noqa: PT011 - json's own is one, too
            read_cluster({"meta_data": meta})


def test_the_cluster_is_read_once_in_a_quarter_of_an_hour(cloud, clients):
    readers = Readers(cloud, clients)

    details = readers.cluster.details()
    readers.cluster.details()

    assert details == ClusterDetails(
        cni=Cni.TERWAY_ENIIP,
        kubernetes_version="1.32.1-aliyun.1",
    )
    assert cloud.calls.count("DescribeClusterDetail") == 1
    readers.clock.forward(minutes=15)
    readers.cluster.details()
    assert cloud.calls.count("DescribeClusterDetail") == 2


@pytest.mark.parametrize("trouble", ["denied", "silent", "unreadable"])
def test_cluster_facts_are_kept_while_ack_does_not_answer(cloud, clients, trouble):
    """Before that there is an error: nothing is made up."""
    known = Readers(cloud, clients)
    details = known.cluster.details()
    known.clock.forward(hours=1)
    match trouble:
        case "denied":
            cloud.deny("DescribeClusterDetail")
        case "silent":
            cloud.cut_off("DescribeClusterDetail")
        case _:
            cloud.clusters.get(cloud.world.cluster).unreadable = True

    assert known.cluster.details() == details
    kind = AuthError if trouble == "denied" else CloudProviderError
    with pytest.raises(kind, match="cs:DescribeClusterDetail"):
        Readers(cloud, clients).cluster.details()


def test_a_missing_cluster_is_reported_with_its_setting(cloud, clients):
    cloud.clusters.clear()

    with pytest.raises(
        CloudProviderError,
        match=f'--cluster-id: there is no cluster "{cloud.world.cluster}" in the region'
        " cn-hangzhou: .*ErrorClusterNotFound",
    ):
        Readers(cloud, clients).cluster.details()


def test_a_cluster_outside_ack_is_not_queried(cloud, clients):
    """Case 79."""
    readers = Readers(cloud, clients, cluster_type="Custom")

    assert readers.cluster.details().cni is Cni.CUSTOM
    assert readers.cluster.is_custom
    assert cloud.calls.all == ()
