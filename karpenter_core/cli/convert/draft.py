"""Holds a document under conversion, and the manifests made of it.

The draft knows where each field of the document went, so that a field that no conversion named is
reported, and comments follow their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast, final

import yaml

from karpenter_core.cli.convert.yaml_manifest import (
    OutputManifest,
    renamed_keys,
    renewed_node,
    value_at,
)
from karpenter_core.cli.convert.yaml_text import FieldComments, FieldPath, TextDocument, fields_of
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["Draft", "FieldChange", "FieldFate", "HandOver", "path_text"]

_UNCHANGED: Final = object()

_SERVER_FIELDS: Final[tuple[FieldPath, ...]] = (
    *(
        ("metadata", name)
        for name in (
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
            "uid",
        )
    ),
    ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
    ("status",),
)
_HASHES: Final = ("-hash", "-hash-version")
"""Endings of annotations that controllers write."""


class FieldFate(StrEnum):
    """Result of the conversion of a field."""

    MOVED = "moved"
    """It has another path, and the same value."""
    CHANGED = "changed"
    """It has another value."""
    ADDED = "added"
    """The document did not have it."""
    USED = "used"
    """Fields that were added have its meaning."""
    LEFT_OUT = "left out"
    """Nothing of today has its meaning, or needs it."""
    UNKNOWN = "unknown"
    """No conversion knows the field."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A field of a document whose place or value is another one after the conversion."""

    fate: FieldFate
    source: str = ""
    """Path in the document; empty for an added field."""
    target: str = ""
    """Path in the new manifest; empty for a field that is left out."""
    manifest: str = ""
    """Kind and name of the new manifest, if it is not the one that replaces the document."""
    value: object = None
    """The value as it was, for a field that is left out; else the new one."""
    reason: str = ""
    is_notable: bool = True
    """False for what every conversion does: version, kind, and fields that the API server writes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A field that belongs to a NodeClass now."""

    path: FieldPath
    group: str
    kind: str
    name_at: FieldPath
    to: FieldPath
    reason: str


