"""CRDs are rendered from the models, committed, and equal to the reference's."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

import pytest
import yaml

from karpenter_core.api.base import KubernetesObject, Model, ServedVersion
from karpenter_core.api.cel import CEL, RuleSlot
from karpenter_core.api.crd import core_models, crd_file_name, crd_name, render_crd, render_yaml
from karpenter_core.api.facets import Facets, RenderedAs
from karpenter_core.api.nodeclaim import NodeClaim, RequirementSpec
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.openapi import object_schema
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_kwok.api import KWOKNodeClass

ROOT = Path(__file__).parents[2]
IN_REFERENCE = (*core_models(), KWOKNodeClass)
MODELS = (
    *IN_REFERENCE,
    EC2NodeClass,
    ECSNodeClass,
    AKSNodeClass,
)  # providers' own tests compare theirs
REFERENCE = "sigs.k8s.io/karpenter@v1.14.0"
ABSENT = "absent"

every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.resource.kind)


def schema_of(model, **more) -> dict:
    return render_crd(model, **more)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def at(schema: dict, path: str) -> dict:
    for name in path.split("."):
        schema = schema["items"] if name == "items" else schema["properties"][name]
    return schema


@every_model
def test_committed_crds_equal_the_rendered_models(model):
    committed = ROOT / "crds" / crd_file_name(model)

    assert committed.read_text() == render_yaml(model), "run `make crds`"


def test_crd_folder_holds_no_other_file():
    assert {path.name for path in (ROOT / "crds").iterdir()} == {
        crd_file_name(model) for model in MODELS
    }


@every_model
def test_rendering_is_the_same_every_time_and_reads_back_as_itself(model):
    assert render_yaml(model) == render_yaml(model)
    assert yaml.safe_load(render_yaml(model)) == render_crd(model)


def test_scale_and_status_subresources():
    pool = render_crd(NodePool)["spec"]["versions"][0]["subresources"]
    claim = render_crd(NodeClaim)["spec"]["versions"][0]["subresources"]

    assert pool == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
    }
    assert claim == {"status": {}}


class TwoVersions(KWOKNodeClass):
    """Was served under another version."""

    resource = replace(
        KWOKNodeClass.resource,
        version="v1beta1",
        served_versions=(
            ServedVersion(name="v1alpha2", deprecation_warning="use v1beta1"),
            ServedVersion(name="v1alpha3"),
        ),
    )


def test_older_versions_are_served_with_the_fields_of_the_stored_one():
    stored, deprecated, other = render_crd(TwoVersions)["spec"]["versions"]
    assert [
        (each["name"], each["storage"], each["served"]) for each in (stored, deprecated, other)
    ] == [
        ("v1beta1", True, True),
        ("v1alpha2", False, True),
        ("v1alpha3", False, True),
    ]
    assert (deprecated["deprecated"], deprecated["deprecationWarning"]) == (True, "use v1beta1")
    assert "deprecated" not in other
    for same in ("schema", "subresources"):
        assert stored[same] == deprecated[same] == other[same]
    assert "conversion" not in render_crd(TwoVersions)["spec"], "the default strategy is None"


def test_each_version_of_a_kind_can_be_read():
    group = KWOKNodeClass.resource.group
    assert TwoVersions.resource.api_versions == (
        f"{group}/v1beta1",
        f"{group}/v1alpha2",
        f"{group}/v1alpha3",
    )


def test_names_are_those_users_type():
    names = render_crd(KWOKNodeClass)["spec"]["names"]

    assert names == {
        "categories": ["karpenter"],
        "kind": "KWOKNodeClass",
        "listKind": "KWOKNodeClassList",
        "plural": "kwoknodeclasses",
        "shortNames": ["kwoknc", "kwokncs"],
        "singular": "kwoknodeclass",
    }
    assert crd_name(KWOKNodeClass.resource) == "kwoknodeclasses.karpenter.kwok.sh"


def test_providers_add_rules_to_requirement_keys_and_labels():
    rules = {
        RuleSlot.REQUIREMENT_KEY: [CEL('self != "cloud.example/x"', "restricted")],
        RuleSlot.TEMPLATE_LABELS: [CEL('!("cloud.example/x" in self)', "restricted")],
    }

    pool = schema_of(NodePool, extra_rules=rules)
    claim = schema_of(NodeClaim, extra_rules=rules)

    pool_key = at(pool, "spec.template.spec.requirements.items.key")
    assert pool_key["x-kubernetes-validations"][2]["rule"] == 'self != "cloud.example/x"'
    claim_key = at(claim, "spec.requirements.items.key")
    assert claim_key["x-kubernetes-validations"][-1]["rule"] == 'self != "cloud.example/x"'
    labels = at(pool, "spec.template.metadata.labels")
    assert labels["x-kubernetes-validations"][-1]["message"] == "restricted"
    assert "cloud.example/x" not in str(schema_of(NodePool))


def test_descriptions_come_from_the_docstrings():
    spec = at(schema_of(NodePool), "spec")

    assert spec["description"] == "Desired state of the NodePool."
    assert "tried first" in spec["properties"]["weight"]["description"]
    assert "nodes" in at(spec, "disruption.budgets.items.nodes")["description"].lower()


def test_a_field_is_rendered_as_the_type_of_its_annotation():
    class Plain(Model):
        key: str

    class Found(Model):
        requirements: Annotated[
            tuple[RequirementSpec, ...], RenderedAs(tuple[Plain, ...]), Facets(max_items=3)
        ] = ()

    class Finding(KubernetesObject):
        status: Found = Found()

    drawn = object_schema(Finding, extra_rules={})["properties"]["status"]["properties"]

    assert drawn["requirements"] == {
        "type": "array",
        "maxItems": 3,
        "items": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    }


@every_model
def test_every_field_is_described(model):
    def bare(schema: dict, path: str) -> list[str]:
        results = []
        for name, child in schema.get("properties", {}).items():
            here = f"{path}.{name}"
            if "description" not in child and here != ".metadata":
                results.append(here)
            results += bare(child, here) + bare(child.get("items", {}), here)
        return results

    assert bare(schema_of(model), "") == []


@cache
def reference_folder() -> Path:
    go = shutil.which("go")
    cache_folder = os.environ.get("GOMODCACHE", "")
    if not cache_folder and go:
        asked = subprocess.run(
            [go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True
        )
        cache_folder = asked.stdout.strip()
    folder = Path(cache_folder) / REFERENCE
    if not cache_folder or not folder.is_dir():
        pytest.skip(f"{REFERENCE} is not in the Go module cache (go mod download {REFERENCE})")
    return folder


def reference_crd(name: str) -> dict:
    for folder in ("pkg/apis/crds", "kwok/apis/crds"):
        path = reference_folder() / folder / name
        if path.is_file():
            return yaml.safe_load(path.read_text())
    pytest.fail(f"the reference has no {name}")


def normalised(value: object, *, are_properties: bool = False) -> object:
    """Drop descriptions; the order of required names and of rules means nothing either."""
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {
        key: normalised(item, are_properties=key == "properties")
        for key, item in value.items()
        if are_properties or key != "description"
    }
    if not are_properties and "required" in result:
        result["required"] = sorted(result["required"])
    if "x-kubernetes-validations" in result:
        result["x-kubernetes-validations"].sort(key=lambda rule: rule["rule"])
    return result


def differences(ours: object, theirs: object, path: str = "") -> dict[str, tuple[object, object]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        steps = [
            (key, ours.get(key, ABSENT), theirs.get(key, ABSENT))
            for key in sorted(ours.keys() | theirs.keys())
        ]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        steps = [(str(i), a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    else:
        return {} if ours == theirs else {path.removeprefix("."): (ours, theirs)}
    result: dict[str, tuple[object, object]] = {}
    for key, ours_below, theirs_below in steps:
        result |= differences(ours_below, theirs_below, f"{path}.{key}")
    return result


def allowed(name: str) -> dict[str, dict]:
    entries = yaml.safe_load((Path(__file__).parent / "crd_differences.yaml").read_text())
    assert all(entry["reason"] for entry in entries)
    return {e["path"]: e for e in entries if "*" in e["files"] or name in e["files"]}


@pytest.mark.parametrize("model", IN_REFERENCE, ids=lambda model: model.resource.kind)
def test_schema_equals_the_reference_but_for_the_reviewed_list(model):
    name = crd_file_name(model)
    theirs = normalised(reference_crd(name))

    result = differences(normalised(render_crd(model)), theirs)

    assert result.keys() == allowed(name).keys()
    for path, entry in allowed(name).items():
        ours_there, theirs_there = result[path]
        assert entry.get("ours", ours_there) == ours_there
        assert entry.get("reference", theirs_there) == theirs_there
