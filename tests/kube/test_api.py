"""The verbs, what they send, and the errors they raise."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from karpenter_core.errors import (
    ApiError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)
from karpenter_core.kube import resources
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from tests.kube.scripted import ScriptedTransport, answer, node, page, refusal


def talk(conversation, *answers, metrics=None):
    """Run `conversation(api)` against scripted answers; return its result and the requests."""
    transport = ScriptedTransport(answers)

    async def scenario():
        return await conversation(KubeApi(transport, clock=LoopClock(), metrics=metrics))

    return run_virtual(scenario()), transport.requests


def test_eviction_refused_by_a_budget_differs_from_a_throttled_one():
    """By the cause in the Status; the API server's page of text for the latter has none."""
    budget = {"reason": "TooManyRequests", "message": "Cannot evict pod", "details": {
        "causes": [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods and has 2"}]
    }}  # fmt: skip
    page_of_text = ApiResponse(
        status=429,
        body=b"Too many requests, please try again later.\n",
        headers={"retry-after": "2", "x-kubernetes-pf-flowschema-uid": "u"},
    )

    def causes(response):
        with pytest.raises(TooManyRequestsError) as caught:
            talk(lambda api: api.evict("web", namespace="shop"), response)
        return caught.value.causes, caught.value.retry_after

    assert causes(answer(budget, 429)) == (("DisruptionBudget",), None)
    assert causes(page_of_text) == ((), timedelta(seconds=2))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ApiError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (429, TooManyRequestsError),
        (500, ApiError),
        (403, ApiError),
    ],
)
def test_a_status_becomes_a_typed_error(status, expected):
    """Naming verb and object, with the server's words."""
    with pytest.raises(ApiError) as caught:
        talk(
            lambda api: api.get(resources.PODS, "web", namespace="shop"),
            refusal(status, "it is so", "Because"),
        )
    assert type(caught.value) is expected
    assert str(caught.value) == 'get pods "shop/web": it is so'
    assert (caught.value.status, caught.value.reason) == (status, "Because")


def test_retry_after_comes_from_header_or_body():
    """The header wins; words instead of seconds are ignored."""

    def retry_after(response):
        with pytest.raises(TooManyRequestsError) as caught:
            talk(lambda api: api.get(resources.NODES, "n"), response)
        return caught.value.retry_after

    body = {"message": "later", "details": {"retryAfterSeconds": 7}}
    assert retry_after(answer(body, 429, **{"retry-after": "3"})) == timedelta(seconds=3)
    assert retry_after(answer(body, 429)) == timedelta(seconds=7)
    assert retry_after(refusal(429, **{"retry-after": "tomorrow"})) is None


@pytest.mark.parametrize("seconds", [301, 365 * 24 * 3600, 10**30])
def test_a_retry_time_is_at_most_five_minutes(seconds):
    for asking in (
        refusal(429, **{"retry-after": str(seconds)}),
        answer({"details": {"retryAfterSeconds": min(seconds, 2**60)}}, 429),
    ):
        with pytest.raises(TooManyRequestsError) as caught:
            talk(lambda api: api.get(resources.NODES, "n"), asking)
        assert caught.value.retry_after == timedelta(minutes=5)


def test_a_page_that_is_no_status_is_named_by_its_code():
    """As a proxy's error page."""
    with pytest.raises(ApiError, match='get nodes "n": HTTP status 502'):
        talk(
            lambda api: api.get(resources.NODES, "n"),
            ApiResponse(status=502, body=b"<html>Bad gateway</html>"),
        )


@pytest.mark.parametrize("write", [KubeApi.delete, partial(KubeApi.patch, body={})])
def test_a_page_without_a_status_does_not_tell_that_an_object_is_gone(write):
    """A proxy that has lost its server answers 404 to everything."""
    with pytest.raises(ApiError, match="HTTP status 404") as caught:
        talk(
            lambda api: write(api, resources.NODES, "n"),
            ApiResponse(status=404, body=b"404 page not found\n"),
        )
    assert (type(caught.value), caught.value.status) == (ApiError, 404)


@pytest.mark.parametrize("status", [404, 409, 410])
def test_a_webhook_that_denies_a_write_says_nothing_about_the_object(status):
    """It chooses the status code, for what it could not find itself."""
    text = 'nodes "n" is forbidden: admission webhook "w.example.com" denied the request: no team'
    with pytest.raises(ApiError, match="no team") as caught:
        talk(lambda api: api.delete(resources.NODES, "n"), refusal(status, text, "NotFound"))
    assert (type(caught.value), caught.value.status) == (ApiError, status)


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_is_an_error(status):
    """An API server sends none; a proxy that wants a login does."""
    elsewhere = ApiResponse(status=status, body=b"{}", headers={"location": "https://login"})
    with pytest.raises(ApiError, match=f"HTTP status {status}"):
        talk(lambda api: api.get(resources.NODES, "n"), elsewhere)

    async def scenario():
        api = KubeApi(ScriptedTransport(watches=[elsewhere]), clock=LoopClock())
        async with api.watch(resources.NODES):
            pytest.fail("it is no watch")

    with pytest.raises(ApiError, match=f"watch nodes: HTTP status {status}"):
        run_virtual(scenario())


