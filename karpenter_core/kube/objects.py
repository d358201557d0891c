"""Reads manifests (files, tests) by the codecs of the API server's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from karpenter_core.errors import BadInputError
from karpenter_core.kube.wire.codecs import Codecs

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.kube.wire.kind_codec import Codec
    from karpenter_core.state.events import StateObject

__all__ = ["complete_manifest", "view_from_manifest"]


def view_from_manifest(manifest: JsonMapping, codecs: Codecs | None = None) -> StateObject:
    """Read a manifest into the view or model that a watch would have given.

    What only a server knows is filled in: a UID made of kind, namespace and name, the namespace
    `default`, and, for a pod without status and node, that the scheduler has given up on it.

    Raises:
        BadInputError: the kind is not one we read, or the object is malformed.
    """
    codecs = codecs or Codecs()
    codec = _codec_of(manifest, codecs)
    filled = _fill(manifest, namespaced=codec.kind.namespaced)
    try:
        body = msgspec.json.encode(filled)
    except (TypeError, msgspec.MsgspecError) as error:
        title = f'{filled["kind"]} "{filled["metadata"]["name"]}"'
        raise BadInputError(f"{title}: {error}") from error
    return codec.decode(body)


def complete_manifest(manifest: JsonMapping, codecs: Codecs) -> JsonObject:
    """Return the manifest with what only a server knows, as `view_from_manifest` fills it in.

    Raises:
        BadInputError: the kind is not one we read.
    """
    return _fill(manifest, namespaced=_codec_of(manifest, codecs).kind.namespaced)


def _codec_of(manifest: JsonMapping, codecs: Codecs) -> Codec:
    api_version, kind = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    group, _, version = api_version.rpartition("/")
    codec = codecs.find(group, kind)
    name = _name_of(manifest.get("metadata") or {})
    if codec is None:
        known_kinds = ", ".join(
            sorted(f"{known_kinds.api_version} {known_kinds.kind}" for known_kinds in codecs.kinds)
        )
        message = f'{kind or "object"} "{name}": kind: unknown {api_version!r} {kind!r}; known: {known_kinds}'
        raise BadInputError(message)
    if version != codec.kind.version:
        message = (
            f'{kind} "{name}": apiVersion: must be {codec.kind.api_version}, not {api_version}'
        )
        raise BadInputError(message)
    return codec


def _name_of(metadata: JsonMapping) -> str:
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _fill(manifest: JsonMapping, *, namespaced: bool) -> JsonObject:
    metadata: JsonMapping = manifest.get("metadata") or {}
    name = _name_of(metadata)
    namespace = str(metadata.get("namespace") or "default") if namespaced else ""
    kind = str(manifest.get("kind"))
    parts = (kind.lower(), namespace, name) if namespace else (kind.lower(), name)
    meta: JsonObject = {"uid": "/".join(parts), **metadata, "name": name}
    if namespace:
        meta["namespace"] = namespace
    filled: JsonObject = {**manifest, "metadata": meta}
    spec: JsonMapping = manifest.get("spec") or {}
    if kind == "Pod" and "status" not in manifest and not spec.get("nodeName"):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        filled["status"] = {"phase": "Pending", "conditions": [condition]}
    return filled
