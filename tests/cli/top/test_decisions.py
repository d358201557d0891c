"""Last decisions: Events of the controller, grouped, the latest first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.cli.cluster_events import read_decisions
from karpenter_core.cli.top.build_view import decision_rows
from karpenter_core.cli.top.frame import decision_table
from karpenter_core.cli.top.text import plain
from karpenter_core.errors import ApiError, GoneError

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def event(name="general-x", *, kind="Node", reason="DisruptionTerminating", ago=60, **fields):
    """Return an Event as the API server answers it."""
    return {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "shop"},
        "reason": reason,
        "message": "Disrupting Node: Empty",
        "type": "Normal",
        "count": 1,
        "lastTimestamp": (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **fields,
    }


class Apis:
    """Answers a list page by page; an answer that is an error is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.selectors = []

    def api_for(self, _):
        return self

    async def list_page(self, _, *, continue_token="", field_selector=""):
        self.selectors.append(field_selector)
        answer = self.answers[int(continue_token or 0)]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            return answer
        number = int(continue_token or 0) + 1
        token = str(number) if number < len(self.answers) else ""
        return json.dumps({"items": answer, "metadata": {"continue": token}}).encode()


async def test_the_latest_decision_of_all_pages_comes_first():
    apis = Apis([event("a", ago=90), event("b", ago=10, message="m")], [event("c", ago=30)])

    found = await read_decisions(apis)
    decisions, notes = found.decisions, found.notes

    assert [each.objects for each in decisions] == [("Node/b",), ("Node/a", "Node/c")]
    assert notes == ()
    assert apis.selectors == ["reportingComponent=karpenter"] * 2


async def test_events_with_one_reason_and_message_are_one_decision():
    pods = [
        event(f"web-{n}", kind="Pod", reason="Nominated", message="to x", ago=n) for n in (7, 3, 5)
    ]

    (decision,) = (await read_decisions(Apis([*pods, pods[0]]))).decisions

    assert decision.title == "3 Pods"
    assert decision.objects == ("Pod/shop/web-3", "Pod/shop/web-5", "Pod/shop/web-7")
    assert (decision.at, decision.count) == (NOW - timedelta(seconds=3), 4)


@pytest.mark.parametrize(
    ("fields", "at", "count"),
    [
        ({"series": {"count": 9, "lastObservedTime": "2026-05-01T11:00:00.5Z"}}, "11:00:00", 9),
        ({"lastTimestamp": None, "eventTime": "2026-05-01T10:00:00.123456Z"}, "10:00:00", 1),
        ({"lastTimestamp": None, "count": None}, "00:00:00", 1),
    ],
)
async def test_every_form_of_time_and_count_is_read(fields, at, count):
    (decision,) = (await read_decisions(Apis([event(**fields)]))).decisions

    assert (f"{decision.at:%H:%M:%S}", decision.count) == (at, count)


async def test_control_characters_never_reach_the_terminal():
    (decision,) = (await read_decisions(Apis([event(message="\x1b[2Jgone\nline")]))).decisions

    assert decision.message == " [2Jgone line"


async def test_events_that_may_not_be_listed_are_a_note():
    found = await read_decisions(Apis(ApiError("no", status=403)))

    assert found.decisions == ()
    assert found.notes == (
        "events cannot be listed (forbidden): the last decisions of the controller are unknown",
    )


async def test_events_that_cannot_be_read_are_a_note():
    found = await read_decisions(Apis([event("a")], b'{"items": 7}'))

    assert [each.objects for each in found.decisions] == [("Node/a",)]
    (note,) = found.notes
    assert note.startswith("events cannot be read: ")


async def test_another_error_of_the_api_server_is_raised():
    with pytest.raises(ApiError, match="down"):
        await read_decisions(Apis(ApiError("down", status=500)))


async def test_an_expired_page_token_keeps_the_pages_before():
    found = await read_decisions(Apis([event("a")], GoneError("expired", status=410)))

    assert ([each.objects for each in found.decisions], found.notes) == ([("Node/a",)], ())


async def test_a_row_names_age_object_reason_and_message():
    events = (await read_decisions(Apis([event(type="Warning", ago=7200)]))).decisions

    table = decision_table(decision_rows(events, now=NOW), width=80)

    assert plain(table.heading).split() == ["AGE", "OBJECT", "REASON", "MESSAGE"]
    assert plain(table.lines[0]).split() == [
        "2h", "Node/general-x", "DisruptionTerminating", "Disrupting", "Node:", "Empty",
    ]  # fmt: skip
    assert all(len(plain(line)) <= 80 for line in table.lines)


async def test_the_last_refusal_of_a_pod_has_what_was_chosen_for_it_since():
    """A nomination before it says nothing any more."""
    about = {"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"}}
    refused = {"reason": "FailedScheduling", "message": "Failed to schedule pod, sold out"}
    chosen = {"reason": "Nominated"}
    found = await read_decisions(
        Apis(
            [
                event(ago=90, **about, **chosen, message="Pod should schedule on: nodeclaim/old"),
                event(ago=80, **about, **refused | {"message": "Failed to schedule pod, full"}),
                event(ago=60, **about, **refused),
                event(ago=30, **about, **chosen, message="Pod should schedule on: nodeclaim/new, node/n"),
            ]
        )
    )  # fmt: skip

    assert found.refusals.keys() == {"shop/web"}
    refusal = found.refusals["shop/web"]
    assert (refusal.message, refusal.later_targets) == ("sold out", {"new", "n"})
