"""Rules of NodeClasses: model, resolution, conditions, hash and deletion."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.cel import CELError, compile_rule
from karpenter_core.api.crd import crd_name, render_crd
from karpenter_core.api.schema_keywords import check_keywords
from karpenter_core.errors import CloudProviderError, PluginError
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.conformance.other_process import HashRequest
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_010_a_node_class_is_ready_or_says_why_not",
    "test_pc_011_the_hash_of_a_node_class_is_stable",
    "test_pc_012_finalizing_may_be_repeated",
    "test_pc_013_what_cannot_be_found_is_named",
    "test_pc_014_a_cloud_that_cannot_be_asked_is_no_finding",
    "test_pc_015_resolving_twice_finds_the_same",
    "test_pc_016_the_model_makes_a_definition",
]


async def _conditions(world: ProviderWorld, node_class: NodeClass) -> dict[str, Condition]:
    resolution = await world.providers.resolve_node_class(node_class)
    return {c.type: c for c in (*node_class.status.conditions, *resolution.conditions)}


def test_pc_010_a_node_class_is_ready_or_says_why_not(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a NodeClass is Ready, or its condition has the reason."""

    async def scenario(world: ProviderWorld) -> None:
        found = await _conditions(world, subject.node_class)
        assert "Ready" in found, f"there is no condition Ready, only {sorted(found)}"
        ready = found["Ready"]
        assert ready.status == "True", (
            "the subject's NodeClass is one that can be launched, and its condition Ready is "
            f"{ready.status}: {ready.reason}: {ready.message}"
        )

    rule_steps.run_rule(subject, tmp_path, scenario, shows="PC-010")


def test_pc_011_the_hash_of_a_node_class_is_stable(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: the same fields hash to the same value in every process."""
    hashes: list[str] = []

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_hash_node_class")
        found = await world.providers.hash_node_class(subject.node_class)
        assert found is not None, "karpenter_hash_node_class returned None"
        hashes.append(f"{found.version}/{found.value}")

    rule_steps.run_rule(subject, tmp_path, scenario)
    rule_steps.run_rule(subject, tmp_path, scenario)
    if inspect.isclass(subject.make) and _can_be_found(subject.make):
        hashes.append(_hash_in_other_process(subject, tmp_path))
    assert len(set(hashes)) == 1, (
        f"one NodeClass hashes to {hashes}; use hashlib over sorted JSON, never hash() or a set"
    )


def _can_be_found(plugin: type) -> bool:
    """Return whether another process can import a class under its name."""
    return getattr(sys.modules[plugin.__module__], plugin.__qualname__, None) is plugin


def _hash_in_other_process(subject: ConformanceSubject, folder: Path) -> str:
    """Compute the hash in a process whose `hash()` has another seed."""
    question = HashRequest(
        name=subject.name,
        make=subject.make,
        model=type(subject.node_class),
        node_class=subject.node_class.model_dump_json(by_alias=True),
        settings=dict(subject.settings),
        folder=str(folder),
    )
    done = subprocess.run(
        [sys.executable, "-m", "karpenter_core.testing.conformance.other_process"],
        input=pickle.dumps(question),
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONHASHSEED": "1",
        },
    )
    assert done.returncode == 0, f"another process cannot hash it:\n{done.stderr.decode()}"
    return done.stdout.decode().strip()


def test_pc_012_finalizing_may_be_repeated(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: karpenter_finalize_node_class is idempotent and leaves nothing."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_finalize_node_class")
        plugin = world.plugins[subject.name]
        before = set(subject.list_resources(plugin)) if subject.list_resources else set[str]()
        request, outcome = await rule_steps.launch_new_claim(world, subject, "last")
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        for _ in range(2):
            await world.providers.finalize_node_class(request.node_class)
        if subject.list_resources:
            left = set(subject.list_resources(plugin)) - before
            assert not left, f"after karpenter_finalize_node_class the cloud still has {left}"

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_013_what_cannot_be_found_is_named(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: an unusable NodeClass is not Ready, with a reason, field and value."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_resolve_node_class")
        if not subject.unusable_node_classes:
            pytest.skip(
                "not shown: the subject names no unusable NodeClass (ConformanceSubject.unusable_node_classes)"
            )
        for text, node_class in subject.unusable_node_classes.items():
            ready = (await _conditions(world, node_class)).get("Ready")
            assert ready is not None, f"for {text} there is no condition Ready"
            assert ready.status == "False", f"for {text} the condition Ready is {ready.status}"
            assert ready.reason, f"for {text} the condition Ready has no reason"
            assert text in ready.message, (
                f'the message of the condition Ready does not name "{text}": {ready.message!r}'
            )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_014_a_cloud_that_cannot_be_asked_is_no_finding(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: resolving raises if the cloud cannot be reached; the last status is kept."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_resolve_node_class")
        with rule_steps.trouble(subject, world, CloudTrouble.OUTAGE):
            try:
                found = await _conditions(world, subject.node_class)
            except CloudProviderError:
                return
        ready = found.get("Ready")
        assert ready is not None and ready.status == "True", (  # noqa: PT018
            f"while no call reaches the cloud, the condition Ready becomes {ready}: raise instead"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_015_resolving_twice_finds_the_same(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: resolving an unchanged NodeClass returns the same result while the cloud is unchanged."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_resolve_node_class")
        node_class = await world.resolved(subject.node_class)
        first = await world.providers.resolve_node_class(node_class)
        second = await world.providers.resolve_node_class(node_class)
        assert first == second, (
            f"the status would be written again and again: first {first}, then {second}"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_016_the_model_makes_a_definition(subject: ConformanceSubject) -> None:
    """MUST: the CRD can be rendered from the model, and the model can parse its own output."""
    model = type(subject.node_class)
    try:
        definition = render_crd(model)
    except PluginError as error:
        pytest.fail(str(error))
    assert definition["metadata"]["name"] == crd_name(model.resource)
    assert "." in model.resource.group, f'"{model.resource.group}" is no domain of its own'
    assert not model.resource.group.endswith(("karpenter.sh", "k8s.io")), (
        f'the group "{model.resource.group}" belongs to somebody else'
    )
    _expect_usable(definition)
    written = subject.node_class.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert model.model_validate(written) == subject.node_class, (
        f"{model.__name__} reads back something else than it wrote: {written}"
    )


def _expect_usable(definition: JsonObject) -> None:
    """Expect rules that can be compiled, and defaults that the schema itself permits."""
    _expect_part(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")


def _expect_part(schema: JsonObject, path: str) -> None:
    if "default" in schema:
        for error in check_keywords(schema, schema["default"], path):
            pytest.fail(f"the default of {error}: the API server would refuse the definition")
    for rule in schema.get("x-kubernetes-validations", ()):
        try:
            compile_rule(rule["rule"])
        except CELError as error:
            pytest.fail(
                f"the rule {rule['rule']!r} of {path or 'the object'} cannot be compiled: {error}"
            )
    for name, child in schema.get("properties", {}).items():
        _expect_part(child, f"{path}.{name}".removeprefix("."))
    for below in ("items", "additionalProperties"):
        if isinstance(schema.get(below), dict):
            _expect_part(schema[below], f"{path}[]")
