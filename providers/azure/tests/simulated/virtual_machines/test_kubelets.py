"""Nodes that virtual machines register, and announcements of evictions on them."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

import pytest

from karpenter_core.provider.kit.simulated.kubelets import KubeletFaultKind

SCRIPT = """#!/bin/bash
TLS_BOOTSTRAP_TOKEN="abcdef.0123456789abcdef" KUBERNETES_VERSION="1.33.1" GPU_NODE="{gpu}" \\
KUBELET_FLAGS="--max-pods=30 --kube-reserved=cpu=140m,memory=1638Mi --eviction-hard=memory.available<750Mi" \\
KUBELET_NODE_LABELS="kubernetes.azure.com/mode=user" /opt/azure/containers/provision_start.sh
"""
GIB = 2**30


def conditions(node):
    return {each["type"]: each for each in node["status"].get("conditions", ())}


def test_a_virtual_machine_registers_its_node(azure, cloud):
    provider_id = cloud.create_vm("aks-A", custom_data=SCRIPT, zone="3")
    assert provider_id.startswith("azure:///subscriptions/")
    assert f"/resourceGroups/{azure.group.lower()}/" in provider_id
    node = cloud.nodes()[provider_id]
    assert node["metadata"]["name"] == "aks-a"
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.azure.com/mode"] == "user"
    assert labels["topology.kubernetes.io/zone"] == "westus2-3"
    assert labels["node.kubernetes.io/instance-type"] == "Standard_D4s_v5"
    assert node["spec"]["providerID"] == provider_id
    status = node["status"]
    assert (status["capacity"]["cpu"], status["capacity"]["pods"]) == ("4", "30")
    assert status["allocatable"]["cpu"] == "3860m"
    capacity, left = (int(status[each]["memory"]) for each in ("capacity", "allocatable"))
    assert 0.92 * 16 * GIB < capacity < 16 * GIB
    assert capacity - left == (1638 + 750) * 2**20
    assert status["nodeInfo"]["kubeletVersion"] == "v1.33.1"
    assert status["addresses"][0] == {"type": "InternalIP", "address": "10.224.0.4"}


def test_the_name_of_a_host_ends_at_the_first_dot(cloud):
    node = cloud.node(cloud.create_vm("aks-team.a-1", custom_data=SCRIPT))
    assert node["metadata"]["name"] == "aks-team"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "aks-team"


def test_a_node_outside_of_zones_has_the_zone_0(cloud):
    node = cloud.node(cloud.create_vm("aks-a", zone=""))
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "0"


@pytest.mark.parametrize(("gpu", "count"), [("true", "1"), ("false", None)])
def test_gpus_are_reported_once_drivers_are_installed(cloud, gpu, count):
    provider_id = cloud.create_vm(
        "aks-a", size="Standard_NC24ads_A100_v4", custom_data=SCRIPT.format(gpu=gpu)
    )
    assert cloud.node(provider_id)["status"]["capacity"].get("nvidia.com/gpu") == count


def test_a_virtual_machine_boots_after_its_creation(azure, cloud):
    cloud.behaviour.pending_seconds, cloud.behaviour.boot_seconds = 20, 45
    azure.put()
    cloud.time.advance(64)
    assert cloud.node("aks-a") is None
    cloud.time.advance(1)
    assert cloud.node("aks-a") is not None


def test_custom_data_that_joins_no_cluster_brings_no_node(azure, cloud):
    cloud.create_vm("aks-a", custom_data="#!/bin/bash\ntrue\n")
    assert cloud.node("aks-a") is None
    failure = cloud.kubelets.boot_failure(cloud.instance("aks-a"))
    assert "provision_start.sh" in failure


def test_a_kubelet_may_never_join(cloud):
    with cloud.kubelets.fault(KubeletFaultKind.NEVER_JOINS):
        assert cloud.node(cloud.create_vm("aks-a")) is None
    assert cloud.node("aks-a") is not None


def test_an_eviction_is_announced_on_the_node_30_seconds_before(cloud):  # case 129
    provider_id = cloud.create_vm("aks-a", spot=True)
    assert not conditions(cloud.node(provider_id))
    ends_at = cloud.reclaim(provider_id)
    assert (ends_at - cloud.time()).total_seconds() == pytest.approx(30, abs=1)
    found = conditions(cloud.node(provider_id))
    assert found.keys() == {"PreemptionScheduled", "VMEventScheduled"}
    condition = found["PreemptionScheduled"]
    assert (condition["status"], condition["reason"]) == ("True", "SpotEvictionIncoming")
    date = condition["message"].removeprefix("Preempt Scheduled: ").partition(". ")[0]
    assert parsedate_to_datetime(date) == ends_at.astimezone(UTC).replace(microsecond=0)
    cloud.time.advance(30)
    assert provider_id not in cloud.nodes()


def test_without_the_problem_detector_evictions_come_unannounced(cloud):
    cloud.kubelets.reports_preemption = False
    provider_id = cloud.create_vm("aks-a", spot=True)
    cloud.reclaim(provider_id)
    assert not conditions(cloud.node(provider_id))


def test_nodes_of_virtual_machines_that_are_deleted_are_gone(azure, cloud):
    cloud.behaviour.terminating_seconds = 10
    azure.create()
    azure.send("DELETE", azure.path("aks-a"))
    assert not cloud.nodes()
