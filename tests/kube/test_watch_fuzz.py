"""Whatever a watch or a list answers, an informer goes on, and holds what the server has once it is honest.

`KARPENTER_PROPERTY_EXAMPLES=20000 pytest tests/kube/test_watch_fuzz.py` tries many.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import ApiError
from karpenter_core.kube import resources
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.informer import Informer
from karpenter_core.kube.transport import LINE_TOO_LONG, NO_ANSWER, ApiResponse
from karpenter_core.kube.wire.codecs import NODE_POOLS, Codecs
from karpenter_core.kube.wire.kind_codec import version_of
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.events import ObjectRemoved
from tests.kube.scripted import HANG, answer, bookmark, event, node, node_pool, page, refusal
from tests.properties import with_examples

CURRENT = 1_000
"""The version of the honest server."""
HONEST_AFTER_SECONDS = 600.0
HEALED_SECONDS = 1_200.0

DIGITS = st.sampled_from(
    ["", "0", "7", "-3", "abc", "1e3", "0x10", " 9 ", "1_0", "٣", "9" * 30, "9" * 5_000, 5, None]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from("abcdefgh")
MAKERS = {resources.NODES: node, NODE_POOLS: node_pool}
DEEP = b"[" * 100_000 + b"]" * 100_000


@st.composite
def bodies(draw, make):
    """Return an object, in half of the cases with wrong parts."""
    found = make(draw(NAMES), draw(st.integers(1, CURRENT)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        part = draw(
            st.sampled_from(["version", "uid", "name", "metadata", "spec", "status", "labels"])
        )
        if part == "version":
            found["metadata"] = {**(found.get("metadata") or {}), "resourceVersion": draw(DIGITS)}
        elif part in {"uid", "name", "labels"}:
            found["metadata"] = {**(found.get("metadata") or {}), part: draw(JSON)}
        else:
            found[part] = draw(JSON)
        if not isinstance(found.get("metadata"), dict):
            break
    return found


@st.composite
def lines(draw, make):
    """Return one line of a stream."""
    shape = draw(
        st.sampled_from(["event", "event", "bookmark", "error", "odd", "cut", "bytes", "deep"])
    )
    if shape == "event":
        return event(draw(st.sampled_from(["ADDED", "MODIFIED", "DELETED"])), draw(bodies(make)))
    if shape == "bookmark":
        meta = {
            "resourceVersion": draw(DIGITS | st.integers(1, CURRENT).map(str)),
            "annotations": draw(st.none() | st.just({"k8s.io/initial-events-end": "true"}) | JSON),
        }
        return event("BOOKMARK", draw(st.just({"metadata": meta}) | JSON))
    if shape == "error":
        status = {
            "kind": "Status",
            "code": draw(st.sampled_from([410, 500, 504, 429, 0, "410", None, 10**30])),
            "message": draw(SCALARS),
            "reason": draw(SCALARS | st.just("Expired")),
        }
        return event("ERROR", draw(st.just(status) | JSON))
    if shape == "odd":
        return msgspec.json.encode(draw(JSON))
    if shape == "deep":
        kind = draw(st.sampled_from([b"ADDED", b"BOOKMARK", b"ERROR"]))
        field = draw(st.sampled_from([b'"metadata"', b'"other"', b'"spec"', b'"status"']))
        return b'{"type":"' + kind + b'","object":{' + field + b":" + DEEP + b"}}"
    if shape == "bytes":
        return draw(st.binary(min_size=1, max_size=20))
    whole = event("ADDED", draw(bodies(make)))
    return whole[: draw(st.integers(1, len(whole) - 1))]


BREAKS = st.sampled_from(
    [
        HANG,
        ApiError("the watch broke", status=0, reason=NO_ANSWER),
        ApiError("too long", status=0, reason=LINE_TOO_LONG),
        30,
    ]
)
REFUSALS = st.builds(
    lambda status, after, body: ApiResponse(
        status=status, body=body, headers={"retry-after": after} if after is not None else {}
    ),
    st.sampled_from([400, 401, 403, 404, 410, 422, 429, 500, 503, 504]),
    st.sampled_from([None, "5", "-1", "soon", "9" * 20, "9" * 5_000, "31536000"]),
    st.sampled_from(
        [
            b"",
            b"<html>",
            DEEP,
            b'{"message":3}',
            b'{"details":{"retryAfterSeconds":%d}}' % 10**15,
            b'{"details":{"retryAfterSeconds":31536000}}',
            b'{"message":"Too large resource version: 90"}',
        ]
    ),
)


def streams(make):
    whole = st.lists(lines(make) | BREAKS, max_size=6)
    initial = whole.map(lambda script: [*script, bookmark(500, initial=True)])
    return st.lists(whole | initial | REFUSALS, max_size=5)


@st.composite
def lists(draw, make):
    """Return one answer to a list."""
    if draw(st.booleans()):
        return draw(REFUSALS)
    if draw(st.booleans()):
        return ApiResponse(status=200, body=draw(st.binary(max_size=10) | st.just(DEEP)))
    found = draw(st.lists(bodies(make), max_size=4))
    body = {"metadata": {"resourceVersion": draw(DIGITS), "continue": draw(DIGITS)}, "items": found}
    return answer(draw(st.just(body) | JSON))


class LyingServer:
    """Answers from scripts, and honestly after a time."""

    def __init__(self, clock, objects, answers, watches):
        self.clock = clock
        self.objects = objects
        self.answers = list(answers)
        self.watches = list(watches)
        self.requests = 0

    def is_honest(self):
        return self.clock.monotonic() >= HONEST_AFTER_SECONDS

    async def request(self, request):
        self.requests += 1
        await asyncio.sleep(0.01)
        if not self.is_honest() and self.answers:
            return self.answers.pop(0)
        return page(self.objects, CURRENT)

    @asynccontextmanager
    async def stream(self, request):
        self.requests += 1
        await asyncio.sleep(0.01)
        if not self.is_honest() and self.watches:
            script = self.watches.pop(0)
        else:
            script = self._honest(request.query)
        if isinstance(script, ApiResponse):
            yield script, _said([])
        else:
            yield ApiResponse(status=200, body=b""), _said(script)

    def _honest(self, query):
        if "sendInitialEvents" in query:
            return [
                *(event("ADDED", each) for each in self.objects),
                bookmark(CURRENT, initial=True),
                HANG,
            ]
        version = query.get("resourceVersion", "0")
        if not (version.isascii() and version.isdigit()):
            return refusal(400, "invalid resource version")
        if len(version) > 4 or int(version) > CURRENT:
            return refusal(504, f"Too large resource version: {version[:30]}, current: {CURRENT}")
        later = [
            each for each in self.objects if int(each["metadata"]["resourceVersion"]) > int(version)
        ]
        return [
            *(event("MODIFIED", each) for each in later),
            HANG,
        ]  # what was lost is not said again

    async def close(self):
        pass


async def _said(script):
    for step in script:
        if step is HANG:
            await asyncio.Event().wait()
        elif isinstance(step, Exception):
            raise step
        elif isinstance(step, (int, float)):
            await asyncio.sleep(step)
        else:
            yield step


@pytest.mark.parametrize("kind", list(MAKERS), ids=lambda kind: kind.plural)
@with_examples(60)
@given(data=st.data())
def test_an_informer_survives_every_answer_and_converges_to_the_server_state(kind, data):
    make = MAKERS[kind]
    names = data.draw(st.sets(NAMES, max_size=4), label="true objects")
    truth = [make(name, 100 + index) for index, name in enumerate(sorted(names))]
    answers = data.draw(st.lists(lists(make), max_size=5), label="lists")
    watches = data.draw(streams(make), label="streams")
    has_watch_lists = data.draw(st.booleans(), label="watch lists")
    held: dict[str, int] = {}

    def keep(change):
        if isinstance(change, ObjectRemoved):
            held.pop(change.object.uid, None)
        else:
            held[change.object.uid] = version_of(change.object)

    async def play():
        clock = LoopClock()
        server = LyingServer(clock, truth, answers, watches)
        informer = Informer(
            kind,
            Codecs().for_kind(kind),
            KubeApi(server, clock=clock),
            clock=clock,
            sink=keep,
            jitter=lambda: 0.5,
            watch_list=has_watch_lists,
            on_invalid=None,
        )
        task = asyncio.ensure_future(informer.run())
        await asyncio.sleep(HONEST_AFTER_SECONDS + HEALED_SECONDS)
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.wait({task})
        assert informer.is_fresh
        assert len(informer) == len(truth)
        assert server.requests < 400  # no request after another without a pause

    run_virtual(play())
    assert held == {
        f"uid-{each['metadata']['name']}": int(each["metadata"]["resourceVersion"])
        for each in truth
    }
