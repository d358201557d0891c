"""Reads the MIME archive in `spec.userData`, as tolerantly as Karpenter.

An EC2NodeClass that works elsewhere must work here: the reader accepts whatever Go's standard
library (`mime/multipart`) and cloud-init accept. Text that would be lost in silence is refused, or,
where a blank line is missing after the header of a part, read as the content that it is.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from email.parser import HeaderParser
from quopri import decodestring
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.user_data import SHELL_SCRIPT, UserDataPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["mime_parts"]

_FIELD: Final = "spec.userData"
_HEADER: Final = re.compile(
    r"(?P<name>Content-[A-Za-z0-9-]+|MIME-Version|Merge-Type|Launch-Index|X-[A-Za-z0-9-]+)"
    r"[ \t]*:[ \t]*(?P<value>.*)",
    re.IGNORECASE,
)
"""Headers of a part: those of MIME (RFC 2045) and of cloud-init."""
_ANY_HEADER_LINE: Final = re.compile(r"[!-9;-~]+:|[ \t]")
"""Begins a line in the header of the archive: a name (RFC 5322), or a space that continues the line before."""
_WRITTEN_ANEW: Final = frozenset({"content-type", "content-transfer-encoding", "mime-version"})


def mime_parts(text: str) -> tuple[UserDataPart, ...]:
    """Return the parts of an archive, in their order; carriage returns are dropped.

    A closing line without its last `--` ends the archive all the same.

    Raises:
        BadInputError: it is no multipart archive, or text of it belongs to no part.
    """
    text = text.replace("\r", "").lstrip()
    boundary = _boundary(text)
    _, blank, body = text.partition("\n\n")
    if not blank:
        return ()
    sections, closed = _sections(body, boundary)
    preamble = sections.pop(0)
    if not sections and not closed and any(line.strip() for line in preamble):
        raise BadInputError(
            f'{_FIELD} is no MIME archive: no line is "--{boundary}", as its Content-Type says '
            "(a line that is indented does not count)"
        )
    if sections and not closed:
        last = sections.pop()
        if any(line.strip() for line in last[_content_begins(last) :]):
            raise BadInputError(
                f'{_FIELD} is no MIME archive: the last part does not end with "--{boundary}--"'
            )
    return tuple(_part(lines) for lines in sections)


def _boundary(text: str) -> str:
    """Return what separates the parts, from the archive's own header."""
    header = text.partition("\n\n")[0]
    # Not left to `email`: Python 3.11.2 reports a defect of every header whose parts do not follow.
    if not all(_ANY_HEADER_LINE.match(line) for line in header.split("\n")):
        raise BadInputError(f"{_FIELD} is no MIME archive: no blank line ends its header")
    message = HeaderParser().parsestr(f"{header}\n\n")
    if message.get_content_maintype() != "multipart":
        raise BadInputError(
            f'{_FIELD} is no MIME archive: its Content-Type is "{message.get_content_type()}", not '
            "multipart/mixed"
        )
    boundary = message.get_boundary()
    if not boundary:
        raise BadInputError(f"{_FIELD} is no MIME archive: its Content-Type names no boundary")
    return boundary


def _sections(body: str, boundary: str) -> tuple[list[list[str]], bool]:
    """Return the lines before the first part, then those of each part; and whether the end is marked."""
    delimiter = f"--{boundary}"
    sections: list[list[str]] = [[]]
    for line in body.removesuffix("\n").split("\n"):
        if line.startswith(delimiter):
            rest = line.removeprefix(delimiter).rstrip(" \t")
            if rest == "--":
                return sections, True
            if not rest:
                sections.append([])
                continue
        sections[-1].append(line)
    return sections, False


def _content_begins(lines: Sequence[str]) -> int:
    """Return where the content of a part begins: after a blank line, or with what is no header."""
    for number, line in enumerate(lines):
        if not line.strip():
            return number + 1
        is_continued = number > 0 and line[0] in " \t"
        if not is_continued and _HEADER.fullmatch(line) is None:
            return number
    return len(lines)


def _headers(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    unfolded: list[str] = []
    for line in lines:
        if unfolded and line[:1] in {" ", "\t"}:
            unfolded[-1] = f"{unfolded[-1]} {line.strip()}".rstrip()
        else:
            unfolded.append(line)
    for line in unfolded:
        match = _HEADER.fullmatch(line)
        if match is not None:
            yield match["name"], match["value"].strip()


def _part(lines: Sequence[str]) -> UserDataPart:
    begins = _content_begins(lines)
    if begins == 0 and lines and _HEADER.fullmatch(lines[0].strip()):
        raise BadInputError(
            f'{_FIELD} is no MIME archive: the header line "{lines[0].strip()}" begins with a space'
        )
    headers = tuple(_headers(lines[:begins]))
    by_name = {name.lower(): value for name, value in reversed(headers)}
    encoding = by_name.get("content-transfer-encoding", "").lower()
    return UserDataPart(
        content_type=by_name.get("content-type") or SHELL_SCRIPT,
        content=_decoded("\n".join(lines[begins:]), encoding),
        headers=tuple((name, v) for name, v in headers if name.lower() not in _WRITTEN_ANEW),
    )


def _decoded(content: str, encoding: str) -> str:
    try:
        match encoding:
            case "base64":
                return b64decode(content).decode()
            case "quoted-printable":
                return decodestring(content.encode()).decode()
            case _:
                return content
    except (Base64Error, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{_FIELD}: a part of the MIME archive is not {encoding} of UTF-8 text: {error}"
        ) from error
