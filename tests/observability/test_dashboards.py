"""Dashboards are fresh, readable and bound to no data source."""

from __future__ import annotations

import json

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from charts.dashboards.__main__ import rendered
from tests.observability.expressions import DASHBOARDS, dashboards, documented_metrics

TITLES = tuple(dashboards())
PANELS = [
    pytest.param(panel, id=f"{title}: {panel['title']}")
    for title, document in dashboards().items()
    for panel in document["panels"]
    if panel["type"] != "row"
]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"short", "s", "bytes", "percent", "percentunit", "reqps", "ops"}


def test_committed_files_equal_the_generated_ones():
    """A stale one: `python -m charts.dashboards`."""
    assert rendered() == {path: path.read_text() for path in DASHBOARDS}


@pytest.mark.parametrize("title", TITLES)
def test_a_dashboard_fits_the_schema(title):
    """Grafana's library keeps every field when it reads a dashboard and writes it again."""
    document = dashboards()[title]
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    assert again == document


@pytest.mark.parametrize("title", TITLES)
def test_a_dashboard_can_be_chosen_and_filtered(title):
    """Data source and cluster are variables; identities are stable, so that links last."""
    document = dashboards()[title]
    variables = {each["name"]: each for each in document["templating"]["list"]}

    assert document["uid"].startswith("karpenter-")
    assert document["description"]
    assert title.startswith("Karpenter / ")
    assert variables["datasource"]["query"] == "prometheus"
    assert {"datasource", "cluster"} < set(variables)
    for variable in variables.values():
        assert variable["label"]
        if variable["type"] == "query":
            assert variable["datasource"] == SOURCE
            assert (variable["includeAll"], variable["allValue"]) == (True, ".*")


def test_panels_have_numbers_and_titles_of_their_own():
    for document in dashboards().values():
        ids = [panel["id"] for panel in document["panels"]]
        titles = [panel["title"] for panel in document["panels"] if panel["type"] != "row"]
        assert len(set(ids)) == len(ids)
        assert len(set(titles)) == len(titles)


def test_panels_do_not_overlap():
    for document in dashboards().values():
        cells = [
            (x, y)
            for panel in document["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) == 23


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_is_readable(panel):
    """Title, description, unit, and a legend for each query that may have several series."""
    assert panel["title"][0].isupper()
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target.get("legendFormat") or panel["type"] in {"table", "stat"}
        assert 'cluster=~"$cluster"' in target["expr"]


def test_metrics_of_karpenters_dashboards_have_their_names():
    """Those that dashboards of the reference controller read exist here with the same labels."""
    documented = documented_metrics()
    expected = {
        "karpenter_nodeclaims_created_total": {"reason", "nodepool"},
        "karpenter_nodeclaims_terminated_total": {"nodepool"},
        "karpenter_nodeclaims_disrupted_total": {"reason", "nodepool"},
        "karpenter_nodepools_allowed_disruptions": {"nodepool", "reason"},
        "karpenter_nodepools_limit": {"nodepool", "resource_type"},
        "karpenter_nodepools_usage": {"nodepool", "resource_type"},
        "karpenter_nodes_allocatable": {"nodepool", "node_name", "instance_type", "resource_type"},
        "karpenter_nodes_total_pod_requests": {"nodepool", "node_name", "resource_type"},
        "karpenter_pods_startup_duration_seconds": {"quantile"},
        "karpenter_pods_state": {"phase", "nodepool", "zone", "owner"},
        "karpenter_scheduler_scheduling_duration_seconds_bucket": {"le"},
        "karpenter_scheduler_queue_depth": {"controller"},
        "karpenter_voluntary_disruption_eligible_nodes": {"reason"},
        "karpenter_voluntary_disruption_decisions_total": {"decision", "reason"},
        "karpenter_cloudprovider_duration_seconds_bucket": {"controller", "method", "provider"},
        "karpenter_cloudprovider_errors_total": {"controller", "method", "provider", "error"},
        "karpenter_cloudprovider_instance_type_offering_price_estimate": {"instance_type", "zone"},
        "karpenter_interruption_received_messages_total": {"message_type"},
        "karpenter_cluster_state_node_count": set(),
        "operator_nodeclaim_status_condition_count": {"type", "status", "reason"},
        "aws_sdk_go_request_total": {"service", "action", "status_code"},
    }
    for name, labels in expected.items():
        assert labels <= documented[name], name
