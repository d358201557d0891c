"""Decisions of single functions of the client: each condition of them counts by itself."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from karpenter_core.errors import (
    ApiError,
    BadInputError,
    GoneError,
    SettingsError,
    TooManyRequestsError,
)
from karpenter_core.kube import held_objects, listing, login, resources
from karpenter_core.kube.api import _continue_token
from karpenter_core.kube.api_errors import _LONGEST_RETRY_SECONDS, _RETRY_DIGITS, _retry_after
from karpenter_core.kube.client import HttpTransport
from karpenter_core.kube.events import RATE_LIMITS, EventRecorder
from karpenter_core.kube.exec_plugin import _RENEW_BEFORE, ExecPlugin
from karpenter_core.kube.held_objects import HeldObjects
from karpenter_core.kube.kubeconfig import _read_document, _read_exec
from karpenter_core.kube.lease import ElectionTimes, LeaseElector
from karpenter_core.kube.listing import has_passed_over
from karpenter_core.kube.login import _RENEW_AFTER_REFUSAL_SECONDS
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.kube.proxies import checked_proxy
from karpenter_core.kube.resources import PODS, ResourceKind
from karpenter_core.kube.wire.autoscalers import _boost
from karpenter_core.kube.wire.devices import _unsupported_claim
from karpenter_core.kube.wire.kind_codec import _bookmark, _watch_error
from karpenter_core.kube.wire.requests import _effective
from karpenter_core.kube.wire.rollouts import _rolling_limits
from karpenter_core.kube.writer import KubeWriter
from karpenter_core.testing.builders import EPOCH

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("status", "is_read"), [(399, False), (400, True), (404, True)])
async def test_the_body_of_an_error_is_read(status, is_read):
    async def read():
        return b"why"

    answer = SimpleNamespace(status=status, read=read, headers={})
    found = await HttpTransport._error_response(SimpleNamespace(host="h"), answer)
    assert (found.status, found.body) == (status, b"why" if is_read else b"")


def test_an_event_is_forgotten_at_its_time():
    recorder = SimpleNamespace(_recent=OrderedDict(a=5.0, b=6.0))
    EventRecorder._forget(recorder, 5.0)
    assert list(recorder._recent) == ["b"]


@pytest.mark.parametrize(
    ("status", "attempts"), [(0, 3), (429, 3), (499, 1), (500, 3), (503, 3), (403, 1)]
)
async def test_an_event_is_posted_again_after_a_passing_error(monkeypatch, status, attempts):
    monkeypatch.setattr("karpenter_core.kube.events._ATTEMPTS", 3)
    tried = []

    async def post(_entry):
        tried.append(1)
        raise ApiError("no", status=status, reason="r")

    async def sleep(_seconds):
        return None

    recorder = SimpleNamespace(_post_once=post, _clock=SimpleNamespace(sleep=sleep))
    with pytest.raises(ApiError):
        await EventRecorder._post(recorder, None)
    assert len(tried) == attempts


def obj(uid, version):
    return SimpleNamespace(uid=uid, resource_version=version)


@pytest.fixture
def versions(monkeypatch):
    for module in (held_objects, listing):
        monkeypatch.setattr(module, "uid_of", lambda found: found.uid)
        monkeypatch.setattr(module, "version_of", lambda found: found.resource_version)


@pytest.mark.parametrize(
    ("objects", "invalid", "version", "is_removed", "is_kept"),
    [
        ({}, {}, "5", True, False),
        ({}, {}, "4", False, True),
        ({}, {}, "", False, True),
        ({"u": 1}, {}, "5", False, False),
        ({}, {"u": 1}, "5", False, False),
    ],
)
@pytest.mark.usefixtures("versions")
def test_an_object_that_was_written_and_not_seen_has_come_and_gone(
    objects, invalid, version, is_removed, is_kept
):
    held = SimpleNamespace(_objects=objects, _invalid=invalid, _written={})
    change = HeldObjects.note_written(held, obj("u", 5), version)
    assert (change is not None, "u" in held._written) == (is_removed, is_kept)


@pytest.mark.parametrize(
    ("held", "reached", "differs"),
    [
        ({"u": obj("u", 5)}, 5, False),
        ({"u": obj("u", 4)}, 5, True),
        ({"u": obj("u", 4)}, 4, False),
        ({}, 5, True),
        ({}, 4, False),
    ],
)
@pytest.mark.usefixtures("versions")
def test_a_watch_has_passed_over_what_is_not_held_up_to_its_version(held, reached, differs):
    page = SimpleNamespace(objects=[obj("u", 5)], invalid=[])
    assert has_passed_over(page, reached=reached, held=held, invalid={}) is differs


@pytest.mark.usefixtures("versions")
def test_a_page_differs_in_one_object():
    page = SimpleNamespace(objects=[obj("u", 5), obj("v", 9)], invalid=[])
    assert has_passed_over(page, reached=5, held={}, invalid={})
    assert has_passed_over(page, reached=9, held={"u": obj("u", 5)}, invalid={})
    held = {"u": obj("u", 5), "v": obj("v", 9)}
    assert not has_passed_over(page, reached=9, held=held, invalid={})
    assert has_passed_over(page, reached=9, held=held, invalid={"v": None})


@pytest.mark.parametrize(
    ("args", "env", "is_read"),
    [
        (None, None, True),
        (["a"], [{"name": "A", "value": "b"}], True),
        (["a"], [{"name": "A"}], True),
        ("a", None, False),
        (None, [{"value": "b"}], False),
        (None, ["A"], False),
        (None, "A", False),
        (None, [{"name": "A"}, "B"], False),
    ],
)
def test_arguments_and_variables_of_a_plug_in_are_lists(args, env, is_read):
    entry = SimpleNamespace(error=SettingsError, resolved=lambda command: f"/{command}")
    settings = {"command": "login", "args": args, "env": env}
    if is_read:
        assert _read_exec(entry, settings) == settings
    else:
        with pytest.raises(SettingsError, match="exec"):
            _read_exec(entry, settings)


@pytest.mark.parametrize(("age", "is_expired"), [(-0.1, False), (0.0, True)])
def test_a_token_is_read_again_some_seconds_after_the_last_time(age, is_expired):
    owner = login._TokenFile
    token = SimpleNamespace(
        _clock=SimpleNamespace(monotonic=lambda: _RENEW_AFTER_REFUSAL_SECONDS + age), _read_at=0.0
    )
    assert owner.expire(token) is is_expired
    assert owner.expire(SimpleNamespace(_clock=token._clock, _read_at=None)) is True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("proxy:3128", "http://proxy:3128"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("proxy", "http://proxy"),
        ("//proxy:3128", None),
        ("http://proxy:port", None),
        ("http://:3128", None),
        ("ftp://proxy", None),
    ],
)
def test_a_proxy_without_a_scheme_speaks_http(text, shown):
    if shown is None:
        with pytest.raises(SettingsError):
            checked_proxy(text, "HTTPS_PROXY")
    else:
        assert checked_proxy(text, "HTTPS_PROXY") == shown


def boost(kind, *, factor=None, quantity=None):
    return SimpleNamespace(cpu=SimpleNamespace(type=kind, factor=factor, quantity=quantity))


@pytest.mark.parametrize(
    ("raw", "factor", "added"),
    [
        (boost("Factor", factor=3), 3, 0),
        (boost("Factor", factor=0), 1, 0),
        (boost("Factor", quantity="1"), 1, 0),
        (boost("Quantity", quantity="2"), 1, 2000),
        (boost("Quantity", factor=3), 1, 0),
        (boost("Other", factor=3, quantity="2"), 1, 0),
    ],
)
def test_a_boost_is_of_its_kind(raw, factor, added):
    found = _boost(raw)
    assert (found.factor, found.added) == (factor, added)
    assert _boost(None) is None


@pytest.mark.parametrize(
    ("surge", "unavailable", "limits"),
    [(1, 0, (1, 0)), (0, 1, (0, 1)), (0, 0, (0, 1)), (2, 1, (2, 1))],
)
def test_a_rollout_may_always_replace_a_pod(surge, unavailable, limits):
    strategy = SimpleNamespace(
        type="RollingUpdate",
        rolling_update=SimpleNamespace(max_surge=surge, max_unavailable=unavailable),
    )
    assert _rolling_limits(strategy, 3) == limits
    strategy.type = "Recreate"
    assert _rolling_limits(strategy, 3) == (0, 0)


@pytest.mark.parametrize(
    ("verb", "retry_after", "delay"),
    [
        ("evict", SECOND, None),
        ("patch", None, None),
        ("patch", SECOND, 1.0),
        ("evict", None, None),
    ],
)
def test_a_write_waits_as_long_as_the_api_server_asks(verb, retry_after, delay):
    error = TooManyRequestsError(
        "busy", status=429, reason="TooManyRequests", retry_after=retry_after
    )
    attempt = SimpleNamespace(verb=verb)
    assert KubeWriter._retry_delay(None, attempt, error, 0, repeatable=True) == delay


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5),
        ("9" * _RETRY_DIGITS, _LONGEST_RETRY_SECONDS),
        ("0" * (_RETRY_DIGITS - 1) + "5", 5),
        ("0" * _RETRY_DIGITS + "5", _LONGEST_RETRY_SECONDS),
    ],
)
def test_the_wait_of_an_answer_has_some_digits(header, seconds):
    answer = SimpleNamespace(headers={"retry-after": header})
    assert _retry_after(answer, SimpleNamespace(details=None)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("asked", "wait"), [(0, None), (1, SECOND)])
def test_the_wait_of_a_status_is_a_number_above_zero(asked, wait):
    status = SimpleNamespace(details=SimpleNamespace(retry_after_seconds=asked))
    assert _retry_after(SimpleNamespace(headers={}), status) == wait


def test_the_token_of_the_next_page_is_found_wherever_it_is():
    head = b'{"kind":"List","metadata":{"continue":"t"},"items":[{"a":1}]}'
    assert _continue_token(head) == "t"
    assert _continue_token(b'{"kind":"List","items":[{"a":1}],"metadata":{"continue":"t"}}') == "t"
    assert _continue_token(b'"items":[') == ""
    assert _continue_token(b"no page") == ""


@pytest.mark.parametrize(
    ("left", "is_current"), [(_RENEW_BEFORE, False), (_RENEW_BEFORE + SECOND, True), (None, False)]
)
def test_credentials_are_current_until_some_minutes_before_their_end(left, is_current):
    last = SimpleNamespace(expires=None if left is None else EPOCH + left)
    plugin = SimpleNamespace(_last=last, _clock=SimpleNamespace(now=lambda: EPOCH))
    current = ExecPlugin.is_current
    found = current.fget(plugin) if isinstance(current, property) else current(plugin)
    assert found is is_current


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "is_good"),
    [
        (15.0, 10.0, 2.0, True),
        (10.0, 10.0, 2.0, False),
        (15.0, 2.4, 2.0, False),
        (15.0, 10.0, 0.0, False),
        (15.0, 10.0, 0.5, True),
        (2.0, 1.0, 0.1, True),
    ],
)
def test_times_of_an_election_leave_room_for_retries(lease, renew, retry, is_good):
    def make():
        return ElectionTimes(lease_seconds=lease, renew_deadline_seconds=renew, retry_seconds=retry)

    if is_good:
        assert make().lease_seconds == lease
    else:
        with pytest.raises(ValueError, match="leader election needs"):
            make()


@pytest.mark.parametrize(
    ("lease", "holder", "duration", "now", "is_free"),
    [
        (False, "other", 15, 0.0, True),
        (True, "", 15, 0.0, True),
        (True, "me", 15, 0.0, True),
        (True, "other", 15, 14.9, False),
        (True, "other", 15, 15.0, True),
        (True, "other", None, 29.9, False),
        (True, "other", None, 30.0, True),
    ],
)
def test_a_lease_is_free_once_its_time_is_over(lease, holder, duration, now, is_free):
    found = SimpleNamespace(spec=SimpleNamespace(lease_duration_seconds=duration))
    elector = SimpleNamespace(
        _lease=found if lease else None,
        holder=holder,
        _identity="me",
        _times=SimpleNamespace(lease_seconds=30.0),
        _clock=SimpleNamespace(monotonic=lambda: now),
        _observed_at=0.0,
    )
    assert LeaseElector._is_free(elector) is is_free


@pytest.mark.parametrize(
    ("status", "infeasible", "counted"),
    [
        (None, False, {"cpu": 2000}),
        (SimpleNamespace(resources=None, allocated_resources={"cpu": "5"}), False, {"cpu": 2000}),
        (
            SimpleNamespace(
                resources=SimpleNamespace(requests={"cpu": "3"}), allocated_resources=None
            ),
            False,
            {"cpu": 3000},
        ),
        (
            SimpleNamespace(
                resources=SimpleNamespace(requests={"cpu": "1"}), allocated_resources=None
            ),
            False,
            {"cpu": 2000},
        ),
        (
            SimpleNamespace(
                resources=SimpleNamespace(requests={"cpu": "1"}), allocated_resources=None
            ),
            True,
            {"cpu": 1000},
        ),
    ],
)
def test_a_resize_counts_the_larger_of_what_is_held_and_wanted(status, infeasible, counted):
    assert _effective({"cpu": 2000}, status, infeasible=infeasible) == counted


@pytest.mark.parametrize(
    "body", [b"[]", b'{"metadata": {}}', b'{"metadata": {"resourceVersion": ""}}']
)
def test_a_bookmark_without_a_version_is_refused(body):
    with pytest.raises(BadInputError, match="watch of pods: no bookmark"):
        _bookmark(msgspec.Raw(body), PODS)


def test_a_bookmark_may_end_the_first_events():
    ends = b'{"k8s.io/initial-events-end": "true"}'
    for notes, is_end in ((ends, True), (b"{}", False), (b"null", False)):
        body = b'{"metadata": {"resourceVersion": "5", "annotations": %s}}' % notes
        event = _bookmark(msgspec.Raw(body), PODS)
        assert (event.type, event.resource_version, event.initial_events_end) == (
            "BOOKMARK",
            "5",
            is_end,
        )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"code": 410, "message": "old"}', GoneError),
        (b'{"code": 500, "reason": "Expired"}', GoneError),
        (b'{"code": 500, "reason": "InternalError"}', ApiError),
    ],
)
def test_an_error_of_a_watch_is_read(body, kind):
    error = _watch_error(msgspec.Raw(body), PODS)
    assert type(error) is kind
    with pytest.raises(BadInputError, match="watch of pods: no status"):
        _watch_error(msgspec.Raw(b"[]"), PODS)


def test_an_object_that_json_does_not_know_is_refused():
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"x": object()},
    }
    with pytest.raises(BadInputError, match='Pod "web"'):
        view_from_manifest(manifest)


def test_events_of_one_kind_share_a_limit():
    """As in docs/reference/metrics.md: a large change of conditions does not fill the API server."""
    assert RATE_LIMITS == {"nominated": (5.0, 10), "conditions": (5.0, 20)}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"a: [", "kubeconfig"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_a_kubeconfig_that_cannot_be_read_says_why(tmp_path, content, text):
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=text):
        _read_document(str(path))


def raw_request(**fields):
    return SimpleNamespace(name="gpu", **{"exactly": None, "first_available": None, **fields})


ALL = SimpleNamespace(allocation_mode="All")
FEW = SimpleNamespace(allocation_mode="Some")
MATCH = SimpleNamespace(distinct_attribute=None, match_attribute="a")


@pytest.mark.parametrize(
    ("request_", "constraint", "text"),
    [
        (raw_request(exactly=ALL), MATCH, ""),
        (raw_request(first_available=[ALL]), MATCH, ""),
        (raw_request(), MATCH, "neither exactly nor firstAvailable"),
        (raw_request(exactly=ALL, first_available=[ALL]), MATCH, "neither exactly"),
        (raw_request(exactly=FEW), MATCH, 'allocationMode "Some"'),
        (raw_request(first_available=[ALL, FEW]), MATCH, 'allocationMode "Some"'),
        (
            raw_request(exactly=ALL),
            SimpleNamespace(distinct_attribute="a", match_attribute=None),
            "distinctAttribute",
        ),
        (
            raw_request(exactly=ALL),
            SimpleNamespace(distinct_attribute=None, match_attribute=None),
            "without matchAttribute",
        ),
    ],
)
def test_a_claim_of_an_unknown_form_is_named(request_, constraint, text):
    found = _unsupported_claim([request_], [MATCH, constraint])
    assert text in found
    assert bool(text) is bool(found)


OF_THE_CLUSTER = {
    "CSINode", "CustomResourceDefinition", "DeviceClass", "Namespace", "Node", "PersistentVolume",
    "ResourceSlice", "StorageClass", "SubjectAccessReview", "TokenReview", "VolumeAttachment",
}  # fmt: skip
"""The kinds that are in no namespace, by the API reference of Kubernetes."""


def test_kinds_are_in_a_namespace_or_of_the_cluster():
    kinds = [found for found in vars(resources).values() if isinstance(found, ResourceKind)]
    assert {kind.kind for kind in kinds if not kind.namespaced} == OF_THE_CLUSTER
    assert len(kinds) == len({kind.plural for kind in kinds})
