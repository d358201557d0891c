"""Converts one input's documents, and fields that depend on two of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast, final

from karpenter_core.cli.convert.draft import Draft, FieldChange, FieldFate, path_text
from karpenter_core.cli.convert.yaml_text import (
    FieldComments,
    FieldPath,
    TextDocument,
    plain_value,
    write_text,
)
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.cli.convert.draft import HandOver
    from karpenter_core.cli.convert.yaml_manifest import OutputManifest
    from karpenter_core.provider.contract.conversion import Conversion

__all__ = ["ConvertedDocument", "convert_documents"]

_PlacedComment: TypeAlias = "tuple[OutputManifest, FieldPath, FieldComments]"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedDocument:
    """A document of the input and what was made of it."""

    where: str
    title: str
    """Kind, name and version of the document."""
    is_converted: bool
    """False for a document that no conversion accepts, which is written as it was."""
    texts: tuple[str, ...]
    """YAML of the manifests."""
    changes: tuple[FieldChange, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    """Reason for which the document could not be converted; empty if it was."""

    @property
    def has_losses(self) -> bool:
        """Whether something could not be converted, or a field is not known."""
        return bool(self.error) or any(change.fate is FieldFate.UNKNOWN for change in self.changes)


@final
@dataclass(slots=True, eq=False)
class _Work:
    """A document while it is converted, and its drafts: its own first."""

    document: TextDocument
    source: Mapping[str, object]
    drafts: list[Draft]
    is_converted: bool = False
    error: str = ""


def convert_documents(
    documents: Sequence[TextDocument], conversions: Sequence[Conversion]
) -> list[ConvertedDocument]:
    """Convert documents; one that cannot be converted does not keep others from it."""
    sources = [_object(document) for document in documents]
    works = [
        _begin(document, source, sources)
        for document, source in zip(documents, sources, strict=True)
    ]
    for work in works:
        _convert(work, conversions)
    for work in works:
        for draft in tuple(work.drafts):
            for hand_over in draft.hand_overs:
                _complete(hand_over, draft, works)
    _warn_of_equal_names(works)
    placed: list[_PlacedComment] = []
    for work in works:
        if work.is_converted and not work.error:
            work.drafts[0].report_unknown_fields()
            placed += work.drafts[0].placed_comments()
    return [_finished(work, placed) for work in works]


def _warn_of_equal_names(works: Sequence[_Work]) -> None:
    """Report manifests of one kind and name: names of groups are shortened, and may become equal."""
    seen: dict[tuple[object, ...], str] = {}
    paths = (("kind",), ("metadata", "namespace"), ("metadata", "name"))
    for work in works:
        for draft in work.drafts if not work.error else ():
            kind, namespace, name = (draft.manifest.get(path) for path in paths)
            if not isinstance(name, str):
                continue
            key = (kind, namespace, name)
            if key in seen:
                draft.warn(
                    f'{kind} "{name}" is also written for {seen[key]}: give one of them another name, or the '
                    "second replaces the first when both are applied"
                )
            seen.setdefault(key, work.document.where)


def _object(document: TextDocument) -> Mapping[str, object]:
    value = plain_value(document.node)
    if not isinstance(value, dict):
        raise BadInputError(f"{document.where}: is not an object")
    return cast("dict[str, object]", value)


def _begin(
    document: TextDocument, source: Mapping[str, object], sources: Sequence[Mapping[str, object]]
) -> _Work:
    work = _Work(document, source, [])

    def begin() -> Draft:
        draft = Draft(document=None, source={}, documents=sources, begin=begin)
        work.drafts.append(draft)
        return draft

    work.drafts.append(Draft(document=document, source=source, documents=sources, begin=begin))
    return work


def _convert(work: _Work, conversions: Sequence[Conversion]) -> None:
    own = work.drafts[0]
    accepting = [each for each in conversions if each.accepts(work.source)]
    work.is_converted = bool(accepting)
    if accepting and not isinstance(work.source.get("metadata", {}), Mapping):
        work.error = 'field "metadata": is not an object'
        return
    try:
        for conversion in accepting:
            conversion.convert(own)
    except BadInputError as error:
        work.error = str(error)


# -- fields that belong to a NodeClass -------------------------------------------------------------


def _complete(hand_over: HandOver, draft: Draft, works: Sequence[_Work]) -> None:
    """Move a field to the NodeClass that the draft names."""
    name = draft.manifest.get(hand_over.name_at)
    node_class = _node_class(hand_over, name, works)
    if node_class is None:
        reason = (
            f'it belongs to {hand_over.kind} "{name}" (field {path_text(hand_over.to)}), '
            "which is not in the input"
        )
        draft.give_up_hand_over(hand_over, reason)
        return
    value = draft.get(".".join(map(str, hand_over.path)))
    there = node_class.manifest.get(hand_over.to)
    if there is not None and there != value:
        copy_name = f"{name}-{draft.manifest.get(('metadata', 'name'))}"
        draft.warn(
            f'{hand_over.kind} "{name}" gets other values of {path_text(hand_over.to)} from another '
            f'manifest; "{copy_name}" is a copy of it for this one'
        )
        node_class = _copied(node_class, copy_name)
        draft.manifest.replace(hand_over.name_at, copy_name)
    draft.complete_hand_over(hand_over, node_class)


def _node_class(hand_over: HandOver, name: object, works: Sequence[_Work]) -> Draft | None:
    for work in works:
        if work.error:
            continue  # it is not written
        if not work.is_converted and _names(work.source, hand_over, name):
            own = work.drafts[0]
            for key in work.source:
                own.keep_path((key,))
            work.is_converted = True
        for draft in work.drafts:
            manifest = {
                key: draft.manifest.get((key,)) for key in ("apiVersion", "kind", "metadata")
            }
            if _names(manifest, hand_over, name):
                return draft
    return None


def _names(manifest: Mapping[str, object], hand_over: HandOver, name: object) -> bool:
    metadata = manifest.get("metadata")
    return (
        str(manifest.get("apiVersion")).rpartition("/")[0] == hand_over.group
        and manifest.get("kind") == hand_over.kind
        and isinstance(metadata, Mapping)
        and cast("Mapping[str, object]", metadata).get("name") == name
    )


def _copied(node_class: Draft, name: str) -> Draft:
    copy = node_class.begin()
    copy.manifest = node_class.manifest.copied()
    copy.manifest.replace(("metadata", "name"), name)
    return copy


# -- results ---------------------------------------------------------------------------------------


def _finished(work: _Work, comments: Sequence[_PlacedComment]) -> ConvertedDocument:
    title = _title(work.source)
    if work.error or not work.is_converted:
        return ConvertedDocument(
            where=work.document.where,
            title=title,
            is_converted=False,
            texts=() if work.error else (work.document.text,),
            error=work.error,
        )
    own = work.drafts[0]
    written = [draft for draft in work.drafts if not draft.manifest.is_empty]
    changes = [change for draft in work.drafts for change in draft.changes]
    return ConvertedDocument(
        where=work.document.where,
        title=title,
        is_converted=True,
        texts=tuple(
            _text(draft, work, comments, _header(own, title) if draft is written[0] else ())
            for draft in written
        ),
        changes=tuple(changes),
        warnings=tuple(warning for draft in work.drafts for warning in draft.warnings),
    )


def _title(source: Mapping[str, object]) -> str:
    metadata = source.get("metadata")
    name = (
        cast("Mapping[str, object]", metadata).get("name") if isinstance(metadata, Mapping) else ""
    )
    kind = source.get("kind")
    return f'{kind} "{name}" ({source.get("apiVersion")})' if kind else "node groups"


def _text(
    draft: Draft, work: _Work, placed: Sequence[_PlacedComment], header: Sequence[str]
) -> str:
    comments = dict[FieldPath, FieldComments]()
    for manifest, path, each in placed:
        if manifest is draft.manifest:
            comments[path] = comments.get(path, FieldComments()).merged_with(each)
    document = TextDocument(
        where=work.document.where,
        node=draft.manifest.node(),
        comments=comments,
        tail=work.document.tail if draft is work.drafts[0] else (),
        has_indented_sequences=work.document.has_indented_sequences,
    )
    return write_text(document, header=header)


def _header(draft: Draft, title: str) -> list[str]:
    """Return comments that name what a manifest was converted from, and what was left out.

    Of a document that no manifest replaces, only fields with comments are named: the report has all.
    """
    left_out = [
        change
        for change in draft.changes
        if change.fate in {FieldFate.LEFT_OUT, FieldFate.UNKNOWN}
        and change.is_notable
        and (not draft.manifest.is_empty or draft.comments_of_left_out(change.source))
    ]
    orphans = draft.comments_of_left_out("")
    if not left_out and not orphans:
        return []
    lines = [f"# Converted from {title}. Left out:"]
    for change in left_out:
        lines.append(f"#   {change.source}: {change.reason}")
        lines += [f"#     {comment}" for comment in draft.comments_of_left_out(change.source)]
    lines += [f"#   {comment}" for comment in orphans]
    return [" ".join(line.splitlines()) for line in lines]  # a break would end the comment
