"""Values that are missing, unknown or do not fit are refused, in one message that names them."""

from __future__ import annotations

import re

import pytest

from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.host.manager import load_plugins
from tests.support.helm import HelmError, only, render

OF_THE_REFERENCE: dict[str, object] = {
    "nameOverride": "",
    "fullnameOverride": "",
    "additionalLabels": {},
    "additionalAnnotations": {},
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [],
    "service": {"annotations": {}},
    "serviceAccount": {"create": True, "name": "", "annotations": {}},
    "additionalClusterRoleRules": [],
    "serviceMonitor": {
        "enabled": False,
        "additionalLabels": {},
        "relabelings": [],
        "metricRelabelings": [],
        "endpointConfig": {},
        "sampleLimit": None,
    },
    "replicas": 2,
    "revisionHistoryLimit": 10,
    "strategy": {"rollingUpdate": {"maxUnavailable": 1}},
    "podLabels": {},
    "podAnnotations": {},
    "podDisruptionBudget": {"name": "karpenter", "maxUnavailable": 1},
    "podSecurityContext": {"fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "priorityClassName": "system-cluster-critical",
    "terminationGracePeriodSeconds": None,
    "hostNetwork": False,
    "schedulerName": "default-scheduler",
    "dnsPolicy": "ClusterFirst",
    "dnsConfig": {},
    "initContainers": [],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname"}
            ]
        }
    },
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    "extraVolumes": [],
    "controller": {
        "containerName": "controller",
        "image": {"repository": "registry.example.com/controller", "tag": "1", "digest": ""},
        "env": [],
        "envFrom": [],
        "securityContext": {"appArmorProfile": {}, "seLinuxOptions": {}, "seccompProfile": {}},
        "resources": {},
        "extraVolumeMounts": [],
        "sidecarContainer": [],
        "sidecarVolumeMounts": [],
        "metrics": {"port": 8080},
        "healthProbe": {"port": 8081},
    },
    "logLevel": "info",
    "logOutputPaths": ["stdout"],
    "logErrorOutputPaths": ["stderr"],
    "settings": {
        "batchMaxDuration": "10s",
        "batchIdleDuration": "1s",
        "preferencePolicy": "Respect",
        "minValuesPolicy": "Strict",
        "clusterCABundle": "",
        "clusterName": "my-cluster",
        "clusterEndpoint": "",
        "isolatedVPC": False,
        "eksControlPlane": False,
        "vmMemoryOverheadPercent": 0.075,
        "interruptionQueue": "",
        "enableZonalShift": False,
        "reservedENIs": "0",
        "ignoreDRARequests": True,
        "disableClusterStateObservability": False,
        "disableDryRun": False,
        "amiRefreshInterval": "1m",
        "subnetRefreshInterval": "1m",
        "featureGates": {
            "nodeRepair": False,
            "nodeOverlay": False,
            "reservedCapacity": True,
            "spotToSpotConsolidation": False,
            "staticCapacity": False,
            "capacityBuffer": False,
        },
        "awsFeatureGates": {"nodeClassCEL": False},
    },
}
"""The values of the chart of Karpenter's AWS provider, version 1.14, with their defaults."""


def test_the_values_of_the_reference_chart_are_accepted():
    """With their own defaults they change nothing but the image and names."""
    objects = render({"provider": "aws", **OF_THE_REFERENCE})
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    declared = load_plugins().settings()["aws"]

    settings = load_settings([], environment_of(objects), plugin_options=declared)
    defaults = load_settings(
        ["--providers=aws", "--cluster-name=my-cluster"], {}, plugin_options=declared
    )

    assert container["image"] == "registry.example.com/controller:1"
    assert {} not in container["securityContext"].values()
    assert settings.warnings == ()
    for name in ("batch_max_duration", "batch_idle_duration", "feature_gates", "plugins"):
        assert getattr(settings, name) == getattr(defaults, name)


