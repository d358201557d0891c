"""Changes the answers of a simulated cloud on their way: cut, malformed, deep, odd, huge."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from karpenter_core.sim.virtual_time import until
from karpenter_core.testing.scenarios import ScenarioDeployment
from tests.support.cloud_scenarios import joining
from tests.support.invariants import Invariants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.provider.kit.simulated.server import (
        HttpReply,
        HttpRequest,
        HttpServer,
    )
    from karpenter_core.testing.provider_cluster import ProviderCluster

__all__ = ["CHANGES", "Change", "changing", "check_one_instance"]

WORKLOAD: Final = ScenarioDeployment(name="web", replicas=1, cpu="1", memory="256Mi")

Change = tuple[str, int, int]
"""Kind, place and odd value."""

KINDS: Final = (
    "cut", "half", "deep", "page", "empty", "padded", "status", "without", "odd", "odd", "odd",
)  # fmt: skip
CHANGES: Final = st.lists(
    st.none() | st.tuples(st.sampled_from(KINDS), st.integers(0, 500), st.integers(0, 50)),
    min_size=1,
    max_size=40,
)
"""Changes of the answers to come, each as its turn says; None leaves one as it is."""
ODD_VALUES: Final = (
    None,
    True,
    -1,
    10**30,
    1e308,
    "",
    "x",
    "\u0000",
    "9" * 5_000,
    [],
    {},
    [None],
    {"a": 1},
)
ODD_TEXTS: Final = ("", "x", "-1", "9" * 5_000, "true", "<item/>", "&#x41;" * 100, "&nothing;")
STATUSES: Final = (200, 202, 204, 302, 404, 409, 500)
DEPTH: Final = 50_000
DEEP: Final = b"[" * DEPTH + b"]" * DEPTH
DEEP_XML: Final = b"<item>" * DEPTH + b"</item>" * DEPTH
_LEAF: Final = re.compile(rb">([^<>]+)<")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = list(enumerate(value))[:3]
    else:
        return found
    for name, part in parts:
        found += places(part, (*path, name))
    return found


def with_odd_part(body: bytes, where: int, odd: int | None) -> bytes:
    """Return JSON or XML with one part replaced by an odd value, or left out for None."""
    if body.lstrip().startswith(b"<"):
        return _with_odd_text(body, where, odd)
    try:
        value = json.loads(body)
    except ValueError:
        return body
    paths = places(value)
    if not paths:
        return b"null"
    *above, last = paths[where % len(paths)]
    at = value
    for name in above:
        at = at[name]
    if odd is None:
        del at[last]
    else:
        at[last] = ODD_VALUES[odd % len(ODD_VALUES)]
    return json.dumps(value).encode()


def _with_odd_text(body: bytes, where: int, odd: int | None) -> bytes:
    leaves = list(_LEAF.finditer(body))
    if not leaves:
        return body
    leaf = leaves[where % len(leaves)]
    text = b"" if odd is None else ODD_TEXTS[odd % len(ODD_TEXTS)].encode()
    return body[: leaf.start(1)] + text + body[leaf.end(1) :]


def changed(reply: HttpReply, change: Change) -> HttpReply:
    """Return a reply that went wrong on its way."""
    name, where, odd = change
    is_xml = reply.body.lstrip().startswith(b"<")
    match name:
        case "cut":
            return replace(reply, is_cut=True)
        case "half":
            return replace(reply, body=reply.body[: len(reply.body) // 2])
        case "deep":
            return replace(reply, body=DEEP_XML if is_xml else DEEP)
        case "page":
            return replace(
                reply, body=b"<html>sign in</html>", headers=(("Content-Type", "text/html"),)
            )
        case "empty":
            return replace(reply, body=b"")
        case "padded":
            return replace(reply, body=reply.body + b" " * 2**20)
        case "status":
            return replace(reply, status=STATUSES[odd % len(STATUSES)])
        case "without":
            return replace(reply, body=with_odd_part(reply.body, where, None))
        case _:
            return replace(reply, body=with_odd_part(reply.body, where, odd))


@contextmanager
def changing(server: HttpServer, changes: list[Change | None]) -> Iterator[list[Change | None]]:
    """Change the answers to come while the context is open; it has those still to be made."""
    listener = server._listener
    honest = listener.application
    left = list(changes)

    def application(request: HttpRequest) -> HttpReply | None:
        reply = honest(request)
        change = left.pop(0) if left else None
        return reply if reply is None or change is None else changed(reply, change)

    listener.application = application
    try:
        yield left
    finally:
        listener.application = honest


def check_one_instance(
    cloud: SimulatedCloud[Any],
    play: Callable[[Path, Callable[[ProviderCluster], Awaitable[None]]], None],
    *objects: dict[str, Any],
    changes: list[Change | None],
    begin: bool,
) -> None:
    """Launch for a Deployment of one pod while answers change.

    One instance is left, and no invariant was broken.

    `objects` are the NodeClass and the NodePool. With `begin` the answers change before the NodeClass
    is resolved, else from the pod on.
    """
    breaches: list[str] = []
    kept: list[int] = []

    async def scenario(cluster: ProviderCluster) -> None:
        harness, watched = cluster.harness, Invariants(cluster.harness)
        async with joining(cloud, cluster, every_seconds=10):
            if not begin:
                cluster.apply(*objects)
                await cluster.until_ready("True")
            with changing(cloud._server, changes) as left:
                cluster.apply(*objects, WORKLOAD.manifest())
                await until(lambda: not left, every_seconds=5, within_seconds=600)
            await harness.settle(lambda: bool(harness.pods("Running")), seconds=7200)
            # Garbage is collected, what is bought twice would be bought, and a node that was described
            # as drifted is replaced.
            await until(lambda: len(cloud.living()) == 1, every_seconds=5, within_seconds=1800)
            await cluster.advance_minutes(5)
        assert cluster.running.is_alive, "the controller has ended"
        running = harness.pods("Running")
        assert len(running) == 1, f"running pods: {running}"
        kept.append(len(cloud.living()))
        breaches.extend(watched.breaches)

    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder), scenario)
    assert kept == [1], f"instances at the end: {kept}"
    assert not breaches, breaches
