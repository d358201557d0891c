"""Objects of a release, as Helm renders them."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from typing import Any

import pytest
import yaml

from karpenter_core.cli.rbac import render_rbac
from karpenter_core.operator.settings import OPTIONS
from karpenter_core.provider.contract import ObjectRead
from karpenter_core.provider.host.manager import load_plugins
from tests.repository.test_examples import CLOUDS, documents
from tests.support.helm import CHART, CRD_CHART, ROOT, HelmError, helm, only, render

PARTS = {
    "alibabacloud": ["alibabacloud"],
    "aws": ["aws"],
    "azure": ["azure"],
    "kwok": ["kwok"],
    "several": ["aws", "alibabacloud"],
}
EVERY = pytest.mark.parametrize("name", sorted(PARTS))


def pod_of(objects) -> dict[str, Any]:
    return only(objects, "Deployment")["spec"]["template"]


def container_of(objects) -> dict[str, Any]:
    (result,) = pod_of(objects)["spec"]["containers"]
    return result


def rights(documents) -> set[tuple[str, ...]]:
    """Return namespace, group, resource, object and verb of each right in roles."""
    return {
        (document["metadata"].get("namespace", ""), group, resource, name, verb)
        for document in documents
        if document["kind"] in {"Role", "ClusterRole"}
        and not document["metadata"]["name"].endswith("-admin")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@EVERY
def test_lint_finds_nothing(name):
    helm("lint", "--strict", CHART, "--values", CHART / "ci" / f"{name}-values.yaml")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_values_of_the_guide_are_accepted(cloud):
    (values,) = documents(f"{cloud}/values")

    assert only(render(values, namespace="kube-system"), "Deployment")


def test_lint_finds_nothing_in_the_chart_of_the_crds():
    helm("lint", "--strict", CRD_CHART)


@EVERY
@pytest.mark.parametrize("namespace", ["kube-system", "karpenter"])
def test_the_account_has_exactly_the_rights_that_the_code_declares(values_of, name, namespace):
    infos = [info_of(each, namespace) for each in PARTS[name]]
    declared = render_rbac(infos, namespace=namespace, service_account="karpenter")

    assert rights(render(values_of(name), namespace=namespace)) == rights(declared)


def info_of(provider, namespace):
    """Return what the provider declares in a pod of this namespace."""
    info = load_plugins().providers[provider].info
    usual = os.environ.get("SYSTEM_NAMESPACE") or "kube-system"
    reads = tuple(
        ObjectRead(resource=it.resource, namespace=namespace, name=it.name)
        if (it.resource, it.namespace) == ("configmaps", usual)
        else it
        for it in info.reads
    )
    return replace(info, reads=reads)


@pytest.mark.parametrize("name", ["aws", "azure", "kwok"])
def test_an_observer_may_only_read(values_of, name):
    values = values_of(name)
    values.setdefault("settings", {})["observe"] = True
    infos = [info_of(each, "karpenter") for each in PARTS[name]]
    declared = render_rbac(infos, namespace="karpenter", service_account="karpenter", observe=True)

    rendered = rights(render(values))

    assert rendered == rights(declared)
    assert {verb for *_, verb in rendered} <= {"get", "list", "watch"}


@EVERY
def test_every_role_is_bound_to_the_account_that_the_pods_run_under(values_of, name):
    objects = render({**values_of(name), "fullnameOverride": "scaler"}, namespace="system")
    roles = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in objects
        if each["kind"].endswith("Role") and not each["metadata"]["name"].endswith("-admin")
    }
    bindings = [each for each in objects if each["kind"].endswith("Binding")]
    account = only(objects, "ServiceAccount")["metadata"]

    assert {
        (each["roleRef"]["kind"], each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in bindings
    } == roles
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": "system"}
    assert all(each["subjects"] == [subject] for each in bindings)
    assert pod_of(objects)["spec"]["serviceAccountName"] == account["name"] == "scaler"


def test_the_lease_of_the_settings_is_the_one_that_may_be_changed(values_of):
    values = values_of("aws")
    values["settings"]["leaderElectionName"] = "mine"
    names = {(name, verb) for _, _, kind, name, verb in rights(render(values)) if kind == "leases"}

    assert names == {("", "create"), ("mine", "get"), ("mine", "patch")}


def test_rules_of_the_user_are_added(values_of):
    rule = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["list"]}

    added = rights(render({**values_of("aws"), "additionalClusterRoleRules": [rule]}))

    assert added - rights(render(values_of("aws"))) == {("", "example.com", "things", "", "list")}


def test_administrators_may_change_pools_and_the_classes_of_the_providers(values_of):
    (admin,) = (
        each
        for each in render(values_of("several"))
        if each["metadata"].get("labels", {}).get("rbac.authorization.k8s.io/aggregate-to-admin")
    )

    assert {resource for rule in admin["rules"] for resource in rule["resources"]} == {
        "nodepools",
        "nodeclaims",
        "ec2nodeclasses",
        "ecsnodeclasses",
    }


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
def test_probes_and_metrics_are_asked_where_they_are_served(values_of, name):
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


def test_ports_are_those_of_the_process_unless_told_otherwise(values_of):
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


def test_requests_and_limits_are_told_only_where_there_are_some(values_of):
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
def test_only_azure_pods_ask_for_workload_identity(values_of, name):
    labels = pod_of(render(values_of(name)))["metadata"]["labels"]

    assert ("azure.workload.identity/use" in labels) == ("azure" in PARTS[name])


def test_the_account_carries_the_identity_of_the_cloud(values_of):
    account = only(render(values_of("alibabacloud")), "ServiceAccount")

    assert account["metadata"]["annotations"] == {
        "pod-identity.alibabacloud.com/role-name": "karpenter"
    }


def test_rrsa_within_the_vpc_asks_the_sts_there(values_of):
    variables = {
        each["name"]: each.get("value")
        for each in container_of(render(values_of("alibabacloud")))["env"]
    }

    assert variables["ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED"] == "true"
    assert variables["ALIBABA_CLOUD_STS_REGION"] == "cn-hangzhou"


@EVERY
def test_no_secret_is_read_that_was_not_named(values_of, name):
    objects = render(values_of(name))
    named = values_of(name).get("credentialsSecret")

    assert not any(each["kind"] == "Secret" for each in objects)
    assert container_of(objects).get("envFrom", []) == (
        [{"secretRef": {"name": named}}] if named else []
    )
    assert not any("ACCESS_KEY" in each["name"] for each in container_of(objects)["env"])


def test_an_account_that_exists_is_used(values_of):
    values = {**values_of("aws"), "serviceAccount": {"create": False, "name": "there"}}
    objects = render(values)

    assert not any(each["kind"] == "ServiceAccount" for each in objects)
    assert pod_of(objects)["spec"]["serviceAccountName"] == "there"


def test_nothing_of_prometheus_or_grafana_is_made_unless_asked_for(values_of):
    kinds = {each["kind"] for each in render(values_of("aws"))}

    assert kinds & {"ServiceMonitor", "PrometheusRule", "ConfigMap"} == set()


def test_a_service_monitor_finds_the_port_of_the_service(values_of):
    values = {
        **values_of("aws"),
        "serviceMonitor": {
            "enabled": True,
            "additionalLabels": {"release": "prometheus"},
            "endpointConfig": {"interval": "30s"},
            "sampleLimit": 5000,
        },
    }
    objects = render(values)
    monitor, service = only(objects, "ServiceMonitor"), only(objects, "Service")
    (endpoint,) = monitor["spec"]["endpoints"]

    assert endpoint == {"port": "http-metrics", "path": "/metrics", "interval": "30s"}
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["karpenter"]}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["sampleLimit"] == 5000


def test_every_alert_and_dashboard_of_the_chart_is_in_the_release(values_of, tmp_path):
    """Files of two kinds that nothing may change: Grafana and Prometheus have templates of their own."""
    chart = shutil.copytree(CHART, tmp_path / "karpenter")
    for folder in ("alerts", "dashboards"):
        (chart / folder).mkdir(exist_ok=True)
    group = {
        "name": "of-the-test",
        "rules": [
            {
                "alert": "TooMany",
                "expr": 'sum(rate(a{b="c"}[5m])) > 1e6',
                "for": "10m",
                "annotations": {"summary": "{{ $labels.pool }} has {{ $value }}"},
            }
        ],
    }
    (chart / "alerts" / "zz-test.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    board = {"title": "{{pool}} of $cluster", "panels": [{"id": 12345678901, "text": 'a "b"\n'}]}
    (chart / "dashboards" / "zz-test.json").write_text(json.dumps(board))
    values = {
        **values_of("aws"),
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True, "annotations": {"folder": "Karpenter"}},
    }

    objects = render(values, chart=chart)

    groups = only(objects, "PrometheusRule")["spec"]["groups"]
    assert groups[-1] == group
    files = sorted((chart / "alerts").glob("*.yaml"))
    assert groups == [each for path in files for each in yaml.safe_load(path.read_text())["groups"]]
    boards = [each for each in objects if each["kind"] == "ConfigMap"]
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in boards)
    assert all(each["metadata"]["annotations"] == {"folder": "Karpenter"} for each in boards)
    assert {name: text for each in boards for name, text in each["data"].items()} == {
        path.name: path.read_text() for path in (chart / "dashboards").glob("*.json")
    }
    assert len({each["metadata"]["name"] for each in boards}) == len(boards)


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
    ("provider", "kinds"),
    [
        ("aws", {"EC2NodeClass"}),
        (["aws", "kwok"], {"EC2NodeClass", "KWOKNodeClass"}),
        ([], set()),
    ],
)
def test_the_crds_are_those_of_the_chosen_providers(provider, kinds):
    objects = render({"provider": provider}, chart=CRD_CHART)

    assert {each["spec"]["names"]["kind"] for each in objects} == {"NodePool", "NodeClaim"} | kinds


def test_the_crds_are_those_of_the_project():
    rendered = {each["metadata"]["name"]: each["spec"] for each in render(chart=CRD_CHART)}
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]

    assert rendered == {each["metadata"]["name"]: each["spec"] for each in files}


def test_the_crds_stay_when_the_release_goes_unless_told_otherwise():
    kept = render({"additionalAnnotations": {"a": "b"}}, chart=CRD_CHART)
    gone = render({"keep": False}, chart=CRD_CHART)

    assert all(
        each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"}
        for each in kept
    )
    assert not any(each["metadata"].get("annotations") for each in gone)


def test_the_chart_of_the_crds_refuses_what_it_does_not_know():
    with pytest.raises(HelmError, match=re.escape("at '/provider': value must be one of")):
        render({"provider": "gcp"}, chart=CRD_CHART)
