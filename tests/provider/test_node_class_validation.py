"""NodeClasses are validated by checks, dry runs and refused launches."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.conditions import Condition
from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.findings import (
    PASSED,
    DryRunOutcome,
    DryRunVerdict,
    NodeClassFinding,
)
from karpenter_core.provider.kit.node_class.parts import condition_unknown
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_core.provider.kit.node_class.validation import (
    VALIDATION_SUCCEEDED,
    NodeClassValidator,
)
from tests.provider.cloud_node_classes import (
    ERRORS,
    CloudStatus,
    HandClock,
    RefusedCallError,
    cloud_node_class,
)
from tests.provider.fakes import launched

READY = [Condition(type="Subnets", status="True", reason="Subnets")]
FINDING = NodeClassFinding(reason="BadImage", message='spec.image: "debian" is old')


class DryRuns:
    def __init__(self, outcome=PASSED):
        self.outcome, self.count = outcome, 0

    def __call__(self, _node_class):
        self.count += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def outcome(verdict, reason="Quota", message="too many"):
    return DryRunOutcome(verdict=verdict, reason=reason, message=message)


def validator(clock=None, **more):
    return NodeClassValidator(clock or HandClock(), ERRORS, **more)


def said(part):
    condition = part.condition
    assert condition.type == VALIDATION_SUCCEEDED
    return condition.status, condition.reason, condition.message


def never(_node_class):
    raise AssertionError


def test_a_valid_node_class_is_validated_again_after_ten_minutes():
    part = validator(checks=[lambda _nc: None], remark=lambda nc: f"{nc.name}: unused field")

    found = part.validate(cloud_node_class(), READY)

    assert said(found) == ("True", VALIDATION_SUCCEEDED, "web: unused field")
    assert found.retry_after == timedelta(minutes=10)


def test_the_first_mistake_is_shown_before_parts_that_are_missing():
    part = validator(checks=[lambda _nc: None, lambda _nc: FINDING, never], late_checks=[never])

    found = part.validate(cloud_node_class(), [READY[0].model_copy(update={"status": "False"})])

    assert said(found) == ("False", "BadImage", 'spec.image: "debian" is old')


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("True", "False", "Unknown", "False"), ("False", "waiting for P1, P3")),
        (("True", "Unknown", "True"), ("Unknown", "waiting for P1")),
    ],
)
def test_late_checks_and_dry_runs_wait_for_the_parts_of_a_launch(statuses, expected):
    part = validator(late_checks=[never], dry_run=never)
    needs = [
        Condition(type=f"P{index}", status=status, reason="R")
        for index, status in enumerate(statuses)
    ]

    status, reason, message = said(part.validate(cloud_node_class(), needs))

    assert (status, message) == expected
    assert reason == "DependenciesNotReady"


def test_without_late_checks_and_dry_runs_no_part_is_waited_for():
    part = validator(checks=[lambda _nc: None], recheck_after=timedelta(hours=1))

    found = part.validate(cloud_node_class(), [READY[0].model_copy(update={"status": "False"})])

    assert said(found)[0] == "True"
    assert found.retry_after == timedelta(hours=1)


def test_nothing_is_tried_out_while_a_late_check_finds_a_mistake():
    part = validator(late_checks=[lambda _nc: FINDING], dry_run=never)

    assert said(part.validate(cloud_node_class(), READY))[1] == "BadImage"


def test_a_check_may_return_the_whole_condition():
    part = validator(
        late_checks=[lambda _nc: condition_unknown(VALIDATION_SUCCEEDED, "user data: no answer")]
    )

    found = part.validate(cloud_node_class(), READY)

    assert said(found)[2] == "user data: no answer"
    assert not found.is_answered


@pytest.mark.parametrize(
    ("error", "is_answered"), [(CloudProviderError("no"), False), (RefusedCallError("No"), True)]
)
def test_an_error_of_a_check_or_dry_run_is_read_as_that_of_any_call(error, is_answered):
    def fail(_node_class):
        raise error

    for options in ({"checks": [fail]}, {"late_checks": [fail]}, {"dry_run": fail}):
        found = validator(**options).validate(cloud_node_class(), READY)
        assert found.is_answered is is_answered
        assert said(found)[2] == "launches could not be tested by dry runs: no"


def test_a_passed_dry_run_counts_for_half_an_hour():
    clock, dry_runs = HandClock(), DryRuns()
    part = validator(clock, dry_run=dry_runs)

    for minutes, count in ((0, 1), (29, 1), (2, 2)):
        clock.forward(minutes=minutes)
        assert said(part.validate(cloud_node_class(), READY))[0] == "True"
        assert dry_runs.count == count


@pytest.mark.parametrize(
    "changed",
    [
        {"image": "other"},
        {"annotations": {"again": "1"}},
        {"status": CloudStatus(subnets=("s-2",))},
        {"name": "data"},
    ],
)
def test_a_changed_node_class_is_tried_out_again(changed):
    dry_runs = DryRuns()
    part = validator(dry_run=dry_runs)

    part.validate(cloud_node_class(), READY)
    part.validate(cloud_node_class(**changed), READY)

    assert dry_runs.count == 2


def test_neither_the_order_of_the_status_nor_reservations_count():
    dry_runs = DryRuns()
    part = validator(dry_run=dry_runs)

    for status in (
        CloudStatus(subnets=("a", "b")),
        CloudStatus(subnets=("b", "a"), conditions=tuple(READY)),
        CloudStatus(subnets=("b", "a"), capacity_reservations=("r",)),
    ):
        part.validate(cloud_node_class(status=status), READY)

    assert dry_runs.count == 1


@pytest.mark.parametrize(
    ("remembered", "count"), [({DryRunVerdict.PASSED}, 2), (set(DryRunVerdict), 1)]
)
def test_outcomes_are_remembered_by_verdict(remembered, count):
    dry_runs = DryRuns(outcome(DryRunVerdict.FAILED))
    part = validator(dry_run=dry_runs, remembered=remembered)

    for _ in range(2):
        assert said(part.validate(cloud_node_class(), READY)) == ("False", "Quota", "too many")

    assert dry_runs.count == count


def test_an_answer_that_says_nothing_is_unanswered_and_soon_repeated():
    dry_runs = DryRuns(outcome(DryRunVerdict.RETRY, message="slow down (request 7)"))

    found = validator(dry_run=dry_runs).validate(cloud_node_class(), READY)

    assert said(found) == (
        "Unknown",
        "CloudUnreachable",
        "launches could not be tested by dry runs: slow down",
    )
    assert not found.is_answered
    assert found.retry_after == timedelta(seconds=10)


def test_a_forgotten_node_class_is_tried_out_again_and_no_other():
    dry_runs = DryRuns()
    part = validator(dry_run=dry_runs)
    web, data = cloud_node_class(), cloud_node_class(name="data")
    for each in (web, data):
        part.validate(each, READY)

    part.forget(web)

    part.validate(data, READY)
    assert dry_runs.count == 2
    part.validate(web, READY)
    assert dry_runs.count == 3


def refusal_of(error):
    if isinstance(error, AuthError):
        return NodeClassFinding(reason="LaunchAuthCheckFailed", message=str(error))
    return None


def requests(*names):
    return [
        SimpleNamespace(
            node_class=cloud_node_class(name=name), node_claim=SimpleNamespace(name=name)
        )
        for name in names
    ]


def test_a_refused_launch_invalidates_its_node_class_for_five_minutes():
    clock = HandClock()
    refused = RefusedLaunches(clock, refusal_of)
    part = validator(clock, dry_run=DryRuns(), refused_launches=refused)
    denied = AuthError("launches were refused", action="launch")

    refused.note(requests("web", "data"), [denied, CloudProviderError("sold out")])

    assert said(part.validate(cloud_node_class(), READY))[:2] == ("False", "LaunchAuthCheckFailed")
    assert said(part.validate(cloud_node_class(name="data"), READY))[0] == "True"
    clock.forward(minutes=5)
    assert said(part.validate(cloud_node_class(), READY))[0] == "True"


def test_a_launch_that_succeeds_or_a_deletion_ends_a_refusal():
    refused = RefusedLaunches(HandClock(), refusal_of)
    part = validator(refused_launches=refused)
    denied = AuthError("launches were refused", action="launch")
    pair = requests("web", "web")

    refused.note(pair, [denied, launched(pair[1])])
    assert refused.of("web") is None
    refused.note(pair[:1], [denied])
    refused.note(pair[:1], [launched(pair[0])])
    assert refused.of("web") is None
    refused.note(pair[:1], [denied])
    part.forget(cloud_node_class())
    assert refused.of("web") is None
