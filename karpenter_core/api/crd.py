"""Renders CustomResourceDefinitions from the models.

The models are the only source: types give the structure, `Facets` the bounds, `CEL` the rules,
docstrings the descriptions (`kubectl explain` shows them), `CustomResource` everything around the
schema. The committed YAML is output, compared with a fresh rendering by a test; nothing reads it at
run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.openapi import object_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.base import (
        CustomResource,
        KubernetesObject,
        PrinterColumn,
        ServedVersion,
    )
    from karpenter_core.api.cel import CEL, RuleSlot
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["core_models", "crd_file_name", "crd_name", "render_crd", "render_yaml"]


def core_models() -> tuple[type[KubernetesObject], ...]:
    """Return the core's own kinds; providers name theirs in `ProviderInfo`."""
    return (NodePool, NodeClaim, NodeOverlay, CapacityBuffer)


def crd_name(resource: CustomResource) -> str:
    """Return the name of the kind's CustomResourceDefinition."""
    return f"{resource.plural}.{resource.group}"


def crd_file_name(model: type[KubernetesObject]) -> str:
    """Return the name of the file that holds the kind's definition."""
    return f"{model.resource.group}_{model.resource.plural}.yaml"


def render_crd(
    model: type[KubernetesObject],
    *,
    extra_rules: Mapping[RuleSlot, Sequence[CEL]] | None = None,
) -> JsonObject:
    """Return a kind's CustomResourceDefinition as plain JSON values.

    `extra_rules` are what providers add for label domains of their own.
    """
    resource = model.resource
    version: JsonObject = {
        "name": resource.version,
        "schema": {"openAPIV3Schema": object_schema(model, extra_rules=extra_rules or {})},
        "served": True,
        "storage": True,
        "subresources": _subresources(resource),
    }
    if resource.printer_columns:
        columns = [_printer_column(column) for column in resource.printer_columns]
        version["additionalPrinterColumns"] = columns
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd_name(resource)},
        "spec": {
            "group": resource.group,
            "names": _names(resource),
            "scope": resource.scope,
            "versions": [version, *(_served(version, each) for each in resource.served_versions)],
        },
    }


def render_yaml(
    model: type[KubernetesObject],
    *,
    extra_rules: Mapping[RuleSlot, Sequence[CEL]] | None = None,
) -> str:
    """Return a kind's CustomResourceDefinition as YAML: the same bytes for the same model."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes no anchors, and text of several lines as a block."""

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(_dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(
        render_crd(model, extra_rules=extra_rules),
        Dumper=Dumper,
        explicit_start=True,
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
    )


def _served(stored: JsonObject, version: ServedVersion) -> JsonObject:
    """Return another version with the stored one's fields, which needs no conversion."""
    served: JsonObject = {**stored, "name": version.name, "storage": False}
    if version.deprecation_warning:
        served |= {"deprecated": True, "deprecationWarning": version.deprecation_warning}
    return served


def _names(resource: CustomResource) -> JsonObject:
    names: JsonObject = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }
    if resource.categories:
        names["categories"] = list(resource.categories)
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    return names


def _printer_column(column: PrinterColumn) -> JsonObject:
    drawn: JsonObject = {
        "jsonPath": column.json_path,
        "name": column.name,
        "type": column.type,
    }
    if column.priority:
        drawn["priority"] = column.priority
    return drawn


def _subresources(resource: CustomResource) -> JsonObject:
    subresources: JsonObject = {"status": {}}
    if resource.scale is not None:
        spec_path, status_path = resource.scale
        subresources["scale"] = {"specReplicasPath": spec_path, "statusReplicasPath": status_path}
    return subresources
