"""A cached response is fetched once, survives on disk and has revisions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.cached_response import (
    CachedResponse,
    Fetched,
    decode_as,
    fetched_items,
)
from karpenter_core.provider.kit.disk_cache import DiskCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from karpenter_core.clock import Clock

HOUR = timedelta(hours=1)
LIFE = timedelta(days=30)


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


class Cloud:
    """Answers with a list of names."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.known: list[list[str] | None] = []
        """Last answer at each call."""
        self.is_down = False
        self.problem = ""

    def fetch(self, known: list[str] | None) -> Fetched[list[str]]:
        self.known.append(known)
        if self.is_down:
            raise CloudProviderError("the cloud is down")
        return Fetched(list(self.names), self.problem)


def _names(value: object) -> list[str] | None:
    return cast("list[str]", value) if isinstance(value, list) else None


def kept(
    fetch: Callable[[list[str] | None], Fetched[list[str]]],
    folder: Path,
    clock: Clock | SetClock | None = None,
) -> CachedResponse[list[str]]:
    return CachedResponse(
        clock or SetClock(),
        DiskCache(folder, "cloud-names", version="1"),
        fetch=fetch,
        encode=list[str],
        decode=_names,
        life=LIFE,
        instead_of_waiting=HOUR,
    )


def test_it_is_fetched_once(tmp_path: Path):
    cloud = Cloud("a")
    answer = kept(cloud.fetch, tmp_path)

    assert answer.current() == answer.current() == (["a"], 1)
    assert cloud.known == [None]


def test_a_caller_that_comes_just_before_a_fetch_ends_does_not_fetch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cloud = Cloud("a")
    answer = kept(cloud.fetch, tmp_path)
    read = DiskCache.read

    def read_while_another_fetches(disk: DiskCache, *, now: datetime, max_age: timedelta) -> object:
        monkeypatch.setattr(DiskCache, "read", read)
        assert answer.current() == (["a"], 1)
        return None

    monkeypatch.setattr(DiskCache, "read", read_while_another_fetches)
    assert answer.current() == (["a"], 1)
    assert cloud.known == [None]


def test_a_new_process_uses_a_recent_answer_of_an_earlier_one(tmp_path: Path):
    clock = SetClock()
    kept(Cloud("a").fetch, tmp_path, clock).current()
    clock.at += HOUR
    cloud = Cloud("b")

    assert kept(cloud.fetch, tmp_path, clock).current() == (["a"], 1)
    assert cloud.known == []


def test_a_stale_answer_is_passed_to_the_next_fetch(tmp_path: Path):
    clock = SetClock()
    kept(Cloud("a").fetch, tmp_path, clock).current()
    clock.at += 2 * HOUR
    cloud = Cloud("b")

    assert kept(cloud.fetch, tmp_path, clock).current() == (["b"], 1)
    assert cloud.known == [["a"]]


def test_an_old_answer_is_used_while_the_cloud_is_down(tmp_path: Path):
    clock = SetClock()
    kept(Cloud("a").fetch, tmp_path, clock).current()
    clock.at += 2 * HOUR
    cloud = Cloud()
    cloud.is_down = True

    assert kept(cloud.fetch, tmp_path, clock).current() == (["a"], 1)
    clock.at += LIFE
    with pytest.raises(CloudProviderError, match="the cloud is down"):
        kept(cloud.fetch, tmp_path, clock).current()


def test_a_refresh_that_finds_the_same_keeps_the_object(tmp_path: Path):
    answer = kept(Cloud("a").fetch, tmp_path)
    known, revision = answer.current()

    assert not answer.refresh(unless_within=timedelta())
    result, same = answer.current()
    assert result is known
    assert same == revision


def test_a_changed_answer_is_a_new_revision(tmp_path: Path):
    cloud = Cloud("a")
    answer = kept(cloud.fetch, tmp_path)
    answer.current()
    cloud.names.append("b")

    assert answer.refresh(unless_within=timedelta())
    assert answer.current() == (["a", "b"], 2)
    assert cloud.known == [None, ["a"]]


def test_a_recent_answer_is_not_refreshed(tmp_path: Path):
    clock, cloud = SetClock(), Cloud("a")
    answer = kept(cloud.fetch, tmp_path, clock)
    answer.current()
    clock.at += HOUR / 2

    assert not answer.refresh(unless_within=HOUR)
    clock.at += HOUR
    answer.refresh(unless_within=HOUR)
    assert len(cloud.known) == 2


def test_a_failed_refresh_keeps_the_last_answer(tmp_path: Path):
    cloud = Cloud("a")
    answer = kept(cloud.fetch, tmp_path)
    known, _ = answer.current()
    cloud.is_down = True

    with pytest.raises(CloudProviderError):
        answer.refresh(unless_within=timedelta())
    assert answer.current()[0] is known