def test_no_answer_keeps_its_reason_and_names_the_object():
    """The caller decides by status 0 and the reason."""
    with pytest.raises(ApiError) as caught:
        talk(
            lambda api: api.delete(resources.NODES, "n"),
            ApiError("connection refused", status=0, reason="Unreachable"),
        )
    assert str(caught.value) == 'delete nodes "n": connection refused'
    assert (caught.value.status, caught.value.reason) == (0, "Unreachable")


def test_patches_carry_their_lock():
    """A merge patch in its metadata, a JSON patch as a test in front."""

    async def conversation(api):
        patch = {"metadata": {"labels": {"a": "b"}}}
        await api.patch(resources.NODES, "n", patch, resource_version="7")
        operations = [{"op": "remove", "path": "/spec/taints"}]
        await api.patch(
            resources.NODES,
            "n",
            operations,
            style="json",
            resource_version="7",
            subresource="status",
        )

    _, (merge, json) = talk(conversation, answer(), answer())
    assert (merge.method, merge.path) == ("PATCH", "/api/v1/nodes/n")
    assert merge.content_type == "application/merge-patch+json"
    assert msgspec.json.decode(merge.body) == {
        "metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}
    }
    assert (json.path, json.content_type) == (
        "/api/v1/nodes/n/status",
        "application/json-patch+json",
    )
    assert msgspec.json.decode(json.body)[0] == {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": "7",
    }


@pytest.mark.parametrize(
    ("style", "causes", "error"),
    [
        ("json", [], ConflictError),
        ("json", ["FieldValueDuplicate"], ConflictError),
        ("json", ["FieldValueInvalid"], InvalidError),
        ("json", ["FieldValueDuplicate", "FieldValueInvalid"], InvalidError),
        ("merge", [], InvalidError),
    ],
)
def test_a_json_patch_that_does_not_fit_the_object_is_a_conflict(style, causes, error):
    """A failed test, or an entry that another client has added: read again, and try again."""
    details = {"details": {"causes": [{"reason": each} for each in causes]}}
    body = msgspec.json.encode({"message": "refused", "reason": "Invalid", **details})

    async def conversation(api):
        with pytest.raises(error) as raised:
            await api.patch(resources.NODES, "n", [], style=style)
        return raised.type

    raised, _ = talk(conversation, ApiResponse(status=422, body=body, headers={}))
    assert raised is error


def test_a_deletion_carries_preconditions_and_grace():
    """Only those that were given."""

    async def conversation(api):
        await api.delete(resources.PODS, "web", namespace="shop", uid="u", grace_seconds=1)
        await api.delete(NODE_CLAIMS, "c")

    _, (full, plain) = talk(conversation, answer(), answer())
    assert full.path == "/api/v1/namespaces/shop/pods/web"
    options = msgspec.json.decode(full.body)
    assert options["preconditions"] == {"uid": "u"}
    assert options["gracePeriodSeconds"] == 1
    assert plain.path == "/apis/karpenter.sh/v1/nodeclaims/c"
    assert msgspec.json.decode(plain.body) == {"apiVersion": "v1", "kind": "DeleteOptions"}


def test_an_eviction_is_posted_to_the_pod():
    """Under its UID."""
    _, (request,) = talk(
        lambda api: api.evict("web", namespace="shop", uid="u"), answer({"kind": "Status"}, 201)
    )
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/shop/pods/web/eviction")
    body = msgspec.json.decode(request.body)
    assert body["kind"] == "Eviction"
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}


def test_pages_follow_the_continue_token():
    """To the last one."""

    async def conversation(api):
        return [body async for body in api.list_pages(resources.NODES)]

    pages, requests = talk(conversation, page([node("a")], 5, "more"), page([node("b")], 5))
    assert len(pages) == 2
    assert [request.query for request in requests] == [
        {"limit": "500"},
        {"limit": "500", "continue": "more"},
    ]


@pytest.mark.parametrize(
    "first",
    [
        '{"kind":"NodeList","metadata":{"continue":"more"},"items":[{"metadata":{"continue":"no"}}]}',
        '{"kind":"NodeList","items":[{"metadata":{"continue":"no"}}],"metadata":{"continue":"more"}}',
        '{"metadata":{"selfLink":"\\"items\\":[","continue":"more"},"items":[]}',
        '{"metadata":{"x":{"items":[1]},"continue":"more"},"items":[]}',
    ],
    ids=["before", "behind", "text", "nested"],
)
def test_the_token_is_found_on_each_side_of_the_items(first):
    async def conversation(api):
        return [body async for body in api.list_pages(resources.NODES)]

    answers = [ApiResponse(status=200, headers={}, body=first.encode()), page([node("b")], 5)]
    _, requests = talk(conversation, *answers)
    assert [request.query.get("continue") for request in requests] == [None, "more"]


