"""Reads what Helm prints as strictly as kustomize and Flux do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.helm import CHART, helm

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DuplicateKeyError", "rendered_strictly"]


class DuplicateKeyError(Exception):
    """A mapping has a key twice, of which a lenient reader takes the last."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that a mapping has already."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise DuplicateKeyError(f"{key}: line {node.start_mark.line}")
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def rendered_strictly(
    values: Mapping[str, object], folder: Path, *, chart: Path = CHART, name: str = "karpenter"
) -> list[dict[str, Any]]:
    """Return the objects of a release with these values.

    Raises:
        DuplicateKeyError: a mapping of an object has a key twice.
    """
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", name, chart, "--namespace=karpenter", f"--values={file}")
    return [each for each in yaml.load_all(text, _StrictLoader) if each]
