"""Reads and writes YAML; keeps comments, blank lines, quotes and field order.

The YAML library drops comments. They are what stands between two tokens of a text, so they are found
by scanning, and each belongs to a field: a comment at the end of a line to the last field of that line,
a comment on lines of its own to the field below. A written document gets its comments by the paths of
its fields, wherever the fields stand by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import yaml
from yaml.constructor import SafeConstructor
from yaml.error import Mark

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "FieldComments",
    "FieldPath",
    "TextDocument",
    "fields_of",
    "plain_value",
    "read_text",
    "write_text",
]

FieldPath: TypeAlias = "tuple[str | int, ...]"
"""Keys and indices from the root of a document to a field."""

_NO_FOLDING: Final = 1 << 20
_MOST_NODES: Final = 100_000
"""Maximum number of values of a document."""
_STANDARD: Final = "tag:yaml.org,2002:"
_MERGE_TAG: Final = f"{_STANDARD}merge"
_TAGS: Final = frozenset(
    f"{_STANDARD}{name}"
    for name in (
        "str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map",
    )
)  # fmt: skip
_SHOWN: Final = 60
"""Length to which values are cut in messages."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FieldComments:
    """The comments of one field."""

    before: tuple[str, ...] = ()
    """Lines above the field without indentation; an empty string is a blank line."""
    end_of_line: tuple[str, ...] = ()
    """Comments at the end of the field's line."""

    def merged_with(self, other: FieldComments) -> FieldComments:
        """Return these comments followed by those of another field."""
        return FieldComments(
            before=(*self.before, *other.before),
            end_of_line=(*self.end_of_line, *other.end_of_line),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TextDocument:
    """One YAML document: its nodes and its comments by field."""

    where: str
    """File, and number of the document if the file has several."""
    node: yaml.Node
    text: str = ""
    """The text as it was read, without separators of documents."""
    comments: Mapping[FieldPath, FieldComments] = field(
        default_factory=dict[FieldPath, FieldComments]
    )
    tail: tuple[str, ...] = ()
    """Comments below the last field."""
    has_indented_sequences: bool = False
    """Items of a sequence stand to the right of the sequence's key."""


def read_text(name: str, text: str) -> list[TextDocument]:
    """Return the documents of a YAML text that are not empty.

    Raises:
        BadInputError: the text is not YAML; names the file and the line.
    """
    try:
        tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if isinstance(mark, Mark) else ""
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        raise BadInputError(f"{name}:{line} is not YAML: {problem}") from error
    except RecursionError:
        raise BadInputError(f"{name}: is nested too deeply") from None
    lines = text.splitlines()
    comments = _comments_by_line(text, tokens)
    spans = _document_lines(tokens, len(lines))
    documents: list[TextDocument] = []
    for number, node in enumerate(nodes):
        first, end = spans[number]
        if node is None or _is_null(node):
            continue
        where = name if len(nodes) == 1 else f"{name}, document {number + 1}"
        try:
            expanded = _without_aliases(node, where)
        except RecursionError:
            raise BadInputError(
                f"{where}: an alias stands within the value that it names"
            ) from None
        by_field, tail = _comments_by_field(expanded, comments, range(first, end), lines)
        documents.append(
            TextDocument(
                where=where,
                node=expanded,
                text=_text_of(lines[first:end]),
                comments=by_field,
                tail=tail,
                has_indented_sequences=_has_indented_sequences(expanded),
            )
        )
    return documents


def write_text(document: TextDocument, *, header: Sequence[str] = ()) -> str:
    """Return a document as YAML, with its comments; `header` are comment lines above it."""
    indented = document.has_indented_sequences

    class _Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, indentless and not indented)

    text = yaml.serialize(document.node, Dumper=_Dumper, allow_unicode=True, width=_NO_FOLDING)
    lines = text.splitlines()
    line_of = {path: line for line, path in _fields(yaml.compose(text, Loader=yaml.SafeLoader))}
    above = dict[int, list[str]]()
    behind = dict[int, list[str]]()
    tail = list(document.tail)
    for path, comments in document.comments.items():
        line = _nearest_line(path, line_of)
        if line is None:
            tail += [*comments.before, *comments.end_of_line]
            continue
        above.setdefault(line, []).extend(comments.before)
        behind.setdefault(line, []).extend(comments.end_of_line)
    written = [*header]
    for number, line in enumerate(lines):
        indentation = line[: len(line) - len(line.lstrip())]
        written += [
            f"{indentation}{comment}" if comment else "" for comment in above.get(number, ())
        ]
        written.append("  ".join((line, *behind.get(number, ()))))
    return "\n".join((*_without_leading_blanks(written), *tail)).rstrip("\n") + "\n"


