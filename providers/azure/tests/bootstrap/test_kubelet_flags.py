"""Flags of the kubelet by version, size and NodeClass."""

from __future__ import annotations

import pytest

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.kubelet_flags import eviction_text, kubelet_flags
from providers.azure.tests.bootstrap.boots import boot, cluster, node_claim, node_class, vm_size

BY_VERSION = (
    "azure-container-registry-config",
    "cloud-config",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "keep-terminated-pod-volumes",
    "pod-infra-container-image",
)


def flags_of(version: str = "1.33.4", **kubelet):
    spec = {"kubelet": kubelet} if kubelet else {}
    return kubelet_flags(boot(of=node_class(version=version, **spec)))


def test_flags_that_depend_on_nothing():
    found = flags_of()

    assert list(found) == sorted(found)
    assert {
        name: found[name]
        for name in (
            "address",
            "anonymous-auth",
            "authorization-mode",
            "cloud-provider",
            "cluster-domain",
            "enforce-node-allocatable",
            "event-qps",
            "image-gc-high-threshold",
            "image-gc-low-threshold",
            "node-status-update-frequency",
            "pod-max-pids",
            "protect-kernel-defaults",
            "read-only-port",
            "rotate-certificates",
            "streaming-connection-idle-timeout",
        )
    } == {
        "address": "0.0.0.0",
        "anonymous-auth": "false",
        "authorization-mode": "Webhook",
        "cloud-provider": "external",
        "cluster-domain": "cluster.local",
        "enforce-node-allocatable": "pods",
        "event-qps": "0",
        "image-gc-high-threshold": "85",
        "image-gc-low-threshold": "80",
        "node-status-update-frequency": "10s",
        "pod-max-pids": "-1",
        "protect-kernel-defaults": "true",
        "read-only-port": "0",
        "rotate-certificates": "true",
        "streaming-connection-idle-timeout": "4h",
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "1.29.9",
            {
                "azure-container-registry-config",
                "cloud-config",
                "keep-terminated-pod-volumes",
                "pod-infra-container-image",
            },
        ),
        ("1.30.0", {*BY_VERSION} - {"azure-container-registry-config"}),
        (
            "1.31.0",
            {*BY_VERSION} - {"azure-container-registry-config", "keep-terminated-pod-volumes"},
        ),
        (
            "1.34.0",
            {
                "image-credential-provider-bin-dir",
                "image-credential-provider-config",
                "pod-infra-container-image",
            },
        ),
        (
            "1.35.1",
            {"image-credential-provider-bin-dir", "image-credential-provider-config"},
        ),
    ],
)
def test_flags_come_and_go_with_versions(version, expected):
    # case 88
    assert {name for name in flags_of(version) if name in BY_VERSION} == expected


def test_pods_reserved_resources_and_taints_are_the_nodes_own():
    # case 88
    found = flags_of()

    assert found["max-pods"] == "250"
    assert found["kube-reserved"] == "cpu=100m,memory=1843Mi"
    assert found["register-with-taints"] == "karpenter.sh/unregistered=:NoExecute"
    assert found["cluster-dns"] == "10.0.0.10"


def test_reserved_resources_follow_the_size():
    found = kubelet_flags(boot(size=vm_size("Standard_F4", cpus=4, memory_gib=7.0)))

    assert found["kube-reserved"] == "cpu=140m,memory=1638Mi"


@pytest.mark.parametrize(
    ("network", "pods"),
    [
        ({"network_plugin_mode": ""}, "30"),
        ({"network_plugin_mode": "overlay"}, "250"),
        ({"network_plugin": "none", "network_plugin_mode": ""}, "250"),
    ],
)
def test_pods_follow_the_network_unless_the_class_limits_them(network, pods):
    of_cluster = cluster(**network)

    assert kubelet_flags(boot(of_cluster=of_cluster))["max-pods"] == pods
    limited = kubelet_flags(boot(of_cluster=of_cluster, of=node_class(maxPods=50)))
    assert limited["max-pods"] == "50"


def test_thresholds_for_disks_stay_beside_that_for_memory():
    assert flags_of()["eviction-hard"] == (
        "memory.available<750Mi,nodefs.available<10%,nodefs.inodesFree<5%"
    )
    assert eviction_text({"memory.available": "1Gi", "pid.available": "10%"}) == (
        "memory.available<1Gi,nodefs.available<10%,nodefs.inodesFree<5%,pid.available<10%"
    )


