"""Merges users' first-boot scripts with the script that joins the cluster.

cloud-init runs the parts of a MIME archive in their order. Users give a script or such an archive.
Equal inputs give equal text, since a changed text is drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SHELL_SCRIPT", "UserDataPart", "mime_archive", "user_data_parts"]

SHELL_SCRIPT: Final = 'text/x-shellscript; charset="us-ascii"'
_BOUNDARY: Final = "//"
_PLAIN: Final = frozenset({"7bit", "8bit", "binary"})
_WRITTEN_ANEW: Final = frozenset({"content-type", "content-transfer-encoding", "mime-version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDataPart:
    """One part of an archive."""

    content_type: str
    content: str
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of the part, such as cloud-init's `Merge-Type`."""


def user_data_parts(
    text: str, *, content_type: str = SHELL_SCRIPT, where: str = "spec.userData"
) -> tuple[UserDataPart, ...]:
    """Return the parts of an archive; other text becomes one part of `content_type`.

    Carriage returns are removed; empty text has no parts.

    Raises:
        BadInputError: it begins like an archive and cannot be parsed; `where` names the field.
    """
    text = text.replace("\r", "")
    if not text.strip():
        return ()
    if not text.lstrip().startswith(("MIME-Version:", "Content-Type:")):
        return (UserDataPart(content_type=content_type, content=text),)
    message = message_from_string(text.lstrip())
    if message.defects:
        raise BadInputError(f"{where} is no MIME archive: {_defect(message)}")
    if not message.is_multipart():
        return (_part(message, where),)
    parts = cast("list[Message[str, str]]", message.get_payload())
    return tuple(_part(part, where) for part in parts)


def mime_archive(parts: Iterable[UserDataPart]) -> str:
    """Return an archive of these parts, in their order."""
    parts = tuple(parts)
    boundary = _boundary_of(parts)
    body = "".join(f"\n--{boundary}\n{_headers(part)}\n{part.content}" for part in parts)
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n'
    return f"{head}{body}\n--{boundary}--\n"


def _boundary_of(parts: Sequence[UserDataPart]) -> str:
    """Return a boundary that no line of a part begins with: it would end that part, and what follows.

    Equal parts have equal boundaries.
    """
    lines = [line for part in parts for line in part.content.splitlines() if line[:2] == "--"]
    number, boundary = 0, _BOUNDARY
    while any(line.startswith(f"--{boundary}") for line in lines):
        number += 1
        boundary = f"karpenter-{number}"
    return boundary


def _part(part: Message[str, str], where: str) -> UserDataPart:
    if part.defects or part.is_multipart():
        problem = "archives within archives" if part.is_multipart() else _defect(part)
        raise BadInputError(f"{where} cannot be merged as a MIME archive: {problem}")
    encoding = str(part["Content-Transfer-Encoding"] or "7bit").strip().lower()
    payload = part.get_payload(decode=encoding not in _PLAIN)
    try:
        content = payload.decode("utf-8") if isinstance(payload, bytes) else str(payload)
    except UnicodeDecodeError as error:
        raise BadInputError(f"{where}: a part of the MIME archive is not UTF-8: {error}") from error
    return UserDataPart(
        content_type=str(part["Content-Type"] or SHELL_SCRIPT),
        content=content,
        headers=tuple(
            (name, str(value)) for name, value in part.items() if name.lower() not in _WRITTEN_ANEW
        ),
    )


def _headers(part: UserDataPart) -> str:
    headers = (("Content-Type", part.content_type), *part.headers)
    return "".join(f"{name}: {value}\n" for name, value in headers)


def _defect(message: Message[str, str]) -> str:
    defect = type(message.defects[0])
    return defect.__doc__ or defect.__name__
