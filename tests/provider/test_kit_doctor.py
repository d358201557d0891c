"""The checks of a provider run concurrently, and their failures become findings with remedies."""

from __future__ import annotations

import threading

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, SettingsError, ThrottledError
from karpenter_core.provider.contract import Severity
from karpenter_core.provider.kit.doctor import (
    AccessDoctor,
    DoctorCheck,
    error_finding,
    ok_finding,
    warning_finding,
)

KNOWN = ok_finding("caller me")
GRANTED = ok_finding("all of 1 permissions that can be tested are granted")


@pytest.fixture
def doctor():
    return AccessDoctor(
        policy="add it to the policy",
        reach="check the network",
        is_granted=lambda error: "no such thing" in str(error),
    )


def raising(error):
    def run():
        raise error

    return run


def check_of(run, **more):
    return DoctorCheck(run=run, remedy="check the name", **more)


def examine(doctor, *, first=lambda: KNOWN, permissions=None, checks=()):
    permissions = {"list": lambda: None} if permissions is None else permissions
    return doctor.examine(
        check_of(first, denied="give credentials", setting="set REGION"),
        permissions=lambda: permissions,
        checks=lambda: checks,
    )


def test_findings_come_in_the_order_in_which_they_should_be_corrected(doctor):
    checks = [check_of(lambda: [KNOWN, GRANTED]), check_of(lambda: ())]

    assert examine(doctor, checks=checks) == (KNOWN, GRANTED, KNOWN, GRANTED)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (AuthError("who", action="list"), "give credentials"),
        (SettingsError("no region"), "set REGION"),
        (CloudProviderError("no answer"), "check the name"),
    ],
)
def test_nothing_else_is_tried_if_the_first_check_fails(doctor, error, remedy):
    tried = []

    found = examine(doctor, first=raising(error), permissions={"list": lambda: tried.append(1)})

    assert found == (error_finding(str(error), remedy),)
    assert tried == []


def test_a_warning_of_the_first_check_stops_nothing(doctor):
    warning = warning_finding("slow", "wait")

    assert examine(doctor, first=lambda: (KNOWN, warning)) == (KNOWN, warning, GRANTED)


def test_a_missing_permission_names_the_action(doctor):
    permissions = {
        "vm:list": raising(AuthError("vm:list: denied", action="vm:list")),
        "vm:read": raising(CloudProviderError("no such thing")),
        "vm:tag": raising(CloudProviderError("connection refused")),
        "vm:size": raising(ThrottledError("too many calls")),
    }

    _, *found = examine(doctor, permissions=permissions)

    assert found == [
        error_finding("vm:list: denied", "vm:list is not permitted: add it to the policy"),
        error_finding("connection refused", "check the network"),
        warning_finding("too many calls", "try again later"),
    ]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (AuthError("denied", action="a"), error_finding("denied", "add it to the policy")),
        (ThrottledError("later"), warning_finding("later", "try again later")),
        (SettingsError("--name: empty"), error_finding("--name: empty", "correct this setting")),
        (CloudProviderError("gone"), error_finding("gone", "check the name")),
    ],
)
def test_a_failed_check_is_a_finding_and_the_others_are_made(doctor, error, found):
    checks = [check_of(raising(error)), check_of(lambda: KNOWN)]

    assert examine(doctor, checks=checks)[2:] == (found, KNOWN)


def test_a_fault_of_a_check_is_a_finding(doctor):
    checks = [check_of(raising(KeyError("name")))]

    (found,) = examine(doctor, checks=checks)[2:]

    assert found.severity is Severity.ERROR
    assert "KeyError('name')" in found.message
    assert found.remedy


def test_checks_run_concurrently(doctor):
    meeting = threading.Barrier(3)

    def meet():
        meeting.wait(10)
        return ok_finding("met")

    found = examine(doctor, permissions={"a": meet}, checks=[check_of(meet), check_of(meet)])

    assert [it.message for it in found[2:]] == ["met", "met"]


def test_a_fault_in_the_lists_of_checks_is_a_finding_and_the_others_are_made(doctor):
    def no_checks():
        yield check_of(lambda: GRANTED)
        raise CloudProviderError("no endpoint of the queue")

    found = doctor.examine(
        check_of(lambda: KNOWN),
        permissions=raising(CloudProviderError("no client")),
        checks=no_checks,
    )

    assert found[0] == KNOWN
    assert GRANTED in found
    assert [it.message for it in found if it.severity is Severity.ERROR] == [
        "no client",
        "no endpoint of the queue",
    ]


def test_findings_before_the_failure_of_their_check_are_shown(doctor):
    def run():
        yield KNOWN
        raise AuthError("denied", action="read")

    found = examine(doctor, checks=[check_of(run)])

    assert [it.message for it in found] == [KNOWN.message, GRANTED.message, KNOWN.message, "denied"]
