"""The pods of a release, and what finds them."""

from __future__ import annotations

import pytest

from karpenter_core.operator.options import OPTIONS
from tests.charts.conftest import EVERY, PARTS
from tests.repository.test_examples import CLOUDS, documents
from tests.support.helm import (
    CHART,
    container_of,
    helm,
    only,
    pod_of,
    render,
)


@EVERY
def test_lint_finds_nothing(name):
    helm("lint", "--strict", CHART, "--values", CHART / "ci" / f"{name}-values.yaml")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_values_of_the_guide_are_accepted(cloud):
    (values,) = documents(f"{cloud}/values")

    assert only(render(values, namespace="kube-system"), "Deployment")


@EVERY
def test_service_and_budget_and_spread_mean_the_pods_of_the_release_alone(values_of, name):
    objects = render(values_of(name), name="first")
    others = render(values_of(name), name="second")
    labels = pod_of(objects)["metadata"]["labels"].items()
    spec = only(objects, "Deployment")["spec"]
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    selectors = [
        spec["selector"]["matchLabels"],
        only(objects, "Service")["spec"]["selector"],
        only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        affinity["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"][
            "matchLabels"
        ],
        spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]

    assert all(selector.items() <= labels for selector in selectors)
    of_others = pod_of(others)["metadata"]["labels"].items()
    assert not any(selector.items() <= of_others for selector in selectors)


def test_two_replicas_keep_apart_and_one_may_be_evicted(values_of):
    objects = render(values_of("aws"))
    spec = pod_of(objects)["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = spec["topologySpreadConstraints"]

    assert only(objects, "Deployment")["spec"]["replicas"] == 2
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert spec["priorityClassName"] == "system-cluster-critical"


def test_the_controller_is_not_put_on_nodes_of_its_own(values_of):
    affinity = pod_of(render(values_of("aws")))["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert term["matchExpressions"] == [
        {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
    ]


def test_a_selector_of_the_user_is_kept(values_of):
    own = {"matchLabels": {"a": "b"}}
    values = {
        **values_of("aws"),
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}},
                    {"weight": 2, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": own}},
                ]
            }
        },
    }
    affinity = pod_of(render(values))["spec"]["affinity"]["podAntiAffinity"]
    first, second = affinity["preferredDuringSchedulingIgnoredDuringExecution"]

    assert "app.kubernetes.io/instance" in first["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert second["podAffinityTerm"]["labelSelector"] == own


@EVERY
def test_probes_and_the_metrics_service_use_the_ports_of_the_process(values_of, name):
    values = values_of(name)
    values["controller"] |= {"metrics": {"port": 9090}, "healthProbe": {"port": 9091}}
    objects = render(values)
    container = container_of(objects)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    (metrics,) = only(objects, "Service")["spec"]["ports"]

    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = container[probe]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, 9091)
    assert variables["METRICS_PORT"] == str(ports[metrics["targetPort"]]) == "9090"
    assert variables["HEALTH_PROBE_PORT"] == "9091"
    assert metrics["name"] == "http-metrics"


def test_the_service_has_the_ip_families_of_the_cluster_or_those_of_the_values(values_of):
    values = values_of("aws")
    fields = {"ipFamilyPolicy", "ipFamilies"}
    assert not fields & only(render(values), "Service")["spec"].keys()
    values["service"] = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    spec = only(render(values), "Service")["spec"]
    assert {field: spec[field] for field in fields} == values["service"]


def test_a_leader_has_the_name_of_its_pod_also_in_the_network_of_the_host(values_of):
    """There the host name is that of the node, at which no command would find the leader."""
    objects = render({**values_of("aws"), "hostNetwork": True})
    (variable,) = (each for each in container_of(objects)["env"] if each["name"] == "POD_NAME")

    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_ports_default_to_those_of_the_process(values_of):
    options = {option.env: option.default_text for option in OPTIONS}
    variables = {
        each["name"]: each.get("value") for each in container_of(render(values_of("aws")))["env"]
    }

    for name in ("METRICS_PORT", "HEALTH_PROBE_PORT", "LOG_LEVEL", "LOG_OUTPUT_PATHS"):
        assert variables[name] == options[name]


@EVERY
def test_the_pod_has_no_more_power_than_it_needs(values_of, name):
    """As the restricted Pod Security Standard demands, and with a read-only root."""
    objects = render(values_of(name))
    pod = pod_of(objects)["spec"]
    container = container_of(objects)

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in pod
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_the_controller_writes_into_its_volumes_alone(values_of):
    objects = render(values_of("aws"))
    container = container_of(objects)
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}

    assert variables["CACHE_FOLDER"] in mounts.values()
    assert "/tmp" in mounts.values()
    assert {volume["name"] for volume in pod_of(objects)["spec"]["volumes"]} == mounts.keys()


