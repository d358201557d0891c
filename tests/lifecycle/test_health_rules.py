"""What users add to their provider's idea of a broken Node."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.node.health_rules import HealthRule, parse_health_rules, with_rules

MINUTE = timedelta(minutes=1)
THEIRS = (HealthRule("Ready", "False", 30 * MINUTE), HealthRule("Ready", "Unknown", 30 * MINUTE))


def test_rules_are_read():
    assert parse_health_rules("GPUFault=True:10m, example.com/Disk=False:1h30m ,,") == (
        HealthRule("GPUFault", "True", 10 * MINUTE),
        HealthRule("example.com/Disk", "False", 90 * MINUTE),
    )
    assert parse_health_rules("") == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("GPUFault", '"GPUFault" is not CONDITION=STATUS:DURATION'),
        ("GPUFault:10m", '"GPUFault:10m" is not CONDITION=STATUS:DURATION'),
        ("GPUFault=true:10m", '"GPUFault=true:10m" is not CONDITION=STATUS:DURATION'),
        ("GPUFault=True:soon", '"soon" is neither a duration nor "never"'),
        ("GPUFault=True:0s", "would be replaced at once"),
        ("GPUFault=True:-5m", "would be replaced at once"),
        ("Ready=True:10m", '"Ready=True:10m": that is the state of a node that is well'),
        ("StorageReady=True:10m", "that is the state of a node that is well"),
        ("DiskPressure=False:10m", "that is the state of a node that is well"),
        ("A=True:1m,A=True:2m", '"A=True:2m": another rule is about A=True too'),
    ],
)
def test_what_is_no_rule_is_named(text, complaint):
    with pytest.raises(BadInputError) as caught:
        parse_health_rules(text)
    assert complaint in str(caught.value)


def states(policies):
    return [(it.condition_type, it.condition_status, it.toleration) for it in policies]


def test_users_add_conditions():
    rules = parse_health_rules("GPUFault=True:10m")
    assert states(with_rules(THEIRS, rules)) == [*states(THEIRS), ("GPUFault", "True", 10 * MINUTE)]


def test_users_have_another_patience_for_a_condition_of_their_providers():
    found = with_rules(THEIRS, parse_health_rules("Ready=Unknown:5m"))
    assert states(found) == [("Ready", "False", 30 * MINUTE), ("Ready", "Unknown", 5 * MINUTE)]


def test_users_take_a_condition_of_their_providers_away():
    assert with_rules(THEIRS, parse_health_rules("Ready=False:never")) == (THEIRS[1],)
    assert with_rules(THEIRS, parse_health_rules("GPUFault=True:never")) == THEIRS
    assert with_rules(THEIRS, parse_health_rules("Ready=False:never,Ready=Unknown:never")) == ()
