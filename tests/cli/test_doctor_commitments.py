"""`karpenter doctor` names commitments that nothing can use, and those that save nothing."""

from __future__ import annotations

import pytest

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.cli.doctor.commitments import commitment_findings
from karpenter_core.provider.contract import Severity
from karpenter_core.state.commitments import commitment_balances
from tests.disruption.small_clusters import box, cluster, kind

DEAR, SPOT = kind("dear", 4, 0.24), kind("cheap", 4, 0.20, spot=0.05)


def findings(**changed):
    fields = {"resource": "cpu", "amount": 8000, "price": 0.01, "types": ("dear",), **changed}
    types = fields.pop("types")
    requirement = RequirementSpec(key=INSTANCE_TYPE, operator="In", values=types)
    row = Commitment(name="savings", requirements=(requirement,), **fields)
    snapshot = cluster(box("a", DEAR), market=(DEAR, SPOT)).snapshot()
    balances = commitment_balances(snapshot, (row,), {}, well_known=frozenset(), aliases={})
    return [(each.severity, each.message) for each in commitment_findings(snapshot, balances)]


def test_the_use_of_a_good_commitment_is_shown():
    text = 'commitment "savings" covers 8 of cpu, of which nodes use 4'
    assert findings() == [(Severity.OK, text)]


@pytest.mark.parametrize("changed", [{"types": ("gone",)}, {"currency": "EUR"}])
def test_a_commitment_that_no_type_can_use_is_a_warning(changed):
    ((severity, message),) = findings(**changed)
    assert severity is Severity.WARNING
    assert message.startswith('commitment "savings" covers no on-demand instance type')


@pytest.mark.parametrize("changed", [{"price": 0.06}, {"price": None, "discount": 0.0}])
def test_a_commitment_that_saves_nothing_is_a_warning(changed):
    ((severity, message),) = findings(**changed)
    assert severity is Severity.WARNING
    assert message.startswith('commitment "savings" saves nothing')