def test_a_value_with_an_unreadable_item_is_used_and_read_again_soon(tmp_path: Path):
    cloud = Cloud("a")
    cloud.problem = "cloud:List: items cannot be read: b: cores is -1"
    answer = kept(cloud.fetch, tmp_path)

    assert answer.current() == (["a"], 1)
    with pytest.raises(CloudProviderError, match="b: cores is -1"):
        answer.refresh(unless_within=HOUR)
    cloud.names, cloud.problem = ["a", "b"], ""
    assert answer.refresh(unless_within=HOUR)
    assert answer.current() == (["a", "b"], 2)
    assert not answer.refresh(unless_within=HOUR)
    assert len(cloud.known) == 3


def test_an_item_that_stays_unreadable_is_taken_as_it_is(tmp_path: Path):
    cloud = Cloud("a")
    cloud.problem = "b: cores is -1"
    answer = kept(cloud.fetch, tmp_path)
    failures = 0

    with capture_logs() as logs:
        for _ in range(20):
            try:
                answer.refresh(unless_within=HOUR)
            except CloudProviderError:
                failures += 1

    assert (failures, len(cloud.known)) == (7, 8)
    assert [entry["problem"] for entry in logs] == ["b: cores is -1"]


def test_another_problem_is_doubted_anew(tmp_path: Path):
    cloud, clock = Cloud("a"), SetClock()
    cloud.problem = "b: cores is -1"
    answer = kept(cloud.fetch, tmp_path, clock)
    for _ in range(7):
        with pytest.raises(CloudProviderError):
            answer.refresh(unless_within=HOUR)
    answer.refresh(unless_within=HOUR)
    clock.at += HOUR
    cloud.problem = "c: cores is -1"

    with pytest.raises(CloudProviderError, match="c: cores"):
        answer.refresh(unless_within=HOUR)


def fetched(
    items: dict[str, int], unreadable: dict[str, str], last: dict[str, int] | None
) -> Fetched[Mapping[str, int]]:
    return fetched_items(
        "cloud:List", items, unreadable=unreadable, last=last, none_found="no sizes found"
    )


@pytest.mark.parametrize(
    ("unreadable", "said"),
    [({}, "cloud:List: no sizes found"), ({"b": "b: cores is -1"}, "items cannot be read: b")],
)
def test_a_fetch_without_items_is_an_error(unreadable: dict[str, str], said: str):
    with pytest.raises(CloudProviderError, match=said):
        fetched({}, unreadable, None)


def test_known_facts_of_unreadable_items_stay():
    last = {"a": 1, "b": 2, "gone": 3}

    assert fetched({"a": 4}, {}, last) == ({"a": 4}, "")
    value, problem = fetched({"a": 4}, {"b": "b: cores is -1", "new": "new: cores is -2"}, last)
    assert value == {"a": 4, "b": 2}
    assert problem == "cloud:List: items cannot be read: b: cores is -1; new: cores is -2"


def test_an_item_without_a_name_may_be_any_known_one():
    last = {"b": 2, "a": 1}
    unreadable = {"": 'an item is named ""'}

    assert fetched({"a": 4, "c": 5}, unreadable, last).value == {"a": 4, "b": 2, "c": 5}
    assert fetched({"a": 4}, unreadable, None).value == {"a": 4}


def test_a_problem_names_three_items_and_counts_the_others():
    unreadable = {name: f"{name}: cores is -1" for name in "edcba"}

    problem = fetched({"read": 1}, unreadable, None).problem
    assert problem.endswith("a: cores is -1; b: cores is -1; c: cores is -1; and 2 more")


def test_callers_during_a_fetch_share_its_answer(tmp_path: Path):
    started, go, calls = Event(), Event(), list[int]()

    def slow(_: list[str] | None) -> Fetched[list[str]]:
        calls.append(1)
        started.set()
        assert go.wait(10)
        return Fetched(["a"])

    answer = kept(slow, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(answer.current) for _ in range(4)]
        assert started.wait(10)
        go.set()
        results = [each.result() for each in waiting]

    assert {id(value) for value, _ in results} == {id(results[0][0])}
    assert calls == [1]


class Sold(NamedTuple):
    """A value of several fields."""

    names: tuple[str, ...]


@pytest.mark.parametrize("damaged", [None, 3, {"names": 3}, [], [[]], [3]])
def test_a_stored_value_that_is_damaged_or_not_usable_is_none(damaged):
    decode = decode_as(Sold, is_usable=lambda sold: sold.names)

    assert decode(damaged) is None
    assert decode([["a", "b"]]) == Sold(("a", "b"))