def test_all_taints_are_registered():
    claim = node_claim(
        taints=[{"key": "team", "value": "web", "effect": "NoSchedule"}],
        startup_taints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}],
    )

    assert kubelet_flags(boot(claim=claim))["register-with-taints"] == (
        "karpenter.sh/unregistered=:NoExecute,team=web:NoSchedule,"
        "node.cilium.io/agent-not-ready=:NoExecute"
    )


def test_without_kubelet_settings_the_kubelets_own_defaults_hold():
    assert not {"cpu-manager-policy", "container-log-max-size", "fail-swap-on"} & flags_of().keys()


def test_kubelet_settings_override_flags():
    found = flags_of(
        cpuManagerPolicy="static",
        cpuCFSQuota=False,
        cpuCFSQuotaPeriod="50ms",
        imageGCHighThresholdPercent=70,
        imageGCLowThresholdPercent=60,
        topologyManagerPolicy="best-effort",
        allowedUnsafeSysctls=["kernel.msg*", "net.core.somaxconn"],
        containerLogMaxSize="1Gi",
        containerLogMaxFiles=3,
        podPidsLimit=4096,
        failSwapOn=False,
    )

    assert {
        "cpu-manager-policy": "static",
        "cpu-cfs-quota": "false",
        "cpu-cfs-quota-period": "50ms",
        "image-gc-high-threshold": "70",
        "image-gc-low-threshold": "60",
        "topology-manager-policy": "best-effort",
        "allowed-unsafe-sysctls": "kernel.msg*,net.core.somaxconn",
        "container-log-max-size": "1024Mi",
        "container-log-max-files": "3",
        "pod-max-pids": "4096",
        "fail-swap-on": "false",
    }.items() <= found.items()


def test_settings_that_are_left_out_have_the_defaults_of_the_api():
    found = flags_of(failSwapOn=True)

    assert found["container-log-max-size"] == "50Mi"
    assert found["container-log-max-files"] == "5"
    assert found["image-gc-high-threshold"] == "85"
    assert found["fail-swap-on"] == "true"


@pytest.mark.parametrize(
    ("period", "gates"),
    [
        ("100ms", None),
        ("0.1s", None),
        ("50ms", "CustomCPUCFSQuotaPeriod=true"),
        ("unreadable", "CustomCPUCFSQuotaPeriod=true"),
    ],
)
def test_another_quota_period_has_the_feature_gate_that_the_kubelet_asks_for(period, gates):
    """It does not start without it."""
    assert flags_of(cpuCFSQuotaPeriod=period).get("feature-gates") == gates


@pytest.mark.parametrize(
    ("high", "low", "used"),
    [
        (None, None, ("85", "80")),
        (90, None, ("90", "80")),
        (82, None, ("82", "77")),
        (75, None, ("75", "70")),
        (3, None, ("3", "0")),
        (None, 70, ("85", "70")),
        (None, 90, ("95", "90")),
        (None, 98, ("100", "98")),
        (60, 50, ("60", "50")),
    ],
)
def test_a_threshold_that_is_left_out_does_not_contradict_the_other(high, low, used):
    """The kubelet does not start with a high threshold that is not above the low one."""
    given = {"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low}
    found = flags_of(**{name: value for name, value in given.items() if value is not None})
    assert (found["image-gc-high-threshold"], found["image-gc-low-threshold"]) == used


@pytest.mark.parametrize("name", ["a b", 'x"', "net.core.*; reboot", "$(id)", "", "vm.swappiness"])
def test_a_sysctl_that_would_end_the_flag_is_refused(name):
    with pytest.raises(
        NodeClassNotReadyError, match=r"spec\.kubelet\.allowedUnsafeSysctls"
    ) as raised:
        flags_of(allowedUnsafeSysctls=[name])

    assert 'AKSNodeClass "web"' in str(raised.value)


@pytest.mark.parametrize(
    "period", ["100ms --authorization-mode=AlwaysAllow", '100ms"', "100ms\n--x", "$(reboot)"]
)
def test_a_value_that_would_end_its_flag_is_refused(period):
    """An API server with another CRD may let it in."""
    with pytest.raises(NodeClassNotReadyError, match=r"spec\.kubelet\.cpuCFSQuotaPeriod"):
        flags_of(cpuCFSQuotaPeriod=period)
