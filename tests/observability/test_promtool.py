"""promtool accepts the alert rules, and their unit tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.observability.expressions import ALERTS, alert_rules, panel_expressions
from tests.observability.prometheus_server import promtool

pytestmark = pytest.mark.e2e

UNIT_TESTS = tuple(sorted(Path(__file__).parent.glob("alerts*_test.yaml")))


def test_the_rules_are_valid():
    """Without a lint message, either."""
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", *ALERTS)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_the_unit_tests_of_the_rules_pass(path: Path):
    tested = promtool("test", "rules", path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_unit_test_in_which_it_fires():
    tests = "".join(path.read_text() for path in UNIT_TESTS)
    firing = re.findall(r'ALERTS\{alertname="(\w+)".*\n *eval_time: .*\n *exp_samples:\n', tests)
    assert set(firing) == set(alert_rules())


def test_a_broken_rule_fails_its_unit_test(tmp_path: Path):
    """The tests are able to fail: here no alert fires in time."""
    rules = tmp_path / "charts" / "karpenter" / "alerts"
    rules.mkdir(parents=True)
    for path in ALERTS:
        (rules / path.name).write_text(re.sub(r"for: \w+", "for: 100d", path.read_text()))
    tests = tmp_path / "tests" / "observability"
    tests.mkdir(parents=True)
    (tests / "alerts_test.yaml").write_text(
        (Path(__file__).parent / "alerts_test.yaml").read_text()
    )
    tested = promtool("test", "rules", "--run=^KarpenterNoLeader$", tests / "alerts_test.yaml")
    assert tested.returncode != 0
    assert "KarpenterNoLeader" in tested.stdout + tested.stderr


TWO_CLUSTERS = {
    'karpenter_nodepools_price_per_hour{cluster="%s",instance="i",nodepool="default",'
    'capacity_type="spot",currency="USD"}': (2, 5),
    'karpenter_nodes_without_price{cluster="%s",instance="i",nodepool="default"}': (1, 2),
    'karpenter_nodes_allocatable{cluster="%s",instance="i",nodepool="default",node_name="n",'
    'zone="a",managed="true",resource_type="cpu"}': (4, 4),
    'karpenter_pods_state{cluster="%s",instance="i",namespace="default",name="web-0",'
    'phase="Running"}': (1, 1),
    'karpenter_scheduler_unschedulable_pods_count{cluster="%s",instance="i",'
    'controller="provisioner"}': (3, 4),
    'karpenter_scheduler_ignored_pods_count{cluster="%s",instance="i"}': (1, 1),
    'karpenter_voluntary_disruption_eligible_nodes{cluster="%s",instance="i",reason="empty"}': (
        1,
        2,
    ),
    'karpenter_nodepools_cost_total{cluster="%s",instance="i",nodepool="default"}': (2, 5),
}
"""Series of two clusters whose objects have the same names, and their values."""


@pytest.mark.parametrize(
    ("panel", "expected"),
    [
        ("Capacity and cost: Price per hour", ['{currency="USD"} 7']),
        ("Capacity and cost: Cost per hour in the reporting currency", ['{nodepool="default"} 7']),
        ("Capacity and cost: Nodes without a price", ["{} 3"]),
        ("Capacity and cost: Nodes by zone", ['{zone="a"} 2']),
        ("Capacity and cost: Pods by phase", ['{phase="Running"} 2']),
        ("Performance: Pending pods without a node", ["{} 7", "{} 2"]),
        ("Disruption: Eligible nodes", ['{reason="empty"} 3']),
    ],
)
def test_a_panel_adds_up_what_has_the_same_name_in_several_clusters(panel, expected, tmp_path):
    """All clusters are chosen at first; two replicas of one cluster count once."""
    series = {
        selector.replace("%s", cluster).replace('"i"', f'"{cluster}-{replica}"'): value
        for selector, values in TWO_CLUSTERS.items()
        for cluster, value in zip(("east", "west"), values, strict=True)
        for replica in "ab"
    }

    assert evaluated(panel, series, expected, tmp_path) == ""


def test_the_cheapest_price_is_one_of_an_offering_that_can_be_launched(tmp_path):
    offering = 'instance_type="%s",capacity_type="spot",zone="a"'
    series = {
        f"karpenter_cloudprovider_instance_type_{metric}{{{labels % name}}}": value
        for name, price, available in (("gone", 0.1, 0), ("there", 0.4, 1))
        for metric, labels, value in (
            ("offering_price_estimate", offering, price),
            ("offering_available", offering, available),
            ("cpu_cores", 'instance_type="%s"', 2),
        )
    }
    panel = "Provider health: Cheapest price per vCPU and hour"

    assert evaluated(panel, series, ['{capacity_type="spot"} 0.2'], tmp_path) == ""


def evaluated(panel: str, series: dict[str, float], expected: list[str], folder: Path) -> str:
    """Return what promtool says against these results of the panel's expressions."""
    texts = [text for name, text in panel_expressions() if name == f"Karpenter / {panel}"]
    tests = [
        {
            "expr": text,
            "eval_time": "5m",
            "exp_samples": [
                {"labels": wanted.rpartition(" ")[0], "value": float(wanted.rpartition(" ")[2])}
            ],
        }
        for text, wanted in zip(texts, expected, strict=True)
    ]
    inputs = [{"series": name, "values": f"{value}x10"} for name, value in series.items()]
    file = folder / "panels.yaml"
    file.write_text(
        yaml.safe_dump(
            {"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}]}
        )
    )
    tested = promtool("test", "rules", file)
    return "" if tested.returncode == 0 else tested.stdout + tested.stderr
