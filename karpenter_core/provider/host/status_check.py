"""Find status keys of a resolution that the NodeClass' model does not have.

The API server drops them without a word, and so does the model: a field `image_ids` is `imageIDs` on
the wire, and a plug-in that answers `imageIds` would wait for ever for what it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from karpenter_core.provider.host.answer_check import AnswerProblem
from karpenter_core.provider.kit.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["status_problems"]


def status_problems(
    node_class: NodeClass, status: Mapping[str, object]
) -> tuple[AnswerProblem, ...]:
    """Say which keys of a status are unknown, or which value cannot be read."""
    if not status:
        return ()
    model = type(node_class.status)
    status_now = node_class.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    given = {key: value for key, value in status.items() if value is not None}
    try:
        read = model.model_validate({**status_now, **given})
    except ValidationError as error:
        return (_described(error),)
    read_fields = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    aliases = {field.alias or name for name, field in model.model_fields.items()}
    removed = {key: None for key in status.keys() - given.keys() if key in aliases}
    return tuple(_unknown(status, {**read_fields, **removed}, "status", aliases))


def _described(error: ValidationError) -> AnswerProblem:
    first = error.errors()[0]
    path = ".".join(map(str, ("status", *first["loc"])))
    message = f"{path} cannot be read: {first['msg']}, not {first['input']!r}"
    return AnswerProblem(path=path, message=message)


def _unknown(
    given: object, read_fields: object, where: str, aliases: set[str] | None = None
) -> Iterator[AnswerProblem]:
    """Compare what was given with what the model made of it, down to the leaves."""
    if isinstance(given, Mapping) and isinstance(read_fields, Mapping):
        read = cast("Mapping[str, object]", read_fields)
        for key, value in cast("Mapping[str, object]", given).items():
            if key in read:
                yield from _unknown(value, read[key], f"{where}.{key}")
            else:
                meant = did_you_mean(key, aliases if aliases is not None else read)
                message = f'{where} has no field "{key}"{meant}'
                yield AnswerProblem(path=f"{where}.{key}", message=message)
    elif (
        isinstance(given, Sequence)
        and isinstance(read_fields, Sequence)
        and not isinstance(given, str)
    ):
        items = zip(
            cast("Sequence[object]", given), cast("Sequence[object]", read_fields), strict=False
        )
        for number, (item, other) in enumerate(items):
            yield from _unknown(item, other, f"{where}[{number}]")
