"""Checks converted manifests by the schemas and CEL rules of their CRDs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import yaml

from karpenter_core.api.crd import core_models, render_crd
from karpenter_core.api.schema import SchemaValidator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.convert.session import ConvertedDocument

__all__ = ["kubelet_fields", "manifest_errors"]


def manifest_errors(
    results: Iterable[ConvertedDocument], models: Iterable[type[KubernetesObject]]
) -> tuple[str, ...]:
    """Return what an API server would refuse, one line each; only of documents that were converted."""
    definitions = {
        (model.resource.group, model.resource.kind): model for model in (*core_models(), *models)
    }
    validators = dict[tuple[str, str], SchemaValidator]()
    errors: list[str] = []
    for result in results:
        for text in result.texts if result.is_converted else ():
            manifest = cast("JsonObject", yaml.safe_load(text))
            key = (str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind")))
            if key not in definitions:
                continue
            if key not in validators:
                validators[key] = _validator(definitions[key], manifest)
            errors += _errors(manifest, validators[key])
    return tuple(errors)


def kubelet_fields(
    models: Iterable[type[KubernetesObject]],
) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return the names in `spec.kubelet` of NodeClasses, by group and kind; None for any name."""
    found: dict[tuple[str, str], frozenset[str] | None] = {}
    for model in models:
        schema: JsonObject = render_crd(model)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kubelet: JsonObject = schema["properties"]["spec"]["properties"].get("kubelet", {})
        is_open = bool(kubelet.get("x-kubernetes-preserve-unknown-fields"))
        names = frozenset[str](kubelet.get("properties", {}))
        found[model.resource.group, model.resource.kind] = None if is_open else names
    return found


def _validator(model: type[KubernetesObject], manifest: Mapping[str, object]) -> SchemaValidator:
    version = str(manifest.get("apiVersion")).rpartition("/")[2]
    versions = render_crd(model)["spec"]["versions"]
    served = next((each for each in versions if each["name"] == version), versions[0])
    return SchemaValidator(served["schema"]["openAPIV3Schema"])


def _errors(manifest: JsonObject, validator: SchemaValidator) -> Iterator[str]:
    metadata = cast("Mapping[str, object]", manifest.get("metadata") or {})
    title = f'{manifest.get("kind")} "{metadata.get("name", "")}"'
    for error in validator.validate(validator.default(manifest)):
        yield f"{title}: {error.path}: {error.message}"