def plain_value(node: yaml.Node) -> object:
    """Return the value of a node: mappings, sequences, strings, numbers, booleans, None."""
    return _PlainConstructor().construct_document(node)


def fields_of(node: yaml.MappingNode) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return the keys and values of a mapping of a document, whose keys are all scalars."""
    return cast("list[tuple[yaml.ScalarNode, yaml.Node]]", node.value)


class _PlainConstructor(SafeConstructor):
    """Constructs values as Kubernetes reads them: dates stay strings."""


for _tag in ("timestamp", "value", "merge"):
    _PlainConstructor.add_constructor(f"{_STANDARD}{_tag}", SafeConstructor.construct_yaml_str)


# -- reading ---------------------------------------------------------------------------------------


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _comments_by_line(text: str, tokens: Sequence[yaml.Token]) -> dict[int, str]:
    """Return the comments of a text by line: what begins with # between two tokens."""
    comments = dict[int, str]()
    position = line = 0
    for token in tokens:
        _collect(text[position : token.start_mark.index], line, comments)
        position, line = token.end_mark.index, token.end_mark.line
    _collect(text[position:], line, comments)
    return comments


def _collect(gap: str, line: int, comments: dict[int, str]) -> None:
    for offset, part in enumerate(gap.split("\n")):
        start = part.find("#")
        if start >= 0:
            comments[line + offset] = part[start:].rstrip()


def _document_lines(tokens: Sequence[yaml.Token], line_count: int) -> list[tuple[int, int]]:
    """Return for each document its first line and the line behind its last one.

    Comments above the first separator belong to the first document.
    """
    separators = [
        each.start_mark.line for each in tokens if isinstance(each, yaml.DocumentStartToken)
    ]
    begins_with_separator = len(tokens) > 1 and isinstance(
        next(each for each in tokens[1:] if not isinstance(each, yaml.DirectiveToken)),
        yaml.DocumentStartToken,
    )
    inner = separators[1:] if begins_with_separator else separators
    return list(zip((0, *(line + 1 for line in inner)), (*inner, line_count), strict=True))


def _text_of(lines: Sequence[str]) -> str:
    """Return the text of a document without separators, and without directives above the first one."""
    separator = next((number for number, line in enumerate(lines) if line.startswith("---")), 0)
    kept = [
        line
        for number, line in enumerate(lines)
        if line.rstrip() not in {"---", "..."} and not (number < separator and line.startswith("%"))
    ]
    return "\n".join(kept).strip("\n") + "\n"