def environment_of(objects) -> dict[str, str]:
    """Return the variables of the controller that have a literal value."""
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def complaint(values) -> str:
    with pytest.raises(HelmError) as refused:
        render(values)
    return str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"provider": "gcp"}, "at '/provider': value must be one of"),
        ({"provider": ["aws", "gcp"]}, "at '/provider/1': value must be one of"),
        ({"provider": []}, "at '/provider': minItems"),
        ({"settings": {"clusterNam": "x"}}, "at '/settings': additional properties 'clusterNam'"),
        ({"webhook": {"enabled": True}}, "at '': additional properties 'webhook' not allowed"),
        ({"controller": {"image": {"tags": "1"}}}, "at '/controller/image': additional prop"),
        ({"settings": {"featureGates": {"drift": True}}}, "properties 'drift' not allowed"),
        ({"settings": {"batchMaxDuration": 10}}, "'/settings/batchMaxDuration': got number"),
        ({"settings": {"batchMaxDuration": "10"}}, "'10' does not match pattern"),
        ({"settings": {"preferencePolicy": "Never"}}, "must be one of 'Respect', 'Ignore'"),
        ({"settings": {"maxNodesTotal": -1}}, "at '/settings/maxNodesTotal': minimum"),
        ({"settings": {"isolatedVPC": "yes"}}, "at '/settings/isolatedVPC': got string"),
        ({"replicas": "2"}, "at '/replicas': got string, want integer"),
        ({"logLevel": "warn"}, "at '/logLevel': value must be one of 'debug'"),
        ({"controller": {"image": {"digest": "sha256:1"}}}, "at '/controller/image/digest'"),
        ({"tolerations": [{"key": "a", "operater": "Exists"}]}, "'operater' not allowed"),
    ],
)
def test_the_schema_names_the_invalid_field(values, said):
    assert said in complaint(values)


def test_without_a_provider_the_message_names_the_choices():
    assert "provider: must be aws, alibabacloud, azure or kwok" in complaint({})


@pytest.mark.parametrize(
    ("cloud", "names"),
    [
        ("alibabacloud", {"clusterID"}),
        ("aws", {"clusterName"}),
        (
            "azure",
            {
                "azureSubscriptionID",
                "clusterEndpoint",
                "clusterName",
                "location",
                "nodeResourceGroup",
                "sshPublicKey",
                "vnetSubnetID",
            },
        ),
    ],
)
def test_each_required_setting_that_is_missing_is_named(values_of, cloud, names):
    values = values_of(cloud)
    for name in names:
        del values["settings"][name]

    text = complaint(values)

    assert set(re.findall(r"settings\.(\w+): required by the provider", text)) == names


def test_a_required_setting_may_come_from_a_variable_or_a_config_map(values_of):
    values = values_of("aws")
    del values["settings"]["clusterName"]
    sources = ({"env": [{"name": "CLUSTER_NAME", "value": "x"}]},
               {"envFrom": [{"configMapRef": {"name": "settings"}}]})  # fmt: skip

    for source in sources:
        assert render({**values, "controller": {**values["controller"], **source}})


def test_the_bootstrap_token_has_to_come_from_somewhere(values_of):
    values = values_of("azure")
    del values["credentialsSecret"]

    assert "credentialsSecret: the provider azure requires KUBELET_BOOTSTRAP_TOKEN" in complaint(
        values
    )


def test_another_variable_that_does_instead_is_enough(values_of):
    values = values_of("azure")
    values["settings"]["armSubscriptionID"] = values["settings"].pop("azureSubscriptionID")

    assert environment_of(render(values))["ARM_SUBSCRIPTION_ID"]


def test_a_setting_that_no_chosen_provider_reads_is_refused(values_of):
    values = values_of("aws")
    values["settings"]["location"] = "westus2"

    assert "settings.location: read only by the provider azure, and provider is aws" in complaint(
        values
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"controller": {}}, "controller.image.registry: where the image karpenter-core-aws is"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name: required"),
        (
            {"settings": {"clusterName": "x", "disableLeaderElection": True}},
            "settings.disableLeaderElection: needs replicas=1",
        ),
        (
            {"provider": "kwok", "settings": {}, "replicas": 2},
            "replicas: must be 1 with the provider kwok",
        ),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(values_of, changed, said):
    assert said in complaint({**values_of("aws"), **changed})


