"""No NodePool, NodeClass or NodeClaim that the API server admits stops the controller, or launches what it forbids.

`KARPENTER_PROPERTY_EXAMPLES=2000 pytest tests/controllers/test_admitted_objects.py` tries many.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from karpenter_core.api.crd import render_crd
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.sim.status import StatusError
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)
from tests.properties import with_examples
from tests.support.admitted_objects import variants_of
from tests.support.invariants import Invariants
from tests.support.log_lines import LogLines

REF = {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"}
MINE = {"example.com/of": "good"}


@cache
def schema_of(model):
    return render_crd(model)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@st.composite
def specs(draw, model, base):
    spec = draw(variants_of(schema_of(model)["properties"]["spec"], base))
    if draw(st.integers(0, 9)):  # mostly of a class that exists
        at = spec if model is NodeClaim else spec.get("template", {}).get("spec")
        if isinstance(at, dict):
            at["nodeClassRef"] = REF
    return spec


KINDS = {
    "NodePool": (NodePool, node_pool("odd")["spec"]),
    "NodeClaim": (NodeClaim, {"nodeClassRef": REF, "requirements": []}),
    "KWOKNodeClass": (KWOKNodeClass, {}),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@with_examples(16)
@given(data=st.data())
def test_an_admitted_object_harms_no_other_and_is_obeyed(kind, data):
    model, base = KINDS[kind]
    odd = {
        "apiVersion": f"{model.resource.group}/{model.resource.version}",
        "kind": kind,
        "metadata": {"name": "odd"},
        "spec": data.draw(specs(model, base), label="spec"),
    }
    checker = SchemaValidator(schema_of(model))
    if checker.validate(checker.default(odd)):
        event("refused")
        return
    event("admitted")
    breaches: list[str] = []

    async def story(harness):
        cluster = harness.cluster
        good = node_pool(template={"nodeClassRef": REF})
        good["spec"]["template"]["metadata"] = {"labels": MINE}
        cluster.apply([NODE_CLASS, good])
        try:
            cluster.apply([odd])
        except StatusError as refusal:
            # The server knows rules that no schema says, as for replicas that a scale cannot show.
            if refusal.code != 422:
                raise
            event("refused by the server")
            return
        if kind == "KWOKNodeClass":
            ref = {**REF, "name": "odd"}
            cluster.apply([node_pool("of-odd", template={"nodeClassRef": ref})])
        watched = Invariants(harness)
        process = harness.start()
        cluster.apply(
            [
                deployment("mine", 2, nodeSelector=MINE),
                deployment("any", 2, tolerations=[{"operator": "Exists"}]),
            ]
        )
        await harness.settle(lambda: running(harness, "mine") == 2, seconds=600)
        await asyncio.sleep(90)  # what the odd one leads to
        assert running(harness, "mine") == 2
        assert process.is_alive
        assert len(harness.claims()) <= 20
        breaches.extend(watched.breaches)
        check_obeyed(odd, harness.claims())

    with tempfile.TemporaryDirectory() as folder, surprises() as found:
        run_controller(Path(folder), story)
    assert breaches == []
    assert found == []


@contextmanager
def surprises():
    """Collect the errors that are logged with a traceback: nobody has thought of them."""
    found: list[str] = []
    keep = LogLines.__call__

    def collect(self, logger, method, line):
        if line.get("exc_info"):
            found.append(f"{line.get('event')}: {line.get('error', '')} {sys.exc_info()[1]!r}")
        return keep(self, logger, method, line)

    with patch.object(LogLines, "__call__", collect):
        yield found


def running(harness, app):
    return sum(pod["metadata"]["labels"]["app"] == app for pod in harness.pods("Running"))


def check_obeyed(odd, claims):
    """Compare the launched claims of the NodePool with its requirements and limits."""
    if odd["kind"] != "NodePool":
        return
    pool = NodePool.model_validate(odd)
    mine = [
        claim
        for claim in claims
        if claim["metadata"]["labels"].get("karpenter.sh/nodepool") == "odd"
        and claim["status"].get("capacity")
    ]
    for claim in mine:
        labels = claim["metadata"]["labels"]
        for requirement in odd["spec"]["template"]["spec"]["requirements"]:
            assert holds(requirement, labels.get(requirement["key"])), (requirement, labels)
    total: dict[str, int] = {}
    for claim in mine:
        for name, amount in parse_resources(claim["status"]["capacity"]).items():
            total[name] = total.get(name, 0) + amount
    limits = parse_resources(pool.model_dump(mode="json")["spec"].get("limits") or {})
    for name, limit in limits.items():
        used = len(mine) if name == "nodes" else total.get(name, 0)
        assert used <= max(limit, 0), (name, used, limit)


def holds(requirement, value):
    """Evaluate one requirement by itself, from the words of the API reference."""
    values = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value is None or value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return True
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is None or int(value) > int(values[0])
        case "Lt":
            return value is None or int(value) < int(values[0])
        case "Gte":
            return value is None or int(value) >= int(values[0])
        case "Lte":
            return value is None or int(value) <= int(values[0])
    raise AssertionError(requirement)