@dataclass(slots=True)
class _Provenance:
    """A part of the document that became a part of a manifest."""

    source: FieldPath
    manifest: OutputManifest
    target: FieldPath


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """A document and the manifest that replaces it; see `ManifestDraft` of the contract."""

    document: TextDocument | None
    """None for a manifest that no document corresponds to."""
    source: Mapping[str, object]
    documents: Sequence[Mapping[str, object]]
    begin: Callable[[], Draft]
    """Begins another manifest of the same document."""
    manifest: OutputManifest = field(default_factory=OutputManifest)
    changes: list[FieldChange] = field(default_factory=list["FieldChange"])
    warnings: list[str] = field(default_factory=list[str])
    hand_overs: list[HandOver] = field(default_factory=list["HandOver"])
    _consumed: set[FieldPath] = field(default_factory=set["FieldPath"])
    _provenance: list[_Provenance] = field(default_factory=list["_Provenance"])

    # -- the contract --------------------------------------------------------------------------

    def get(self, path: str) -> object:
        """Return a field of the document; None if there is none."""
        return value_at(self.source, _parsed(path))

    def become(self, *, api_version: str, kind: str) -> None:
        """Give the manifest another version and kind, and keep its metadata.

        Raises:
            BadInputError: labels or annotations are no object.
        """
        for name, value in (("apiVersion", api_version), ("kind", kind)):
            self._place((name,), self, (name,), value, "", is_notable=False)
        for path in _SERVER_FIELDS:
            self.leave_out_field(path, "the API server writes it", is_notable=False)
        for field_name in ("labels", "annotations"):
            if not isinstance(self.get(f"metadata.{field_name}") or {}, Mapping):
                raise BadInputError(f'field "metadata.{field_name}": is not an object')
        annotations = cast("Mapping[str, object]", self.get("metadata.annotations") or {})
        for name in map(str, annotations):
            if name.startswith("karpenter.") and name.endswith(_HASHES):
                path = ("metadata", "annotations", name)
                self.leave_out_field(path, "the controller writes it", is_notable=False)
        self.keep("metadata")

    def keep(self, path: str) -> None:
        """Keep a field where it is."""
        self.move(path, path)

    def move(
        self,
        path: str,
        to: str,
        *,
        value: object = _UNCHANGED,
        reason: str = "",
        into: ManifestDraft | None = None,
    ) -> None:
        """Move a field to another path, of another manifest if one is given."""
        source = _parsed(path)
        if not self._has(source) or source in self._consumed:
            return
        other = self if into is None else into
        if not isinstance(other, Draft):
            raise TypeError(f"{into!r} is no draft of this conversion")
        self._place(source, other, _parsed(to), value, reason)

    def use(self, path: str, reason: str) -> None:
        """Report a field whose meaning is in fields that are added."""
        self._consume(_parsed(path), FieldFate.USED, reason)

    def leave_out(self, path: str, reason: str) -> None:
        """Leave a field out."""
        self.leave_out_field(_parsed(path), reason)

    def add(self, to: str, value: object, reason: str) -> None:
        """Add a field that the document does not have."""
        target = _parsed(to)
        self.manifest.put(target, value, self.manifest.last_rank(target))
        self._record_added(target, value, reason)

    def extend(self, to: str, values: Sequence[object], reason: str) -> None:
        """Append values to a list of the new manifest."""
        target = _parsed(to)
        self.manifest.extend(target, values)
        self._record_added(target, list(values), reason)

    def hand_over(
        self, path: str, *, group: str, kind: str, name_at: str, to: str, reason: str = ""
    ) -> None:
        """Move a field to the NodeClass of this manifest."""
        source = _parsed(path)
        if self._has(source):
            self.hand_overs.append(
                HandOver(
                    path=source,
                    group=group,
                    kind=kind,
                    name_at=_parsed(name_at),
                    to=_parsed(to),
                    reason=reason,
                )
            )
            self._consumed.add(source)

    def warn(self, message: str) -> None:
        """Report something that the user has to check."""
        self.warnings.append(message)

    def new_manifest(self, *, api_version: str, kind: str, name: str) -> Draft:
        """Begin another manifest."""
        draft = self.begin()
        draft.manifest.put(("apiVersion",), api_version, (-1, 0))
        draft.manifest.put(("kind",), kind, (-1, 1))
        draft.manifest.put(("metadata", "name"), name, (-1, 2))
        return draft

    # -- the rest of the command ----------------------------------------------------------------

    @property
    def title(self) -> str:
        """Kind and name of the new manifest."""
        name = self.manifest.get(("metadata", "name"))
        return f"{self.manifest.get(('kind',)) or ''} {name or ''}".strip()

    def keep_path(self, source: FieldPath) -> None:
        """Keep a field where it is, by its keys."""
        if self._has(source):
            self._place(source, self, source, _UNCHANGED, "")

    def leave_out_field(self, source: FieldPath, reason: str, *, is_notable: bool = True) -> None:
        """Leave a field out, by its keys."""
        self._consume(source, FieldFate.LEFT_OUT, reason, is_notable=is_notable)

    def complete_hand_over(self, hand_over: HandOver, node_class: Draft) -> None:
        """Put a field that was handed over into the manifest of its NodeClass."""
        self._consumed.discard(hand_over.path)
        self._place(hand_over.path, node_class, hand_over.to, _UNCHANGED, hand_over.reason)

    def give_up_hand_over(self, hand_over: HandOver, reason: str) -> None:
        """Leave out a field that was handed over to a NodeClass that is not there."""
        self._consumed.discard(hand_over.path)
        self.leave_out_field(hand_over.path, reason)

    def report_unknown_fields(self) -> None:
        """Record the fields that no conversion named."""
        for path in self._unconsumed(self.source, ()):
            value = value_at(self.source, path)
            is_empty = value is None or value in ({}, [])
            self.changes.append(
                FieldChange(
                    fate=FieldFate.LEFT_OUT if is_empty else FieldFate.UNKNOWN,
                    source=path_text(path),
                    value=value,
                    reason="it is empty" if is_empty else "no field of this name is known",
                )
            )

    def placed_comments(self) -> Iterator[tuple[OutputManifest, FieldPath, FieldComments]]:
        """Yield each comment of the document with the field that its field became.

        Comments of a field that is left out are in `comments_of_left_out`.
        """
        for path, comments in self._comments().items():
            place = None if self._left_out_around(path) else self._new_place(path)
            if place is not None:
                yield (*place, comments)

    def comments_of_left_out(self, source: str) -> tuple[str, ...]:
        """Return the comments of a field that is left out.

        For the empty path: those of fields of which nothing is left, because all their parts are left out.
        """
        return tuple(
            line
            for path, comments in self._comments().items()
            if self._left_out_around(path) == source and (source or self._new_place(path) is None)
            for line in (*comments.before, *comments.end_of_line)
            if line
        )

    # -- inner parts ----------------------------------------------------------------------------

    def _consume(
        self, source: FieldPath, fate: FieldFate, reason: str, *, is_notable: bool = True
    ) -> None:
        if self._has(source) and source not in self._consumed:
            self._consumed.add(source)
            self.changes.append(
                FieldChange(
                    fate=fate,
                    source=path_text(source),
                    value=value_at(self.source, source),
                    reason=reason,
                    is_notable=is_notable,
                )
            )

    def _record_added(self, target: FieldPath, value: object, reason: str) -> None:
        self.changes.append(
            FieldChange(
                fate=FieldFate.ADDED,
                target=path_text(target),
                manifest="" if self.document else self.title,
                value=value,
                reason=reason,
            )
        )

    def _comments(self) -> Mapping[FieldPath, FieldComments]:
        return {} if self.document is None else self.document.comments

    def _has(self, source: FieldPath) -> bool:
        missing = object()
        return value_at(self.source, source, missing) is not missing

    def _place(
        self,
        source: FieldPath,
        other: Draft,
        target: FieldPath,
        value: object,
        reason: str,
        *,
        is_notable: bool = True,
    ) -> None:
        old = self._remaining(source)
        if value is _UNCHANGED and old is None:
            self._consumed.add(source)
            return
        node = old if value is _UNCHANGED else renewed_node(old, value)
        is_of_document = other.document is None or other.document is self.document
        start = _start_of(self.document, source) if is_of_document else None
        rank = other.manifest.last_rank(target) if start is None else (start,)
        other.manifest.put(target, node, rank, is_of_document=is_of_document)
        self._consumed.add(source)
        self._provenance.append(_Provenance(source, other.manifest, target))
        was = value_at(self.source, source)
        for old_key, new_key in renamed_keys(was, value):
            place = _Provenance((*source, old_key), other.manifest, (*target, new_key))
            self._provenance.append(place)
        has_changed = value is not _UNCHANGED and value != was
        if has_changed or source != target or other is not self:
            self.changes.append(
                FieldChange(
                    fate=FieldFate.CHANGED if has_changed else FieldFate.MOVED,
                    source=path_text(source),
                    target=path_text(target),
                    manifest="" if other is self else other.title,
                    is_notable=is_notable,
                    value=value if has_changed else was,
                    reason=reason,
                )
            )

    def _remaining(self, source: FieldPath) -> object:
        """Return a field without its parts that are consumed; None if nothing is left of it."""
        if self.document is None:
            return self._remaining_value(source, value_at(self.source, source))
        node = _node_at(self.document.node, source)
        return None if node is None else self._pruned(node, source)

    def _remaining_value(self, path: FieldPath, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        inner = {
            key: self._remaining_value((*path, key), each)
            for key, each in cast("Mapping[str, object]", value).items()
            if (*path, key) not in self._consumed
        }
        return inner if inner or not value else None

    def _pruned(self, node: yaml.Node, path: FieldPath) -> yaml.Node | None:
        if not isinstance(node, yaml.MappingNode) or not any(
            consumed[: len(path)] == path for consumed in self._consumed
        ):
            return node
        kept: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in fields_of(node):
            inner = (*path, str(key.value))
            left = None if inner in self._consumed else self._pruned(value, inner)
            if left is not None:
                kept.append((key, left))
        if not kept and node.value:
            return None
        return yaml.MappingNode(
            node.tag, kept, node.start_mark, node.end_mark, flow_style=node.flow_style
        )

    def _unconsumed(self, value: object, path: FieldPath) -> Iterator[FieldPath]:
        if path in self._consumed:
            return
        if not any(consumed[: len(path)] == path for consumed in self._consumed) and path:
            yield path
            return
        if isinstance(value, Mapping):
            for key, inner in cast("Mapping[str, object]", value).items():
                yield from self._unconsumed(inner, (*path, key))
        elif isinstance(value, list):
            for index, inner in enumerate(cast("list[object]", value)):
                yield from self._unconsumed(inner, (*path, index))

    def _left_out_around(self, path: FieldPath) -> str:
        """Return the field around this one, or itself, that was left out; empty if none was."""
        gone = {
            change.source
            for change in self.changes
            if change.fate in {FieldFate.LEFT_OUT, FieldFate.UNKNOWN}
        }
        around = (path_text(path[:length]) for length in range(len(path), 0, -1))
        return next((each for each in around if each in gone), "")

    def _new_place(self, path: FieldPath) -> tuple[OutputManifest, FieldPath] | None:
        """Return the field that a field became, or the first that one of its parts became."""
        around = [each for each in self._provenance if path[: len(each.source)] == each.source]
        if around:
            nearest = max(around, key=lambda each: len(each.source))
            return nearest.manifest, (*nearest.target, *path[len(nearest.source) :])
        inside = [each for each in self._provenance if each.source[: len(path)] == path]
        if not inside:
            return None
        if any(each.target[: len(path)] == path for each in inside):
            return self.manifest, path
        return inside[0].manifest, inside[0].target


def path_text(path: FieldPath) -> str:
    """Return a path as messages show it: `spec.taints[0].key`, `metadata.labels["a.b/c"]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif "." in key or "/" in key:
            text += f'["{key}"]'
        else:
            text += f".{key}" if text else key
    return text


def _parsed(path: str) -> FieldPath:
    return tuple(int(key) if key.isdecimal() else key for key in path.split("."))


def _node_at(node: yaml.Node | None, path: FieldPath) -> yaml.Node | None:
    for key in path:
        if isinstance(node, yaml.MappingNode):
            node = next((value for name, value in fields_of(node) if str(name.value) == key), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        else:
            return None
    return node


def _start_of(document: TextDocument | None, path: FieldPath) -> int | None:
    node = None if document is None else _node_at(document.node, path)
    start = None if node is None else node.start_mark
    return None if start is None else start.index