def test_a_provider_of_the_users_own_needs_an_image_that_has_it():
    values = {"additionalProviders": ["mycloud"]}
    assert "controller.image.repository: the image that has the provider mycloud" in complaint(
        values
    )

    alone = render({**values, "controller": {"image": {"repository": "mine"}}})
    beside = render({**values, "provider": "kwok", "replicas": 1,
                     "controller": {"image": {"repository": "mine"}}})  # fmt: skip

    assert environment_of(alone)["PROVIDERS"] == "mycloud"
    assert environment_of(beside)["PROVIDERS"] == "kwok,mycloud"


def test_all_problems_are_in_one_message():
    text = complaint({"provider": "azure", "settings": {"isolatedVPC": True}})

    assert text.count("\n  - ") == 10


@pytest.mark.parametrize("cloud", ["aws", "alibabacloud", "azure", "kwok", "several"])
def test_the_controller_reads_every_setting_without_a_warning(values_of, cloud):
    environment = environment_of(render(values_of(cloud)))
    providers = environment["PROVIDERS"].split(",")
    declared = load_plugins().settings()

    settings = load_settings(
        [], environment, plugin_options=[spec for name in providers for spec in declared[name]]
    )

    assert (list(settings.providers), settings.warnings) == (providers, ())


@pytest.mark.parametrize(
    ("name", "value", "variable", "text"),
    [
        ("maxNodesTotal", 67108864, "MAX_NODES_TOTAL", "67108864"),
        ("reservedENIs", "1", "RESERVED_ENIS", "1"),
        ("vmMemoryOverheadPercent", 0.0625, "VM_MEMORY_OVERHEAD_PERCENT", "0.0625"),
        ("nodeFee", 0, "NODE_FEE", "0"),
        ("isolatedVPC", False, "ISOLATED_VPC", "false"),
        ("repairUnhealthyLimit", "10%", "REPAIR_UNHEALTHY_LIMIT", "10%"),
        (
            "featureGates",
            {"nodeRepair": True, "reservedCapacity": False},
            "FEATURE_GATES",
            "NodeRepair=true,ReservedCapacity=false",
        ),
        ("awsFeatureGates", {"nodeClassCEL": True}, "AWS_FEATURE_GATES", "NodeClassCEL=true"),
        ("exchangeRates", {"CNY": 0.14, "EUR": 1}, "EXCHANGE_RATES", "CNY=0.14,EUR=1"),
        ("leaderElectionLabels", {"a": "b", "c": "d"}, "LEADER_ELECTION_LABELS", "a=b,c=d"),
        ("repairConditions", ["A=True:1m", "B=True:never"], "REPAIR_CONDITIONS",
         "A=True:1m,B=True:never"),
        ("schedulerConfig", {"a": [1]}, "SCHEDULER_CONFIG", '{"a":[1]}'),
        ("batchMaxDuration", "1m30s", "BATCH_MAX_DURATION", "1m30s"),
    ],
)  # fmt: skip
def test_a_value_becomes_the_text_that_the_controller_reads(values_of, name, value, variable, text):
    values = values_of("aws")
    values["settings"][name] = value

    assert environment_of(render(values))[variable] == text


def test_an_empty_text_is_a_value_and_null_is_none(values_of):
    values = values_of("azure")
    values["settings"] |= {"networkPluginMode": "", "networkPolicy": None}

    environment = environment_of(render(values))

    assert environment["NETWORK_PLUGIN_MODE"] == ""
    assert "NETWORK_POLICY" not in environment


def test_a_variable_of_the_user_replaces_that_of_the_chart(values_of):
    """A name that is there twice would be refused by the API server."""
    values = values_of("aws")
    values["controller"]["env"] = [
        {"name": "CLUSTER_NAME", "value": "other"},
        {"name": "AWS_REGION", "value": "eu-west-1"},
    ]
    (container,) = only(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]

    assert [
        each for each in container["env"] if each["name"] in {"CLUSTER_NAME", "AWS_REGION"}
    ] == (values["controller"]["env"])