def _fields(node: yaml.Node, path: FieldPath = ()) -> Iterator[tuple[int, FieldPath]]:
    """Yield the line and the path of each field, in the order of the text."""
    if isinstance(node, yaml.MappingNode):
        for key, value in fields_of(node):
            inner = (*path, str(key.value))
            yield key.start_mark.line, inner
            yield from _fields(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield item.start_mark.line, (*path, index)
            yield from _fields(item, (*path, index))


def _comments_by_field(
    node: yaml.Node, comments: Mapping[int, str], lines: range, text: Sequence[str]
) -> tuple[dict[FieldPath, FieldComments], tuple[str, ...]]:
    """Assign the comments of these lines to fields; the second result are those below all fields."""
    first_of = dict[int, FieldPath]()
    last_of = dict[int, FieldPath]()
    for line, path in _fields(node):
        first_of.setdefault(line, path)
        last_of[line] = path
    last_content = _last_line(node)
    result = dict[FieldPath, FieldComments]()
    waiting: list[str] = []
    for line in lines:
        comment = comments.get(line)
        whole_line = comment is not None and text[line].lstrip() == comment
        if line in first_of:
            if waiting:
                _add(result, first_of[line], FieldComments(before=tuple(waiting)))
            waiting = []
        if comment is not None and not whole_line and line in last_of:
            _add(result, last_of[line], FieldComments(end_of_line=(comment,)))
        elif comment is not None:
            waiting.append(comment)
        elif (
            not text[line].strip()
            and line not in first_of
            and _is_between(line, node, last_content)
        ):
            waiting.append("")
    return result, tuple(waiting)


def _is_between(line: int, node: yaml.Node, last_content: int) -> bool:
    """Tell whether a blank line separates fields and is no part of a block of text."""
    return node.start_mark.line <= line <= last_content and not any(
        scalar.start_mark.line < line < scalar.end_mark.line for scalar in _scalars(node)
    )


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _scalars(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)


def _last_line(node: yaml.Node) -> int:
    return max((line for line, _ in _fields(node)), default=node.start_mark.line)


def _add(into: dict[FieldPath, FieldComments], path: FieldPath, comments: FieldComments) -> None:
    into[path] = into.get(path, FieldComments()).merged_with(comments)


def _without_aliases(node: yaml.Node, where: str) -> yaml.Node:
    """Return a node in which merge keys (`<<`) and aliases are replaced by what they stand for.

    Raises:
        BadInputError: the document would become too large.
    """
    left = _MOST_NODES

    def copy(node: yaml.Node) -> yaml.Node:
        nonlocal left
        left -= 1
        if left < 0:
            raise BadInputError(f"{where}: aliases make it larger than {_MOST_NODES} values")
        _check_value(node, where)
        if isinstance(node, yaml.MappingNode):
            _refuse_duplicates(node, where)
            if any(key.tag == _MERGE_TAG for key, _ in node.value):
                _PlainConstructor().flatten_mapping(node)
                node.value = list(
                    {str(key.value): (key, value) for key, value in fields_of(node)}.values()
                )
            pairs = [(copy(key), copy(value)) for key, value in node.value]
            return yaml.MappingNode(
                node.tag, pairs, node.start_mark, node.end_mark, flow_style=node.flow_style
            )
        if isinstance(node, yaml.SequenceNode):
            items = [copy(item) for item in node.value]
            return yaml.SequenceNode(
                node.tag, items, node.start_mark, node.end_mark, flow_style=node.flow_style
            )
        scalar = cast("yaml.ScalarNode", node)
        return yaml.ScalarNode(
            scalar.tag, scalar.value, scalar.start_mark, scalar.end_mark, style=scalar.style
        )

    return copy(node)


def _check_value(node: yaml.Node, where: str) -> None:
    """Refuse a tag that no reader of Kubernetes knows, and a scalar that is no value of its tag."""
    line = f"{where}: line {node.start_mark.line + 1}:"
    if node.tag not in _TAGS:
        raise BadInputError(f'{line} tag "{node.tag}" is not known')
    if not isinstance(node, yaml.ScalarNode):
        return
    try:
        plain_value(node)
    except (ValueError, LookupError) as error:
        text = str(node.value)
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise BadInputError(f'{line} "{text}" is no value of tag "{node.tag}"') from error


def _refuse_duplicates(node: yaml.MappingNode, where: str) -> None:
    """Refuse a key that stands twice, since readers differ in the one that counts."""
    seen = set[str]()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise BadInputError(f"{where}: line {key.start_mark.line + 1}: a key is no string")
        name = str(key.value)
        if name in seen and key.tag != _MERGE_TAG:
            raise BadInputError(
                f'{where}: line {key.start_mark.line + 1}: key "{name}" is duplicated'
            )
        seen.add(name)


def _has_indented_sequences(node: yaml.Node) -> bool:
    """Tell whether the first sequence of a mapping stands to the right of its key."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.SequenceNode) and not value.flow_style and value.value:
                return value.start_mark.column > key.start_mark.column
            if isinstance(value, yaml.MappingNode) and _sequences_in(value):
                return _has_indented_sequences(value)
    return False


def _sequences_in(node: yaml.Node) -> bool:
    if isinstance(node, yaml.SequenceNode):
        return bool(node.value) and not node.flow_style
    return isinstance(node, yaml.MappingNode) and any(
        _sequences_in(value) for _, value in node.value
    )


# -- writing ---------------------------------------------------------------------------------------


def _nearest_line(path: FieldPath, line_of: Mapping[FieldPath, int]) -> int | None:
    """Return the line of a field, or of the nearest field around it that was written."""
    while path:
        if path in line_of:
            return line_of[path]
        path = path[:-1]
    return None


def _without_leading_blanks(lines: Sequence[str]) -> Sequence[str]:
    first = next((number for number, line in enumerate(lines) if line), 0)
    return lines[first:]
