"""Whatever Azure answers through its SDK, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/azure/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.registrar import joining
from providers.azure.tests.stages import CloudStage, pod_manifest
from tests.properties import with_examples
from tests.support.invariants import Invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpRequest
    from karpenter_core.testing.provider_cluster import ProviderCluster

SIZE = "Standard_D2s_v5"
ODD_VALUES = (
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
DEEP = b"[" * 50_000 + b"]" * 50_000


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


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
    """Return JSON with one part replaced by an odd value, or left out for None."""
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


def changed(reply: HttpReply, change: tuple[str, int, int]) -> HttpReply:
    """Return a reply that went wrong on its way."""
    name, where, odd = change
    match name:
        case "cut":
            return replace(reply, is_cut=True)
        case "half":
            return replace(reply, body=reply.body[: len(reply.body) // 2])
        case "deep":
            return replace(reply, body=DEEP)
        case "page":
            return replace(
                reply, body=b"<html>sign in</html>", headers=(("Content-Type", "text/html"),)
            )
        case "empty":
            return replace(reply, body=b"")
        case "padded":
            return replace(reply, body=reply.body + b" " * 2**20)
        case "status":
            return replace(reply, status=(200, 202, 204, 302, 404, 409, 500)[odd % 7])
        case "without":
            return replace(reply, body=with_odd_part(reply.body, where, None))
        case _:
            return replace(reply, body=with_odd_part(reply.body, where, odd))


@contextmanager
def changing(stage: CloudStage, changes: list[tuple[str, int, int] | None]) -> Iterator[None]:
    """Change the answers to come, each as its turn says."""
    listener = stage.cloud._server._listener
    honest = listener.application
    left = list(changes)

    def application(request: HttpRequest) -> HttpReply | None:
        reply = honest(request)
        change = left.pop(0) if left else None
        return reply if reply is None or change is None else changed(reply, change)

    listener.application = application
    try:
        yield
    finally:
        listener.application = honest


KINDS = ("cut", "half", "deep", "page", "empty", "padded", "status", "without", "odd", "odd", "odd")
CHANGES = st.tuples(st.sampled_from(KINDS), st.integers(0, 500), st.integers(0, 50))


@with_examples(4)
@given(
    begin=st.booleans(),
    changes=st.lists(st.none() | CHANGES, min_size=1, max_size=40),
)
def test_a_pod_gets_one_instance_whatever_the_answers_were_before(
    cloud_stage: CloudStage, begin: bool, changes: list[tuple[str, int, int] | None]
) -> None:
    cloud_stage.cloud.reset()
    breaches: list[str] = []
    kept: list[int] = []

    async def scenario(cluster: ProviderCluster) -> None:
        harness, cloud = cluster.harness, cloud_stage.cloud
        watched = Invariants(harness)
        pool = node_pool_manifest(
            AKSNodeClass, requirements={"node.kubernetes.io/instance-type": [SIZE]}
        )
        async with joining(cloud, cluster):
            if not begin:
                cluster.apply(cloud_stage.node_class(), pool)
                await cluster.until_ready("True")
            with changing(cloud_stage, changes):
                cluster.apply(cloud_stage.node_class(), pool, pod_manifest("web"))
                await cluster.advance_minutes(10)
            await harness.settle(lambda: bool(harness.pods("Running")), seconds=7200)
            await cluster.advance_minutes(30)  # garbage is collected
        assert cluster.running.is_alive
        assert len(harness.pods("Running")) == 1
        kept.append(len(cloud.nodes()))
        breaches.extend(watched.breaches)

    with tempfile.TemporaryDirectory() as folder:
        cloud_stage.play(Path(folder), scenario)
    assert kept == [1]
    assert breaches == []
