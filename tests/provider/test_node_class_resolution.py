"""Parts of a NodeClass are resolved side by side, and keep their results in silence."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.parts import condition_met, condition_unknown
from karpenter_core.provider.kit.node_class.resolution import (
    NodeClassPart,
    NodeClassResolver,
    SharedRead,
)
from tests.properties import with_examples
from tests.provider.cloud_node_classes import (
    ERRORS,
    RefusedCallError,
    applied,
    cloud_node_class,
    conditions,
)

SILENCE = CloudProviderError("no route")


class Cloud:
    """Answers the parts Subnets, Images and Reservations, unless an error is set."""

    def __init__(self):
        self.errors = {}

    def parts(self, node_class):
        return [
            self.part("Subnets", "spec.subnet", {"subnets": [node_class.spec.subnet]}),
            self.part("Images", f'spec.image "{node_class.spec.image}"', {"images": ["i-1"]}),
            self.part(
                "Reservations",
                "spec.reservations",
                {"capacityReservations": []},
                is_launch_need=False,
                is_always_read=False,
            ),
        ]

    def part(self, name, field, status, **more):
        return NodeClassPart(name, field, lambda: self.read(name, status), **more)

    def read(self, name, status):
        if name in self.errors:
            raise self.errors[name]
        return condition_met(name, status=status)


class Validation:
    def __init__(self):
        self.calls, self.forgotten = [], []

    def validate(self, node_class, dependencies):
        self.calls.append((node_class, list(dependencies)))
        return condition_met("ValidationSucceeded")

    def forget(self, node_class):
        self.forgotten.append(node_class.name)


@pytest.fixture
def cloud():
    return Cloud()


def test_each_part_has_its_condition_in_order_and_its_status(cloud):
    resolution = NodeClassResolver(cloud.parts, ERRORS).resolve(cloud_node_class())

    assert [c.type for c in resolution.conditions] == ["Subnets", "Images", "Reservations", "Ready"]
    assert resolution.status == {"subnets": ["s-1"], "images": ["i-1"], "capacityReservations": []}


def test_a_refusal_names_field_and_code_and_stops_no_other_part(cloud):
    cloud.errors["Images"] = RefusedCallError("Forbidden.Read", "not permitted (request a1)")

    found = applied(
        cloud_node_class(),
        NodeClassResolver(cloud.parts, ERRORS).resolve(cloud_node_class()),
    )

    assert conditions(found)["Images"] == (
        "False",
        "ForbiddenRead",
        'spec.image "debian": not permitted',
    )
    assert conditions(found)["Subnets"][0] == "True"
    assert conditions(found)["Ready"][0] == "False"


def test_missing_credentials_have_a_reason_of_their_own():
    assert ERRORS.refusal_reason(AuthError("no credentials", action="read")) == "Unauthorized"
    assert ERRORS.refusal_reason(CloudProviderError("odd")) == "Refused"
    coded = AuthError("not permitted", action="read")
    coded.code = "Forbidden.Read"
    assert ERRORS.refusal_reason(coded) == "ForbiddenRead"


def test_a_cloud_may_repeat_some_refused_calls_later(cloud):
    errors = replace(ERRORS, retry_refused_after=lambda _error: timedelta(seconds=20))
    cloud.errors["Images"] = RefusedCallError("NoFunds")

    resolution = NodeClassResolver(cloud.parts, errors).resolve(cloud_node_class())

    assert resolution.retry_after == timedelta(seconds=20)


def test_a_silent_part_keeps_its_result_without_limit(cloud):
    resolver = NodeClassResolver(cloud.parts, ERRORS)
    good = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))
    cloud.errors["Images"] = SILENCE

    for _ in range(9):
        resolution = resolver.resolve(good)
        assert applied(good, resolution) == good
        assert resolution.retry_after == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("error", "reason"), [(SILENCE, "CloudUnreachable"), (RefusedCallError("Busy"), "Busy")]
)
def test_a_silent_part_becomes_unknown_at_the_limit_and_recovers(cloud, error, reason):
    resolver = NodeClassResolver(cloud.parts, ERRORS, max_silence=3)
    found = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))
    cloud.errors["Images"] = error

    for status in ("True", "True", "Unknown", "Unknown"):
        found = applied(found, resolver.resolve(found))
        assert conditions(found)["Images"][0] == status
    assert conditions(found)["Images"][1] == reason
    assert found.status.images == ("i-1",)

    cloud.errors.clear()
    found = applied(found, resolver.resolve(found))
    assert conditions(found)["Images"][0] == "True"
    cloud.errors["Images"] = error
    assert conditions(applied(found, resolver.resolve(found)))["Images"][0] == "True"


@given(st.lists(st.booleans(), max_size=12))
@with_examples(60)
def test_only_unanswered_reads_in_a_row_count(answers):
    """A part is Unknown if and only if the last three reads were not answered."""
    cloud = Cloud()
    resolver = NodeClassResolver(cloud.parts, ERRORS, max_silence=3)
    found = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))
    for index, is_answered in enumerate(answers):
        cloud.errors = {} if is_answered else {"Images": SILENCE}
        found = applied(found, resolver.resolve(found))
        last = answers[max(0, index - 2) : index + 1]
        is_unknown = len(last) == 3 and not any(last)
        assert conditions(found)["Images"][0] == ("Unknown" if is_unknown else "True")


def test_silences_of_one_node_class_are_not_those_of_another(cloud):
    resolver = NodeClassResolver(cloud.parts, ERRORS, max_silence=2)
    web, data = (
        applied(each, resolver.resolve(each))
        for each in (cloud_node_class(name="web"), cloud_node_class(name="data"))
    )
    cloud.errors["Images"] = SILENCE

    assert conditions(applied(web, resolver.resolve(web)))["Images"][0] == "True"
    assert conditions(applied(data, resolver.resolve(data)))["Images"][0] == "True"
    assert conditions(applied(web, resolver.resolve(web)))["Images"][0] == "Unknown"


def test_silences_of_a_deleted_node_class_are_forgotten(cloud):
    resolver = NodeClassResolver(cloud.parts, ERRORS, max_silence=2)
    found = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))
    cloud.errors["Images"] = SILENCE

    for _ in range(3):
        found = applied(found, resolver.resolve(found))
        assert conditions(found)["Images"][0] == "True"
        resolver.forget(found)


def test_a_part_may_say_itself_that_it_was_not_answered(cloud):
    def parts(_node_class):
        return [
            *cloud.parts(_node_class),
            NodeClassPart("Version", "", lambda: condition_unknown("Version", "no version")),
        ]

    resolver = NodeClassResolver(parts, ERRORS, max_silence=1)

    found = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))

    assert conditions(found)["Version"] == ("Unknown", "CloudUnreachable", "no version")


def test_a_cloud_that_is_down_raises_however_long_and_names_each_field(cloud):
    """PC-014: parts that are not always read do not count."""
    resolver = NodeClassResolver(cloud.parts, ERRORS, max_silence=1)
    cloud.errors = {"Subnets": SILENCE, "Images": SILENCE}

    for _ in range(3):
        with pytest.raises(CloudProviderError) as raised:
            resolver.resolve(cloud_node_class())
        assert str(raised.value) == 'spec.subnet: no route; spec.image "debian": no route'


def test_one_part_that_is_always_read_and_answered_is_enough(cloud):
    cloud.errors = {"Images": SILENCE, "Reservations": SILENCE}

    assert NodeClassResolver(cloud.parts, ERRORS).resolve(cloud_node_class()).conditions


def test_a_refusal_is_an_answer(cloud):
    cloud.errors = {"Subnets": SILENCE, "Images": RefusedCallError("Forbidden")}

    assert NodeClassResolver(cloud.parts, ERRORS).resolve(cloud_node_class()).conditions


def test_parts_are_resolved_side_by_side():
    """Each waits until all have started."""
    barrier = threading.Barrier(3, timeout=5)

    def part(name):
        def resolve():
            barrier.wait()
            return condition_met(name)

        return NodeClassPart(name, "", resolve)

    resolver = NodeClassResolver(lambda _nc: [part("A"), part("B"), part("C")], ERRORS)

    assert len(resolver.resolve(cloud_node_class()).conditions) == 4


def test_parts_share_one_read_and_its_error():
    reads = []

    def read():
        reads.append(1)
        raise SILENCE

    shared = SharedRead(read)
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(shared) for _ in range(4)]

    assert [str(result.exception()) for result in results] == ["no route"] * 4
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, {"Version": ("True", "1.34"), "Images": ("True", "images of 1.34")}),
        (
            RefusedCallError("Denied"),
            {"Version": ("False", "version: no"), "Images": ("False", "spec.image: no")},
        ),
    ],
)
def test_two_parts_share_one_read_and_its_failure(error, expected):
    """One read serves both; a failure is reported with the field of each."""
    reads = []

    def read():
        reads.append(1)
        if error:
            raise error
        return "1.34"

    def parts(_node_class):
        version = SharedRead(read)
        return [
            NodeClassPart(
                "Images", "spec.image", lambda: condition_met("Images", f"images of {version()}")
            ),
            NodeClassPart("Version", "version", lambda: condition_met("Version", version())),
        ]

    found = applied(
        cloud_node_class(), NodeClassResolver(parts, ERRORS).resolve(cloud_node_class())
    )

    shown = conditions(found)
    assert {name: (shown[name][0], shown[name][2]) for name in expected} == expected
    assert len(reads) == 1


def test_validation_sees_the_new_status_and_the_parts_that_a_launch_needs(cloud):
    validation = Validation()
    resolver = NodeClassResolver(cloud.parts, ERRORS, validation=validation)
    cloud.errors["Images"] = RefusedCallError("Forbidden")

    resolution = resolver.resolve(cloud_node_class())

    ((node_class, needs),) = validation.calls
    assert node_class.status.subnets == ("s-1",)
    assert [(c.type, c.status) for c in needs] == [("Subnets", "True"), ("Images", "False")]
    assert [c.type for c in resolution.conditions][-2:] == ["ValidationSucceeded", "Ready"]


def test_validation_takes_the_kept_result_of_a_silent_part(cloud):
    validation = Validation()
    resolver = NodeClassResolver(cloud.parts, ERRORS, validation=validation)
    good = applied(cloud_node_class(), resolver.resolve(cloud_node_class()))
    cloud.errors["Images"] = SILENCE

    resolver.resolve(good)

    node_class, needs = validation.calls[-1]
    assert node_class.status.images == ("i-1",)
    assert [c.status for c in needs] == ["True", "True"]


def test_finalization_runs_all_removals_and_forgets_when_nothing_is_left(cloud):
    validation, removed = Validation(), []

    def fail(_node_class):
        if len(removed) < 2:
            raise CloudProviderError("in use")

    finalizer = NodeClassFinalizer(
        fail,
        lambda node_class: removed.append(node_class.name),
        forget=NodeClassResolver(cloud.parts, ERRORS, validation=validation).forget,
    )

    with pytest.raises(CloudProviderError, match="in use"):
        finalizer.finalize(cloud_node_class())
    assert (removed, validation.forgotten) == (["web"], [])
    removed.append("web")
    finalizer.finalize(cloud_node_class())
    assert validation.forgotten == ["web"]
