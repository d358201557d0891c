"""Metrics, alerts and dashboards of a release."""

from __future__ import annotations

import json
import shutil

import yaml

from tests.support.helm import (
    CHART,
    only,
    render,
)


def test_objects_for_prometheus_and_grafana_are_optional(values_of):
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
