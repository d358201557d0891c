"""Prints manifests as YAML documents, or as one List in JSON."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["ManifestFormat", "json_list"]


class ManifestFormat(StrEnum):
    """Values of `--output` of commands that print manifests."""

    YAML = "yaml"
    JSON = "json"


def json_list(manifests: Sequence[JsonObject]) -> str:
    """Return one List of all manifests, which `kubectl apply` takes, too."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return json.dumps(document, indent=2, ensure_ascii=False)
