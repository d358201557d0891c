"""Holds a manifest that is being written, and makes YAML nodes of it.

Fields are nodes of a document that was read, which keep their notation (quotes, blocks of text, one
line), or plain values. Their order is the order of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

import yaml

from karpenter_core.cli.convert.yaml_text import fields_of, plain_value
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.cli.convert.yaml_text import FieldPath

__all__ = ["OutputManifest", "node_of", "renamed_keys", "renewed_node", "value_at"]

_STRING_TAG: Final = "tag:yaml.org,2002:str"


@final
@dataclass(slots=True)
class _Entry:
    """A field of a manifest that is being written: a mapping of entries, or a value."""

    rank: tuple[int, ...]
    """Place among its siblings: the place of its first part in the document."""
    value: object = None
    """A YAML node of the document, or a plain value; unused for a mapping."""
    children: dict[str, _Entry] | None = None


@final
class OutputManifest:
    """A manifest that is being written."""

    def __init__(self) -> None:
        self._root = _Entry(rank=(), children={})

    @property
    def is_empty(self) -> bool:
        """Whether the manifest has no field."""
        return not self._root.children

    def put(
        self,
        path: FieldPath,
        value: object,
        rank: tuple[int, ...],
        *,
        is_of_document: bool = True,
    ) -> None:
        """Set a field; mappings are merged into what is there.

        Parts of a node of the manifest's own document keep their order among all fields; those of another
        document (`is_of_document` is False) stay together.
        """
        entry = self._root
        for key in path:
            children = _parts(entry)
            entry = children.setdefault(str(key), _Entry(rank=rank))
            entry.rank = min(entry.rank, rank)
        if isinstance(value, yaml.MappingNode) and (not value.flow_style or entry.children):
            fields = [(str(key.value), inner) for key, inner in fields_of(value)]
            self._merge(path, fields, rank, is_of_document=is_of_document)
            _parts(entry)
        elif isinstance(value, Mapping) and value:
            fields = list(cast("Mapping[str, object]", value).items())
            self._merge(path, fields, rank, is_of_document=False)
        else:
            entry.value, entry.children = value, None

    def _merge(
        self,
        path: FieldPath,
        pairs: Sequence[tuple[str, object]],
        rank: tuple[int, ...],
        *,
        is_of_document: bool,
    ) -> None:
        for number, (key, inner) in enumerate(pairs):
            mark = inner.start_mark if is_of_document and isinstance(inner, yaml.Node) else None
            place = (*rank, number) if mark is None else (mark.index,)
            self.put((*path, key), inner, place, is_of_document=is_of_document)

    def get(self, path: FieldPath) -> object:
        """Return the plain value of a field; None if it is not there."""
        entry = self._root
        for depth, key in enumerate(path):
            if entry.children is None:
                return value_at(_plain(entry), path[depth:])
            if str(key) not in entry.children:
                return None
            entry = entry.children[str(key)]
        return _plain(entry)

    def replace(self, path: FieldPath, value: object) -> None:
        """Set another value of a field, which keeps its place."""
        entry = self._root
        for key in path:
            entry = _parts(entry)[str(key)]
        entry.value, entry.children = value, None

    def extend(self, path: FieldPath, values: Sequence[object]) -> None:
        """Append values to a list, which keeps its notation.

        Raises:
            BadInputError: the field is no list.
        """
        entry = self._root
        for key in path:
            entry = _parts(entry).setdefault(str(key), _Entry(rank=self.last_rank(path)))
        old = node_of([] if entry.value is None else entry.value)
        if not isinstance(old, yaml.SequenceNode):
            raise BadInputError(f'field "{".".join(map(str, path))}": is no list')
        entry.value = yaml.SequenceNode(
            "tag:yaml.org,2002:seq",
            [*old.value, *(node_of(value) for value in values)],
            flow_style=False,
        )

    def last_rank(self, path: FieldPath) -> tuple[int, ...]:
        """Return a rank behind all fields of the mapping around a path."""
        entry: _Entry | None = self._root
        nearest = self._root
        for key in path[:-1]:
            entry = (
                None if entry is None or entry.children is None else entry.children.get(str(key))
            )
            nearest = entry if entry is not None else nearest
        ranks = [child.rank for child in (nearest.children or {}).values()]
        return (*max(ranks, default=nearest.rank), 1)

    def copied(self) -> OutputManifest:
        """Return a manifest with the same fields."""
        copy = OutputManifest()
        copy.put((), _plain(self._root), (0,))
        return copy

    def node(self) -> yaml.Node:
        """Return the manifest as a YAML node."""
        return _node(self._root)


def _parts(entry: _Entry) -> dict[str, _Entry]:
    """Return the fields of a mapping; one that was written in one line is taken apart."""
    if entry.children is None:
        old = entry.value
        entry.children, entry.value = {}, None
        if isinstance(old, yaml.MappingNode):
            entry.children = {
                str(key.value): _Entry(rank=(*entry.rank, number), value=inner)
                for number, (key, inner) in enumerate(fields_of(old))
            }
    return entry.children


def _plain(entry: _Entry) -> object:
    if entry.children is not None:
        return {key: _plain(child) for key, child in _ordered(entry.children)}
    return plain_value(entry.value) if isinstance(entry.value, yaml.Node) else entry.value


def _ordered(children: Mapping[str, _Entry]) -> list[tuple[str, _Entry]]:
    return sorted(children.items(), key=lambda item: item[1].rank)


class _Representer(yaml.SafeDumper):
    """Represents text of several lines as a block."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return a node of a string."""
        style = "|" if "\n" in text else None
        return yaml.ScalarNode(_STRING_TAG, text, style=style)


