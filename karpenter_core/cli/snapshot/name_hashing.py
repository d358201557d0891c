"""Replaces names in a snapshot by hashes that keep every reference.

A name becomes its rank in the order of all names and a keyed hash: the order of names, which breaks
ties in plans, stays the same, so that the plan of the hashed snapshot is that of the plain one up to
names. The key is random and is not kept.

Names are names and UIDs of objects, namespaces and owners, hostnames, provider IDs, and values of labels and
taints, except values that a cloud or Kubernetes defines (zones, instance types, capacity types, numbers,
truth values). Keys of labels stay. Of annotations stay the values that rules parse, with hashes for names,
and of others only numbers, truth values and versions.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from msgspec import structs

from karpenter_core.api.labels import VPA_OBSERVED, WELL_KNOWN
from karpenter_core.api.provisioning_request import (
    CONSUMED_REQUEST,
    CONSUMED_REQUEST_DEPRECATED,
    GANG_PODS,
    GANG_REQUEST,
    GANG_UID,
)
from karpenter_core.controllers.provisioning.new_claims import CAUSE
from karpenter_core.kube.wire.shapes import READ_ANNOTATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.snapshot.collection import CollectedCluster
    from karpenter_core.cli.snapshot_file.header import SnapshotHeader

__all__ = ["hash_names_of"]

_DIGEST_CHARACTERS: Final = 8
_NAME_FIELDS: Final = frozenset(
    {
        "claimName", "containerName", "deviceClassName", "generateName", "imageID", "name", "namespace", "nodeName",
        "nominatedNodeName", "persistentVolumeName", "priorityClassName", "providerID",
        "resourceClaimName", "schedulerName", "storageClassName", "uid", "volumeName",
    }
)  # fmt: skip
"""Fields whose value is a name."""
_NAME_LISTS: Final = frozenset({"namespaces"})
_LABEL_MAPS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_FIXED_FIELDS: Final = frozenset(
    {
        "apiVersion", "driver", "effect", "kind", "key", "operator", "phase", "provisioner", "reason",
        "status", "topologyKey", "type", "unit", "volumeBindingMode", "whenUnsatisfiable",
    }
)  # fmt: skip
"""Fields whose values are words of the API: they are replaced nowhere."""
_KEPT: Final = frozenset(
    {
        "", "default", "default-scheduler", "kube-node-lease", "kube-public", "kube-system",
        "system-cluster-critical", "system-node-critical",
    }
)  # fmt: skip
_NAME_ANNOTATIONS: Final = frozenset({CONSUMED_REQUEST, CONSUMED_REQUEST_DEPRECATED})
"""Annotations whose value is a name, also of an object that does not exist."""
_REFERENCES: Final = frozenset(
    {
        *_NAME_ANNOTATIONS, GANG_PODS, GANG_REQUEST, GANG_UID, "volume.kubernetes.io/selected-node",
    }
)  # fmt: skip
"""Annotations whose value is made of names of objects."""
_PARSED_DOMAINS: Final = frozenset(
    {"karpenter.sh", "pv.kubernetes.io", "storageclass.kubernetes.io"}
)
"""Domains of annotations that rules parse: their values are settings, times and references."""
_NAMING: Final = frozenset({CAUSE, VPA_OBSERVED})
"""Annotations that rules read and whose values have names, which no rule reads."""
_PLAIN: Final = re.compile(r"v?\d[\d.:TZ+-]*[a-z%]?|true|false|yes|no", re.IGNORECASE)
_FREE_TEXTS: Final = frozenset({"annotations", "parameters", "provisioningClassDetails"})
"""Fields that hold texts of their writer under any key."""
_SEPARATORS: Final = re.compile(r"([/,; ]+)")
"""Characters between the names of a reference."""
_IDENTITY_LABELS: Final = frozenset({"kubernetes.io/hostname", "kubernetes.io/metadata.name"})
_KEPT_DOMAINS: Final = (
    "karpenter.sh/capacity-type",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "beta.kubernetes.io/",
)


def hash_names_of(collected: CollectedCluster, *, key: bytes) -> CollectedCluster:
    """Return the contents of a snapshot with names replaced.

    NodeClasses are left out, since plans need only their catalogues, and their fields name accounts,
    networks and tags; messages of conditions and notes are left out too.
    """
    items = [item for item in collected.items if not _is_node_class(item, collected.header)]
    vocabulary = _Vocabulary(cast("Iterable[str]", collected.header.labels.get("well_known", ())))
    for types in collected.header.catalogues.values():
        for entry in types:
            vocabulary.keep_requirements(entry)
    for item in (*items, *collected.header.controllers):
        vocabulary.read(item)
    renamed = _renamer(vocabulary.names(), key)
    controllers = tuple(
        cast("dict[str, object]", _renamed(each, renamed)) for each in collected.header.controllers
    )
    return replace(
        collected,
        items=[cast("JsonObject", _renamed(item, renamed)) for item in items],
        header=structs.replace(
            collected.header,
            is_hashed=True,
            controllers=controllers,
            notes=(),
            classes=tuple(
                structs.replace(
                    each, name=renamed(each.name), problem=each.problem and "not listed"
                )
                for each in collected.header.classes
            ),
            settings=cast("dict[str, object]", _renamed(collected.header.settings, renamed)),
        ),
    )


def _is_node_class(item: JsonObject, header: SnapshotHeader) -> bool:
    group = str(item["apiVersion"]).rpartition("/")[0]
    return (group, item["kind"]) in {(each.group, each.kind) for each in header.classes}


class _Vocabulary:
    """The strings of a snapshot that are names, and those that must stay as they are."""

    def __init__(self, well_known: Iterable[str]) -> None:
        self._well_known: Final = (WELL_KNOWN | frozenset(well_known)) - _IDENTITY_LABELS
        self._found: Final = set[str]()
        self._kept: Final = set(_KEPT)

    def names(self) -> list[str]:
        """Return the names in order."""
        return sorted(
            name
            for name in self._found - self._kept
            if name not in {"true", "false"} and not _is_number(name)
        )

    def keep_requirements(self, value: object) -> None:
        """Keep every string of a catalogue: zones, instance types and the like."""
        self._kept.update(_strings(value))

    def read(self, value: object, field: str = "") -> None:
        """Collect the names and the words of an object."""
        if isinstance(value, list):
            for item in cast("list[object]", value):
                if isinstance(item, str) and field in _NAME_LISTS:
                    self._found.add(item)
                self.read(item, field)
        elif isinstance(value, dict):
            self._read_object(cast("JsonObject", value), field)

    def _read_object(self, fields: JsonObject, field: str) -> None:
        if field in _LABEL_MAPS:
            for key, text in fields.items():
                self._label(key, [text])
            return
        self._selection(fields)
        if field in _FREE_TEXTS:
            self._found.update(
                str(text) for key, text in fields.items() if key in _NAME_ANNOTATIONS
            )
            return
        for name, inner in fields.items():
            if name == "drivers" or (isinstance(inner, str) and name in _FIXED_FIELDS):
                self._kept.update(_strings(inner))
            elif isinstance(inner, str) and name in _NAME_FIELDS:
                self._found.add(inner)
            else:
                self.read(inner, name)

    def _selection(self, fields: JsonObject) -> None:
        """Read an entry with the key of a label: an expression, a requirement, a taint, a toleration."""
        key = fields.get("key")
        if not isinstance(key, str):
            return
        values = fields.get("values")
        if isinstance(values, list):
            self._label(key, cast("list[object]", values))
        value = fields.get("value")
        if isinstance(value, str):
            self._label(key, [value])

    def _label(self, key: str, values: Iterable[object]) -> None:
        texts = [text for text in values if isinstance(text, str)]
        is_identity = key in _IDENTITY_LABELS or key.endswith(("/nodepool", "nodeclass"))
        is_defined = key in self._well_known or key.startswith(_KEPT_DOMAINS)
        if is_defined and not is_identity:
            self._kept.update(texts)
        else:
            self._found.update(texts)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("JsonObject", value).values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)


def _is_number(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def _renamer(names: list[str], key: bytes) -> Callable[[str], str]:
    """Return a function from a string to its hash, or to itself if it is no name."""
    digits = len(str(len(names)))
    table = {
        name: f"n{rank:0{digits}d}-"
        + hmac.digest(key, name.encode(), "sha256").hex()[:_DIGEST_CHARACTERS]
        for rank, name in enumerate(names)
    }
    return lambda text: table.get(text, text)


def _renamed(value: object, renamed: Callable[[str], str], field: str = "") -> object:
    if isinstance(value, str):
        if field == "message":
            return ""
        return value if field in _FIXED_FIELDS else renamed(value)
    if isinstance(value, list | tuple):
        return [_renamed(item, renamed, field) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        if field in _FREE_TEXTS:
            return {key: _free_text(key, inner, renamed) for key, inner in fields.items()}
        return {name: _renamed(inner, renamed, name) for name, inner in fields.items()}
    return value


def _free_text(key: str, value: object, renamed: Callable[[str], str]) -> object:
    """Return the value of an annotation or a parameter without names; empty if it may be one."""
    if not isinstance(value, str):
        return _renamed(value, renamed)
    if key in _REFERENCES:
        return "".join(map(renamed, _SEPARATORS.split(value)))
    is_parsed = key in READ_ANNOTATIONS or key.rpartition("/")[0] in _PARSED_DOMAINS
    return value if (is_parsed and key not in _NAMING) or _PLAIN.fullmatch(value) else ""
