"""Tolerations, host ports and sums of resources."""

from __future__ import annotations

import pytest

from karpenter_core.api.records import HostPort, Toleration
from karpenter_core.scheduling.ports import first_port_conflict, port_text, ports_conflict
from karpenter_core.scheduling.resources import element_max, element_min, fits, merge, subtract
from karpenter_core.scheduling.taints import first_untolerated, taint_text, tolerates
from karpenter_core.testing.builders import taint, toleration


@pytest.mark.parametrize(
    ("answer", "asked", "expected"),
    [
        (toleration("a=b:NoSchedule"), "a=b:NoSchedule", True),
        (toleration("a=b"), "a=b:NoExecute", True),
        (toleration("a=c"), "a=b:NoSchedule", False),
        (toleration("a:NoExecute"), "a=b:NoSchedule", False),
        (toleration("a"), "a=b:PreferNoSchedule", True),
        (toleration(), "anything:NoExecute", True),
        (Toleration(key="sla", operator="Gt", value="900"), "sla=950:NoSchedule", True),
        (Toleration(key="sla", operator="Gt", value="950"), "sla=950:NoSchedule", False),
        (Toleration(key="sla", operator="Lt", value="900"), "sla=850:NoSchedule", True),
        (Toleration(key="sla", operator="Lt", value="many"), "sla=850:NoSchedule", False),
        (Toleration(key="sla", operator="Gt", value="1"), "sla=gold:NoSchedule", False),
        (Toleration(key="sla", operator="Near", value="1"), "sla=1:NoSchedule", False),
    ],
)
def test_a_toleration_answers_a_taint_as_in_kubernetes(answer, asked, expected):
    """Key, value, effect and the numeric operators."""
    assert tolerates(answer, taint(asked)) == expected


def test_every_effect_counts_and_the_first_taint_is_named():
    """A soft taint is as hard as the others until relaxation."""
    taints = [taint("a:NoSchedule"), taint("b=c:PreferNoSchedule")]
    missing = first_untolerated(taints, [toleration("a")])
    assert missing is not None
    assert taint_text(missing) == "b=c:PreferNoSchedule"
    assert first_untolerated(taints, [toleration("a"), toleration("b")]) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (HostPort(port=80), HostPort(port=80), True),
        (HostPort(port=80, ip="10.0.0.0"), HostPort(port=80), True),
        (HostPort(port=80, ip="10.0.0.0"), HostPort(port=80, ip="::"), True),
        (HostPort(port=80, ip="10.0.0.1"), HostPort(port=80, ip="10.0.0.2"), False),
        (HostPort(port=80), HostPort(port=80, protocol="UDP"), False),
        (HostPort(port=80), HostPort(port=81), False),
    ],
)
def test_host_ports_conflict_in_both_directions(first, second, expected):
    """Cases 33 to 35."""
    assert ports_conflict(first, second) == expected
    assert ports_conflict(second, first) == expected
    assert (first_port_conflict([first], [second]) == first) == expected
    assert port_text(HostPort(port=80)) == "IP=0.0.0.0 Port=80 Proto=TCP"


def test_resource_lists_are_merged_and_compared_by_name():
    """Cases 47, 48."""
    assert element_max([]) == element_min([]) == {}
    first, second = {"cpu": 1, "gpu": 2}, {"cpu": 3, "memory": 4}
    assert element_max([first, second]) == {"cpu": 3, "gpu": 2, "memory": 4}
    assert element_min([first, second]) == {"cpu": 1}
    assert merge([first, second]) == {"cpu": 4, "gpu": 2, "memory": 4}
    assert subtract(first, second) == {"cpu": -2, "gpu": 2}
    assert fits({"cpu": 1, "unknown": 0}, {"cpu": 1})
    assert not fits({"unknown": 1}, {"cpu": 1})
    assert not fits({}, {"cpu": -1})