def test_the_token_of_a_page_is_read_without_its_items():
    """The items are read later, while the next page is on its way."""
    unreadable = b'{"metadata":{"continue":"more"},"items":[{]}'

    async def conversation(api):
        return [body async for body in api.list_pages(resources.NODES)]

    answers = [ApiResponse(status=200, headers={}, body=unreadable), page([node("b")], 5)]
    bodies, _ = talk(conversation, *answers)
    assert bodies[0] == unreadable
    assert len(bodies) == 2


def test_a_page_that_continues_with_itself_ends_the_list():
    async def conversation(api):
        pages = api.list_pages(resources.NODES)
        bodies = [await anext(pages), await anext(pages)]
        with pytest.raises(ApiError, match="continues with itself"):
            await anext(pages)
        return bodies

    again = [page([node("b")], 5, "more")] * 3
    bodies, requests = talk(conversation, page([node("a")], 5, "more"), *again)
    assert len(bodies) == len(requests) == 2


def test_the_next_page_is_asked_for_while_one_is_read():
    """Reading thousands of objects takes the reader as long as the server needs to send them."""
    transport = ScriptedTransport(
        [page([node("a")], 5, "more"), page([node("b")], 5, "last"), page([node("c")], 5)]
    )
    asked = []

    async def scenario():
        async for _ in KubeApi(transport, clock=LoopClock()).list_pages(resources.NODES):
            await asyncio.sleep(1)
            asked.append(len(transport.requests))

    run_virtual(scenario())
    assert asked == [2, 3, 3]


def test_a_reader_that_stops_leaves_no_request_behind():
    """Neither its task, nor an error that nobody sees."""
    transport = ScriptedTransport([page([node("a")], 5, "more"), refusal(410, "Expired")])
    problems = []

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        pages = KubeApi(transport, clock=LoopClock()).list_pages(resources.NODES)
        await anext(pages)
        await asyncio.sleep(1)
        await pages.aclose()
        return [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    assert run_virtual(scenario()) == []
    gc.collect()
    assert problems == []


def test_a_page_that_cannot_be_read_is_still_shown():
    """Its reader says what is wrong with it."""

    async def conversation(api):
        pages = api.list_pages(resources.NODES)
        return await anext(pages)

    found, _ = talk(conversation, ApiResponse(status=200, headers={}, body=b'{"metadata": 5}'))
    assert found == b'{"metadata": 5}'


def test_requests_are_counted_under_the_reference_names():
    """`client_go_*`, and no `_created` series."""
    registry = CollectorRegistry()

    async def conversation(api):
        await api.list_page(resources.NODES)
        with pytest.raises(ConflictError):
            await api.create(NODE_CLAIMS, {})
        with pytest.raises(ApiError):
            await api.get(resources.NODES, "n")

    gone = ApiError("refused", status=0)
    talk(conversation, page([], 1), refusal(409), gone, metrics=KubeMetrics(registry))
    text = generate_latest(registry).decode()
    assert 'client_go_request_total{code="200",method="GET"} 1.0' in text
    assert 'client_go_request_total{code="409",method="POST"} 1.0' in text
    assert 'client_go_request_total{code="<error>",method="GET"} 1.0' in text
    assert (
        'client_go_request_duration_seconds_count{group="karpenter.sh",kind="nodeclaims",'
        'subresource="",verb="CREATE",version="v1"} 1.0'
    ) in text
    assert "_created" not in text


def test_two_clusters_share_the_kinds():
    """Ours and the leases in one, everything else in the other."""

    async def scenario():
        clock = LoopClock()
        objects = KubeApi(ScriptedTransport(), clock=clock)
        workload = KubeApi(ScriptedTransport(), clock=clock)
        apis = ClusterApis(objects, workload, node_class_groups=frozenset({"karpenter.kwok.sh"}))
        node_classes = resources.ResourceKind(
            "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False
        )
        for kind in (NODE_CLAIMS, resources.LEASES, node_classes):
            assert apis.api_for(kind) is objects
        for kind in (resources.PODS, resources.NODES, resources.STORAGE_CLASSES):
            assert apis.api_for(kind) is workload
        assert ClusterApis(objects).api_for(resources.PODS) is objects

    run_virtual(scenario())


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_watch_that_is_refused_raises(status):
    async def watch(api):
        async with api.watch(resources.NODES) as lines:
            return [line async for line in lines]

    async def scenario():
        await watch(KubeApi(ScriptedTransport(watches=[refusal(status)]), clock=LoopClock()))

    with pytest.raises(ApiError) as caught:
        run_virtual(scenario())
    assert (caught.value.status, str(caught.value)) == (status, "watch nodes: no")
