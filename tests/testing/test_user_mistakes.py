"""A missing message about a user's mistake is reported."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from karpenter_core.testing.user_mistakes import UserMessages, UserMistake

MISTAKE: UserMistake[list[str]] = UserMistake(
    name="no network",
    condition="NetworksReady",
    reason="NetworksNotFound",
    must_name=("spec.networks", "nobody"),
    cloud_check_names="networks:List",
)
KIND = "ExampleNodeClass"
MESSAGE = "spec.networks selects nobody's network"


DOCTOR_LINE = f'{KIND} "default" is not ready: NetworksReady: {MESSAGE}'


def messages(
    *,
    status="False",
    reason="NetworksNotFound",
    message=MESSAGE,
    ready=MESSAGE,
    object_errors=DOCTOR_LINE,
    cloud_errors="networks:List is not allowed",
):
    conditions = {
        "NetworksReady": {"status": status, "reason": reason, "message": message},
        "Ready": {"status": "False", "message": ready},
    }
    return UserMessages(
        kind=KIND,
        conditions=conditions,
        object_errors=object_errors,
        cloud_errors=cloud_errors,
    )


def test_complete_messages_have_no_findings():
    assert MISTAKE.missing_messages(messages()) == []


@pytest.mark.parametrize(
    ("shown", "finding"),
    [
        (messages(status="Unknown"), "NetworksReady is ('Unknown', 'NetworksNotFound')"),
        (messages(reason="Other"), "NetworksReady is ('False', 'Other')"),
        (messages(message="spec.networks"), "NetworksReady does not name 'nobody'"),
        (messages(ready="nobody"), "Ready does not name 'spec.networks'"),
        (messages(cloud_errors=""), "the cloud's check misses 'networks:List'"),
        (
            UserMessages(kind=KIND, conditions={}, object_errors="", cloud_errors=""),
            "Ready is None",
        ),
        (
            messages(
                object_errors=f'OtherNodeClass "default" is not ready: NetworksReady: {MESSAGE}'
            ),
            "karpenter doctor names another condition",
        ),
    ],
)
def test_missing_message_is_reported(shown, finding):
    assert any(line.startswith(finding) for line in MISTAKE.missing_messages(shown))


def test_a_cloud_check_without_a_name_must_report_nothing():
    quiet = UserMistake(name="", condition="NetworksReady", reason="NetworksNotFound", must_name=())
    assert quiet.missing_messages(messages(cloud_errors="")) == []
    assert len(quiet.missing_messages(messages())) == 1


def test_a_cloud_fault_lasts_as_long_as_its_context():
    @contextmanager
    def trouble(cloud):
        cloud.append("down")
        yield
        cloud.pop()

    cloud = []
    with UserMistake(name="", condition="", reason="", must_name=(), trouble=trouble).applied_to(
        cloud
    ):
        assert cloud == ["down"]
    assert cloud == []
    with MISTAKE.applied_to(cloud):
        assert cloud == []
