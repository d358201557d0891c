"""Reads files of `karpenter convert`: YAML with comments, JSON, and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from karpenter_core.cli.convert.yaml_manifest import node_of
from karpenter_core.cli.convert.yaml_text import TextDocument, fields_of, read_text, write_text
from karpenter_core.cli.manifests import manifest_files, manifest_text
from karpenter_core.cli.parsing import read_documents, template_hint
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["read_sources"]

LARGE_TEXT: Final = 2_000_000
"""Characters of YAML from which on reading takes many seconds: comments are found token by token."""


def read_sources(paths: Iterable[Path], *, tell: Callable[[str], None]) -> list[TextDocument]:
    """Return the documents of files and folders; a List is split into its items.

    `tell` is given a line before a large text is read, so that users do not take the wait for a hang.

    Raises:
        BadInputError: a file cannot be read, or is neither YAML nor JSON.
    """
    documents = [
        each
        for path in paths
        for file in manifest_files(path)
        for document in _read(file, tell)
        for each in _items(document)
    ]
    if not documents:
        raise BadInputError("nothing to convert: the input has no document")
    return documents


def _read(file: Path, tell: Callable[[str], None]) -> Iterator[TextDocument]:
    name, text = manifest_text(file)
    if not text.lstrip().startswith(("{", "[")):
        if len(text) > LARGE_TEXT:
            tell(
                f"{name}: reads {len(text) / 1e6:.0f} MB of YAML with comments, which takes a while"
            )
        try:
            yield from read_text(name, text)
        except BadInputError as error:
            raise BadInputError(f"{error}{template_hint(text)}") from error
        return
    documents = read_documents(name, text)
    for number, value in enumerate(documents, start=1):
        where = name if len(documents) == 1 else f"{name}, document {number}"
        node = node_of(value)
        yield TextDocument(where=where, node=node, text=_written(node))


def _items(document: TextDocument) -> Iterator[TextDocument]:
    """Yield the items of a List, and of Lists in it, or the document itself, which must be an object."""
    node = document.node
    if isinstance(node, yaml.SequenceNode):
        yield from _split(document, node, ())
        return
    if not isinstance(node, yaml.MappingNode):
        raise BadInputError(f"{document.where}: is neither an object nor a list of objects")
    fields = {str(key.value): value for key, value in fields_of(node)}
    kind, items = fields.get("kind"), fields.get("items")
    is_list = isinstance(kind, yaml.ScalarNode) and str(kind.value).endswith("List")
    if is_list and isinstance(items, yaml.SequenceNode):
        yield from _split(document, items, ("items",))
    else:
        yield document


def _split(
    document: TextDocument, items: yaml.SequenceNode, path: tuple[str, ...]
) -> Iterator[TextDocument]:
    for index, item in enumerate(items.value):
        prefix = (*path, index)
        comments = {
            inner[len(prefix) :]: each
            for inner, each in document.comments.items()
            if inner[: len(prefix)] == prefix and len(inner) > len(prefix)
        }
        if not isinstance(item, yaml.MappingNode):
            raise BadInputError(f"{document.where}, item {index}: is not an object")
        yield from _items(
            TextDocument(
                where=f"{document.where}, item {index}",
                node=item,
                text=_written(item),
                comments=comments,
            )
        )


def _written(node: yaml.Node) -> str:
    return write_text(TextDocument(where="", node=node))
