"""Settings of the provider, read as the process reads them (acceptance case 98)."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_alibabacloud.settings import SETTINGS, AlibabaCloudSettings

CLUSTER = "--cluster-id=c1"


def read(*arguments, environment=None):
    settings = load_settings(arguments, environment or {}, plugin_options=SETTINGS)
    cluster = ClusterFacts(name="", ca_bundle="")
    context = SimpleNamespace(settings=settings.plugins, cluster=cluster)
    return AlibabaCloudSettings.from_context(context)


def test_defaults_are_those_users_know():
    """Also those of the class itself, which tests and tools make without a context."""
    assert read(CLUSTER) == AlibabaCloudSettings(cluster_id="c1")
    assert AlibabaCloudSettings(cluster_id="c1") == AlibabaCloudSettings(
        cluster_id="c1",
        region_id="",
        network="",
        vm_memory_overhead_percent=0.065,
        interruption=True,
        interruption_poll_interval=timedelta(seconds=20),
        launch_rate_per_second=10.0,
        launch_burst=100,
        launch_api="",
        cluster_type="ACKManaged",
        endpoint_ecs="",
        endpoint_vpc="",
        endpoint_cs="",
        endpoint_protocol="https",
        http_pool=64,
        price_file="",
        metadata_endpoint="http://100.100.100.200",
    )


def test_every_setting_reaches_its_field():
    environment = {
        "CLUSTER_ID": "c1",
        "REGION_ID": "cn-hangzhou",
        "ALIBABA_CLOUD_NETWORK": "vpc",
        "VM_MEMORY_OVERHEAD_PERCENT": "0",
        "INTERRUPTION": "false",
        "INTERRUPTION_POLL_INTERVAL": "30s",
        "TELEMETRY_SHARE": "true",
        "LAUNCH_QPS": "2.5",
        "LAUNCH_BURST": "7",
        "APG_CREATION_QPS": "50",
        "LAUNCH_API": "RunInstances",
        "CLUSTER_TYPE": "Custom",
        "ALIBABA_ENDPOINT_ECS": "127.0.0.1:8001",
        "ALIBABA_ENDPOINT_VPC": "localhost",
        "ALIBABA_ENDPOINT_CS": "[::1]:8003",
        "ALIBABA_ENDPOINT_PROTOCOL": "http",
        "ALIBABA_HTTP_POOL": "8",
        "PRICE_FILE": "/etc/karpenter/prices.json",
        "METADATA_ENDPOINT": "http://127.0.0.1:8004/",
    }

    assert read(environment=environment) == AlibabaCloudSettings(
        cluster_id="c1",
        region_id="cn-hangzhou",
        network="vpc",
        vm_memory_overhead_percent=0.0,
        interruption=False,
        interruption_poll_interval=timedelta(seconds=30),
        launch_rate_per_second=2.5,
        launch_burst=7,
        launch_api="RunInstances",
        cluster_type="Custom",
        endpoint_ecs="127.0.0.1:8001",
        endpoint_vpc="localhost",
        endpoint_cs="[::1]:8003",
        endpoint_protocol="http",
        http_pool=8,
        price_file="/etc/karpenter/prices.json",
        metadata_endpoint="http://127.0.0.1:8004",
    )
    assert {spec.env for spec in SETTINGS} == environment.keys()


def test_the_old_name_of_the_burst_counts_where_the_new_one_is_not_given():
    assert read(CLUSTER, environment={"APG_CREATION_QPS": "30"}).launch_burst == 30
    assert read(CLUSTER, "--launch-burst=5", "--apg-qps=30").launch_burst == 5
    assert read(CLUSTER, "--launch-burst=1").launch_burst == 1


def test_a_flag_beats_the_environment():
    assert read("--cluster-id=c1", environment={"CLUSTER_ID": "c2"}).cluster_id == "c1"


@pytest.mark.parametrize("given", [(), ("--cluster-id=",), ("--cluster-id= ",)])
def test_a_cluster_without_an_id_stops_the_start(given):
    """Case 98."""
    with pytest.raises(SettingsError, match="--cluster-id: must be given"):
        read(*given)


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--alibaba-cloud-network=moon", '--alibaba-cloud-network: .*public or vpc.*"moon"'),
        ("--launch-api=Magic", '--launch-api: .*RunInstances, not "Magic"'),
        ("--cluster-type=ack", '--cluster-type: .*Custom, not "ack"'),
        ("--alibaba-endpoint-protocol=ftp", "--alibaba-endpoint-protocol: .*ftp"),
        ("--vm-memory-overhead-percent=-0.1", "--vm-memory-overhead-percent: .*-0.1"),
        ("--vm-memory-overhead-percent=nan", "--vm-memory-overhead-percent"),
        ("--vm-memory-overhead-percent=1", "--vm-memory-overhead-percent"),
        ("--vm-memory-overhead-percent=much", "vm-memory-overhead-percent"),
        ("--interruption-poll-interval=10ms", "--interruption-poll-interval: .*10ms"),
        ("--launch-qps=0", "--launch-qps: .*0"),
        ("--launch-qps=inf", "--launch-qps: .*inf"),
        ("--launch-burst=-1", "--launch-burst: .*-1"),
        ("--apg-qps=0", "--launch-burst: .*0"),
        ("--alibaba-http-pool=0", "--alibaba-http-pool: .*0"),
        ("--alibaba-endpoint-ecs=http://127.0.0.1", "--alibaba-endpoint-ecs: .*http://127.0.0.1"),
        ("--alibaba-endpoint-vpc=host/path", "--alibaba-endpoint-vpc: .*host/path"),
        ("--alibaba-endpoint-cs=host:port", "--alibaba-endpoint-cs: .*host:port"),
        ("--alibaba-endpoint-cs=[::1", "--alibaba-endpoint-cs"),
        ("--metadata-endpoint=100.100.100.200", "--metadata-endpoint: .*100.100.100.200"),
        ("--metadata-endpoint=", "--metadata-endpoint"),
        ("--metadata-endpoint=http://[::1", "--metadata-endpoint: must be a URL"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start(argument, complaint):
    with pytest.raises(SettingsError, match=complaint):
        read(CLUSTER, argument)


def test_all_complaints_come_together():
    with pytest.raises(SettingsError) as raised:
        read("--cluster-type=ack", "--launch-qps=0")

    for part in ("cluster-id", "--cluster-type", "--launch-qps"):
        assert part in str(raised.value)


@pytest.mark.parametrize("name", ["VM_MEMORY_OVERHEAD_PERCENT", "APG_CREATION_QPS", "INTERRUPTION"])
def test_an_unreadable_variable_of_the_reference_is_the_default(name):
    assert read(CLUSTER, environment={name: "much"}) == read(CLUSTER)


@pytest.mark.parametrize("name", ["LAUNCH_QPS", "ALIBABA_HTTP_POOL", "INTERRUPTION_POLL_INTERVAL"])
def test_an_unreadable_variable_of_ours_stops_the_start(name):
    with pytest.raises(SettingsError, match=f'^{name}: must be .*, not "much"$'):
        read(CLUSTER, environment={name: "much"})


def test_telemetry_is_accepted_and_changes_nothing():
    assert read(CLUSTER, "--telemetry-share=false") == read(CLUSTER)