_Representer.add_representer(str, _Representer.represent_text)


def _node(entry: _Entry) -> yaml.Node:
    if entry.children is not None:
        pairs = [(node_of(key), _node(child)) for key, child in _ordered(entry.children)]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=not pairs)
    return node_of(entry.value)


def node_of(value: object) -> yaml.Node:
    """Return a value as a YAML node, in block style."""
    if isinstance(value, yaml.Node):
        return value
    representer = _Representer("", sort_keys=False, default_flow_style=False)
    return _with_empty_collections_in_one_line(representer.represent_data(value))


def _with_empty_collections_in_one_line(node: yaml.Node) -> yaml.Node:
    if isinstance(node, (yaml.SequenceNode, yaml.MappingNode)):
        node.flow_style = not node.value
        for each in node.value:
            for inner in each if isinstance(each, tuple) else (each,):
                _with_empty_collections_in_one_line(inner)
    return node


def renamed_keys(old: object, value: object) -> list[tuple[str, str]]:
    """Return the old and the new names of keys that only got another name, in their old places."""
    if not isinstance(old, Mapping) or not isinstance(value, Mapping):
        return []
    before = list(cast("Mapping[str, object]", old))
    after = list(cast("Mapping[str, object]", value))
    if len(before) != len(after):
        return []
    return [
        pair
        for pair in zip(before, after, strict=True)
        if pair[0] not in after and pair[1] not in before
    ]


def renewed_node(old: object, value: object) -> object:
    """Return a value with the notation (quotes, flow style) of the node that it replaces."""
    if not isinstance(old, yaml.Node):
        return value
    if plain_value(old) == value:
        return old
    if isinstance(old, yaml.MappingNode) and isinstance(value, Mapping):
        nodes = {str(key.value): (key, inner) for key, inner in fields_of(old)}
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        fields = cast("Mapping[str, object]", value)
        olds = {new: before for before, new in renamed_keys(plain_value(old), fields)}
        for key, inner in fields.items():
            key_node, inner_node = nodes.get(key, (node_of(key), None))
            if key in olds:
                inner_node = nodes[olds[key]][1]
            pairs.append((key_node, node_of(renewed_node(inner_node, inner))))
        return yaml.MappingNode(old.tag, pairs, old.start_mark, flow_style=old.flow_style)
    if isinstance(old, yaml.SequenceNode) and isinstance(value, list):
        items = cast("list[object]", value)
        olds = [*old.value, *([None] * len(items))]
        renewed = [node_of(renewed_node(*pair)) for pair in zip(olds, items, strict=False)]
        return yaml.SequenceNode(old.tag, renewed, old.start_mark, flow_style=old.flow_style)
    if isinstance(old, yaml.ScalarNode) and isinstance(value, str) and old.style in {'"', "'"}:
        return yaml.ScalarNode(_STRING_TAG, value, style=old.style)
    return value


def value_at(value: object, path: FieldPath, missing: object = None) -> object:
    """Return the value at a path, or `missing` if there is none."""
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = cast("Mapping[str | int, object]", value)[key]
        elif isinstance(value, list) and isinstance(key, int):
            items = cast("list[object]", value)
            if key >= len(items):
                return missing
            value = items[key]
        else:
            return missing
    return value
