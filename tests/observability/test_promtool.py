"""promtool accepts the alert rules, and their unit tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.observability.expressions import ALERTS, alert_rules
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