def test_requests_and_limits_are_shown_only_where_there_are_some(values_of):
    """Without a limit, Kubernetes would tell that of the node."""
    values = values_of("aws")
    values["controller"]["resources"] = {"requests": None, "limits": {"memory": None}}

    def told(objects) -> set[str]:
        return {
            each["name"]
            for each in container_of(objects)["env"]
            if "resourceFieldRef" in each.get("valueFrom", {})
        }

    assert told(render(values_of("aws"))) == {"CPU_REQUESTS", "MEMORY_LIMIT"}
    assert told(render(values)) == set()


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "registry.example.com/team/karpenter-core-aws:0.1.0"),
        ({"tag": "1.2.3"}, "registry.example.com/team/karpenter-core-aws:1.2.3"),
        ({"repository": "other.example.com/mine"}, "other.example.com/mine:0.1.0"),
        (
            {"digest": f"sha256:{'a' * 64}"},
            f"registry.example.com/team/karpenter-core-aws@sha256:{'a' * 64}",
        ),
        (
            {"tag": "1", "digest": f"sha256:{'a' * 64}"},
            f"registry.example.com/team/karpenter-core-aws:1@sha256:{'a' * 64}",
        ),
    ],
)
def test_the_image(values_of, image, reference):
    values = values_of("aws")
    values["controller"]["image"] |= image

    assert container_of(render(values))["image"] == reference


def test_several_providers_have_the_image_with_all_of_them(values_of):
    container = container_of(render(values_of("several")))

    assert container["image"] == "registry.example.com/team/karpenter-core-all:0.1.0"


@EVERY
def test_only_pods_for_azure_have_the_label_of_workload_identity(values_of, name):
    labels = pod_of(render(values_of(name)))["metadata"]["labels"]

    assert ("azure.workload.identity/use" in labels) == ("azure" in PARTS[name])


def test_rrsa_within_the_vpc_uses_its_sts_endpoint(values_of):
    variables = {
        each["name"]: each.get("value")
        for each in container_of(render(values_of("alibabacloud")))["env"]
    }

    assert variables["ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED"] == "true"
    assert variables["ALIBABA_CLOUD_STS_REGION"] == "cn-hangzhou"


def test_further_containers_share_the_mounts_that_they_are_given(values_of):
    values = values_of("aws")
    values["extraVolumes"] = [{"name": "shared", "emptyDir": {}}]
    values["controller"] |= {
        "extraVolumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "sidecarContainer": [{"name": "proxy", "image": "proxy:1"}],
        "sidecarVolumeMounts": [{"name": "tmp", "mountPath": "/proxy"}],
    }
    pod = pod_of(render(values))["spec"]
    controller, sidecar = pod["containers"]

    assert {"name": "shared", "mountPath": "/shared"} in controller["volumeMounts"]
    assert sidecar["volumeMounts"] == [
        {"name": "tmp", "mountPath": "/proxy"},
        {"name": "shared", "mountPath": "/shared"},
    ]
    assert pod["volumes"][-1]["name"] == "shared"


def test_labels_and_annotations_of_the_user_are_on_all_objects(values_of):
    values = {
        **values_of("azure"),
        "additionalLabels": {"team": "infra"},
        "additionalAnnotations": {"owner": "infra"},
    }
    objects = render(values)

    assert all(each["metadata"]["labels"]["team"] == "infra" for each in objects)
    assert all(each["metadata"]["annotations"]["owner"] == "infra" for each in objects)
    client = "azure.workload.identity/client-id"
    assert client in only(objects, "ServiceAccount")["metadata"]["annotations"]


def test_the_namespace_of_the_release_is_that_of_all_its_objects(values_of):
    objects = render(values_of("aws"), namespace="system")
    elsewhere = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

    assert {each["metadata"]["namespace"] for each in objects if each["kind"] not in elsewhere} == {
        "system"
    }


@pytest.mark.parametrize(
    ("value", "declared"), [(None, None), (0, None), (8090, 8090), ("8090", 8090)]
)
def test_the_port_of_the_dashboard_is_declared_if_it_is_served(values_of, value, declared):
    values = values_of("aws")
    values["settings"] = {**values.get("settings", {}), "dashboardPort": value}
    container = container_of(render(values))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}

    assert ports.get("http-dashboard") == declared
    assert variables.get("DASHBOARD_PORT") == (None if value is None else str(value))
