"""Settings of the provider, read as the process reads them (acceptance case 150)."""

from __future__ import annotations

import base64
from datetime import timedelta
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import SettingsError
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_aws.settings import NODE_CLASS_CEL, SETTINGS, AwsSettings

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def read(*arguments, environment=None, cluster_name="prod", ca_bundle=""):
    settings = load_settings(arguments, environment or {}, plugin_options=SETTINGS)
    cluster = ClusterFacts(name=cluster_name, ca_bundle=ca_bundle)
    return AwsSettings.from_context(
        SimpleNamespace(
            settings=settings.plugins, cluster=cluster, feature_gates=settings.feature_gates
        )
    )


def test_defaults_are_those_of_the_reference():
    """Also those of the class itself, which tests and tools make without a context."""
    assert read() == AwsSettings(cluster_name="prod")
    assert AwsSettings(cluster_name="prod") == AwsSettings(
        cluster_name="prod",
        cluster_endpoint="",
        cluster_ca_bundle="",
        isolated_vpc=False,
        eks_control_plane=False,
        vm_memory_overhead_percent=0.075,
        interruption_queue="",
        reserved_enis=0,
        disable_dry_run=False,
        enable_zonal_shift=False,
        ami_refresh_interval=timedelta(minutes=1),
        subnet_refresh_interval=timedelta(minutes=1),
        reserved_capacity=True,
        gates=frozenset(),
    )


def test_the_cores_reservation_gate_is_used():
    assert not read("--feature-gates", "ReservedCapacity=false").reserved_capacity


def test_every_setting_reaches_its_field():
    environment = {
        "CLUSTER_ENDPOINT": "https://abc.eks.amazonaws.com",
        "CLUSTER_CA_BUNDLE": "TUlJQg==",
        "ISOLATED_VPC": "true",
        "EKS_CONTROL_PLANE": "true",
        "VM_MEMORY_OVERHEAD_PERCENT": "0",
        "INTERRUPTION_QUEUE": "prod-karpenter",
        "RESERVED_ENIS": "1",
        "DISABLE_DRY_RUN": "true",
        "ENABLE_ZONAL_SHIFT": "true",
        "AMI_REFRESH_INTERVAL": "5m",
        "SUBNET_REFRESH_INTERVAL": "2m",
        "AWS_FEATURE_GATES": "NodeClassCEL=true",
    }

    assert read(environment=environment) == AwsSettings(
        cluster_name="prod",
        cluster_endpoint="https://abc.eks.amazonaws.com",
        cluster_ca_bundle="TUlJQg==",
        isolated_vpc=True,
        eks_control_plane=True,
        vm_memory_overhead_percent=0.0,
        interruption_queue="prod-karpenter",
        reserved_enis=1,
        disable_dry_run=True,
        enable_zonal_shift=True,
        ami_refresh_interval=timedelta(minutes=5),
        subnet_refresh_interval=timedelta(minutes=2),
        gates=frozenset({NODE_CLASS_CEL}),
    )
    assert {spec.env for spec in SETTINGS} == environment.keys()


def test_a_flag_beats_the_environment():
    assert read("--reserved-enis=2", environment={"RESERVED_ENIS": "1"}).reserved_enis == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cluster-endpoint=relative/path"], "--cluster-endpoint: .*relative/path"),
        (["--cluster-endpoint=https://"], "--cluster-endpoint"),
        (["--cluster-endpoint=https://[::1"], "--cluster-endpoint"),
        (["--cluster-ca-bundle=-----BEGIN"], "--cluster-ca-bundle"),
        (["--vm-memory-overhead-percent=-0.1"], "--vm-memory-overhead-percent: .*-0.1"),
        (["--vm-memory-overhead-percent=nan"], "--vm-memory-overhead-percent"),
        (["--vm-memory-overhead-percent=inf"], "--vm-memory-overhead-percent"),
        (["--vm-memory-overhead-percent=much"], "vm-memory-overhead-percent"),
        (["--reserved-enis=-1"], "--reserved-enis: .*-1"),
        (["--ami-refresh-interval=30s"], "--ami-refresh-interval: .*30s"),
        (["--subnet-refresh-interval=30s"], "--subnet-refresh-interval: .*30s"),
        (["--aws-feature-gates=NodeClassCEL=maybe"], "NodeClassCEL .*maybe"),
        (["--aws-feature-gates=NodeClassCEL"], "NodeClassCEL"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start(arguments, complaint):
    with pytest.raises(SettingsError, match=complaint):
        read(*arguments)


def test_a_cluster_without_a_name_stops_the_start():
    with pytest.raises(SettingsError, match="--cluster-name"):
        read(cluster_name="")


def test_all_complaints_come_together():
    with pytest.raises(SettingsError) as raised:
        read("--reserved-enis=-1", "--ami-refresh-interval=1s", cluster_name="")

    for flag in ("--cluster-name", "--reserved-enis", "--ami-refresh-interval"):
        assert flag in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "ISOLATED_VPC",
        "EKS_CONTROL_PLANE",
        "VM_MEMORY_OVERHEAD_PERCENT",
        "RESERVED_ENIS",
        "DISABLE_DRY_RUN",
        "ENABLE_ZONAL_SHIFT",
        "AMI_REFRESH_INTERVAL",
        "SUBNET_REFRESH_INTERVAL",
    ],
)
def test_a_value_in_the_environment_that_cannot_be_read_is_the_default(name):
    assert read(environment={name: "much"}) == read()


@pytest.mark.parametrize("text", ["", "Unknown=true", "Unknown", " , ", "NodeClassCEL=false"])
def test_unknown_gates_are_ignored(text):
    assert read(f"--aws-feature-gates={text}").gates == frozenset()


def test_an_unknown_gate_is_logged():
    with capture_logs() as logs:
        settings = read("--aws-feature-gates=NodeClasCEL=true")

    assert settings.unknown_gates == ("NodeClasCEL",)
    assert [(line["log_level"], line["gate"]) for line in logs] == [("warning", "NodeClasCEL")]


def test_a_known_gate_counts_with_an_unknown_one():
    assert read("--aws-feature-gates=Unknown=x, NodeClassCEL = true").gates == {NODE_CLASS_CEL}


def test_nodes_use_the_ca_bundle_of_the_process_by_default():
    found = read(ca_bundle=PEM).cluster_ca_bundle

    assert base64.b64decode(found).decode() == PEM
    assert read("--cluster-ca-bundle=TUlJQg==", ca_bundle=PEM).cluster_ca_bundle == "TUlJQg=="
