"""Users' health rules are parsed and applied to a provider's policies."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.node.health_rules import (
    HealthRule,
    apply_health_rules,
    parse_health_rules,
)

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
        ("Ready=True:10m", '"Ready=True:10m": a healthy node has this status'),
        ("StorageReady=True:10m", "a healthy node has this status"),
        ("DiskPressure=False:10m", "a healthy node has this status"),
        ("A=True:1m,A=True:2m", '"A=True:2m": another rule names A=True too'),
    ],
)
def test_invalid_rule_is_named(text, complaint):
    with pytest.raises(BadInputError) as caught:
        parse_health_rules(text)
    assert complaint in str(caught.value)


def states(policies):
    return [(it.condition_type, it.condition_status, it.toleration) for it in policies]


def test_users_add_conditions():
    rules = parse_health_rules("GPUFault=True:10m")
    assert states(apply_health_rules(THEIRS, rules)) == [
        *states(THEIRS),
        ("GPUFault", "True", 10 * MINUTE),
    ]


def test_users_change_the_toleration_of_a_provider_condition():
    result = apply_health_rules(THEIRS, parse_health_rules("Ready=Unknown:5m"))
    assert states(result) == [("Ready", "False", 30 * MINUTE), ("Ready", "Unknown", 5 * MINUTE)]


def test_users_remove_a_provider_condition():
    assert apply_health_rules(THEIRS, parse_health_rules("Ready=False:never")) == (THEIRS[1],)
    assert apply_health_rules(THEIRS, parse_health_rules("GPUFault=True:never")) == THEIRS
    assert (
        apply_health_rules(THEIRS, parse_health_rules("Ready=False:never,Ready=Unknown:never"))
        == ()
    )
