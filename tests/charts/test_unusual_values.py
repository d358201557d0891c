"""Unusual but legal values give objects that every tool of a deployment takes."""

from __future__ import annotations

import json

import pytest

from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.host.manager import load_plugins
from tests.charts.strict_yaml import rendered_strictly
from tests.charts.test_rights import rights
from tests.support.helm import HelmError, container_of, only, pod_of, render


def complaint(values) -> str:
    with pytest.raises(HelmError) as refused:
        render(values)
    return str(refused.value)


def with_env(values, **variables):
    """Return the values with these variables of the container."""
    values["controller"]["env"] = [
        {"name": name, "value": value} for name, value in variables.items()
    ]
    return values


def test_no_label_is_there_twice(values_of, tmp_path):
    """Those of one object go first, but never before the labels by which pods are selected."""
    team = {"team": "of-the-object"}
    values = {
        **values_of("azure"),
        "additionalLabels": {
            "team": "of-all",
            "app.kubernetes.io/managed-by": "argo",
            "app.kubernetes.io/name": "other",
        },
        # As the values of Karpenter's chart for Azure have it.
        "podLabels": {**team, "azure.workload.identity/use": "true"},
        "serviceMonitor": {"enabled": True, "additionalLabels": team},
        "prometheusRule": {"enabled": True, "additionalLabels": team},
        "dashboards": {"enabled": True, "labels": {**team, "grafana_dashboard": "1"}},
    }

    objects = rendered_strictly(values, tmp_path)

    labels = pod_of(objects)["metadata"]["labels"]
    assert labels["azure.workload.identity/use"] == "true"
    assert only(objects, "Service")["metadata"]["labels"]["team"] == "of-all"
    assert only(objects, "Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert (
        {labels["team"]}
        == {
            each["metadata"]["labels"]["team"]
            for each in objects
            if each["kind"] in {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
        }
        == {"of-the-object"}
    )
    assert {each["metadata"]["labels"]["app.kubernetes.io/managed-by"] for each in objects} == {
        "argo"
    }


def test_a_field_of_the_endpoint_replaces_that_of_the_chart(values_of, tmp_path):
    values = values_of("aws")
    values["settings"] |= {
        "metricsTLSCertFile": "/tls/tls.crt",
        "metricsTLSKeyFile": "/tls/tls.key",
    }
    own = {"scheme": "https", "interval": "30s", "tlsConfig": {"insecureSkipVerify": True}}
    values["serviceMonitor"] = {"enabled": True, "endpointConfig": own}

    (endpoint,) = only(rendered_strictly(values, tmp_path), "ServiceMonitor")["spec"]["endpoints"]

    assert endpoint == {"port": "http-metrics", "path": "/metrics", **own}


def test_names_that_look_like_numbers_stay_texts(values_of):
    """The API server refuses a number as a name or a label."""
    values = {**values_of("aws"), "nameOverride": "1e3", "priorityClassName": "7"}
    values["serviceMonitor"] = {"enabled": True}

    objects = render(values, name="2024", namespace="123")

    names = [each["metadata"]["name"] for each in objects]
    texts = [
        text
        for each in objects
        for text in (each["metadata"].get("namespace", ""), *each["metadata"]["labels"].values())
    ]
    assert {type(text) for text in (*names, *texts)} == {str}
    assert pod_of(objects)["spec"]["priorityClassName"] == "7"
    assert only(objects, "ServiceMonitor")["spec"]["namespaceSelector"] == {"matchNames": ["123"]}
    short = render({**values, "fullnameOverride": "456"})
    assert {each["roleRef"]["name"] for each in short if "roleRef" in each} == {"456"}
    assert pod_of(short)["spec"]["serviceAccountName"] == "456"


EMPTY = (
    "additionalAnnotations", "additionalClusterRoleRules", "additionalLabels",
    "additionalProviders", "controller.env", "controller.envFrom", "controller.extraVolumeMounts",
    "controller.healthProbe", "controller.metrics", "controller.sidecarContainer",
    "controller.sidecarVolumeMounts", "dashboards", "extraVolumes", "imagePullSecrets",
    "initContainers", "logErrorOutputPaths", "logFormat", "logLevel", "logOutputPaths", "podAnnotations",
    "podDisruptionBudget", "podLabels", "prometheusRule", "replicas", "service", "serviceAccount",
    "serviceMonitor", "controller.containerName",
)  # fmt: skip


@pytest.mark.parametrize("path", EMPTY)
def test_a_value_without_content_is_its_default(values_of, path):
    """`podLabels:` with nothing below it is null in YAML, as in a file whose lines are comments."""
    values = values_of("aws")
    *sections, name = path.split(".")
    part = values
    for section in sections:
        part = part[section]
    part[name] = None

    assert render(values) == render(values_of("aws"))


def test_settings_and_resources_without_content_are_none(values_of):
    values = {**values_of("kwok"), "settings": None}
    values["controller"]["resources"] = None
    container = container_of(render(values))

    assert "resources" not in container
    assert not any("resourceFieldRef" in each.get("valueFrom", {}) for each in container["env"])


def test_replacing_all_pods_at_once_has_no_fields_of_rolling_updates(values_of):
    """The API server refuses them together."""
    values = {**values_of("aws"), "strategy": {"type": "Recreate"}}

    assert only(render(values), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_no_service_of_the_namespace_becomes_a_setting(values_of):
    """A Service `dashboard` would set DASHBOARD_PORT to tcp://…, with which no process starts."""
    pod = pod_of(render(values_of("aws")))["spec"]

    assert pod["enableServiceLinks"] is False


def test_a_variable_of_the_user_grants_what_it_needs(values_of):
    """It takes precedence over the setting, so permissions follow the variable too."""
    values = with_env(values_of("aws"), LEADER_ELECTION_NAME="mine", METRICS_TOKEN_AUTH="1")
    values["settings"]["leaderElectionName"] = "other"
    granted = rights(render(values))

    assert {name for _, _, kind, name, _ in granted if kind == "leases"} == {"", "mine"}
    assert {kind for _, _, kind, _, _ in granted} >= {"tokenreviews", "subjectaccessreviews"}

    observing = rights(render(with_env(values_of("aws"), OBSERVE="true")))
    assert {verb for *_, verb in observing} == {"get", "list", "watch"}
    moving = rights(render(with_env(values_of("aws"), SURGE_MOVES="true")))
    assert ("", "apps", "deployments", "", "patch") in moving
    served = with_env(values_of("aws"), METRICS_TLS_CERT_FILE="/tls/tls.crt")
    served["serviceMonitor"] = {"enabled": True}
    (endpoint,) = only(render(served), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DISABLE_LEADER_ELECTION": "true"}, "settings.disableLeaderElection: needs replicas=1"),
        (
            {"METRICS_PORT": "9090"},
            "controller.env: METRICS_PORT is not controller.metrics.port, at which",
        ),
        (
            {"HEALTH_PROBE_PORT": "9090"},
            "controller.env: HEALTH_PROBE_PORT is not controller.healthProbe.port, at which",
        ),
        (
            {"LEADER_ELECTION_NAMESPACE": "elsewhere"},
            "controller.env: LEADER_ELECTION_NAMESPACE is not the namespace of the release",
        ),
        (
            {"PROVIDERS": "aws,azure"},
            "controller.env: PROVIDERS is not aws, for which the permissions",
        ),
        (
            {"HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1"},
            "settings.healthProbeBindAddress: 127.0.0.1 is reached only from inside the pod",
        ),
    ],
)
def test_variables_that_do_not_fit_the_pod_are_refused(values_of, variables, said):
    assert said in complaint(with_env(values_of("aws"), **variables))


@pytest.mark.parametrize("address", ["localhost", "::1"])
def test_probes_are_served_where_the_kubelet_asks(values_of, address):
    values = values_of("aws")
    values["settings"]["healthProbeBindAddress"] = address
    assert f"settings.healthProbeBindAddress: {address} is reached only" in complaint(values)


def test_ports_differ_from_each_other(values_of):
    values = values_of("aws")
    values["controller"]["metrics"] = {"port": 8081}
    assert "controller.healthProbe.port: is the port of controller.metrics too" in complaint(values)


def test_lists_may_be_written_as_lists(values_of):
    commitment = {"name": "plan", "resource": "cpu", "amount": 400, "price": 0.019}
    values = values_of("aws")
    values["settings"] |= {"commitments": [commitment], "observeNodes": ["group=a", "other"]}
    environment = {
        each["name"]: each["value"]
        for each in container_of(render(values))["env"]
        if "value" in each
    }

    assert json.loads(environment["COMMITMENTS"]) == [commitment]
    assert environment["OBSERVE_NODES"] == "group=a,other"
    settings = load_settings([], environment, plugin_options=load_plugins().settings()["aws"])
    assert settings.warnings == ()
    assert [each.name for each in settings.commitments] == ["plan"]
