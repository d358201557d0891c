"""Builds API errors as `Status` objects with reason, details and causes."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.kube.resources import ResourceKind

__all__ = [
    "FieldIssue",
    "PageNotFoundError",
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "not_found",
    "success",
]


class PageNotFoundError(Exception):
    """No such kind: the real server answers with plain text, not with a Status."""


@dataclass(frozen=True, slots=True)
class FieldIssue:
    """The error of one field; `message` begins with its type (`Invalid value: ...`)."""

    field: str
    message: str

    @property
    def reason(self) -> str:
        """The cause's machine-readable reason."""
        for opening, reason in _REASONS:
            if self.message.startswith(opening):
                return reason
        return "FieldValueInvalid"


_REASONS: Final = (
    ("Required value", "FieldValueRequired"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Forbidden", "FieldValueForbidden"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
)


class StatusError(Exception):
    """A refusal as a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, object] | None = None,
        retry_after_seconds: int = 0,
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.reason: Final = reason
        self.message: Final = message
        self.details: Final = dict(details or {})
        self.retry_after_seconds: Final = retry_after_seconds
        if retry_after_seconds:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def to_json(self) -> dict[str, object]:
        """Return the Status object."""
        body: dict[str, object] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


def success(
    kind: ResourceKind | None = None, *, name: str = "", uid: str = ""
) -> dict[str, object]:
    """Return the Status of a success."""
    body: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if kind is not None:
        body["details"] = _details(kind, name) | {"uid": uid}
    return body


def not_found(kind: ResourceKind, name: str) -> StatusError:
    """404: the kind is served, but the object does not exist."""
    return StatusError(
        HTTPStatus.NOT_FOUND,
        "NotFound",
        f'{_qualified(kind)} "{name}" not found',
        details=_details(kind, name),
    )


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    """409: an object of that name exists already."""
    return StatusError(
        HTTPStatus.CONFLICT,
        "AlreadyExists",
        f'{_qualified(kind)} "{name}" already exists',
        details=_details(kind, name),
    )


def conflict(kind: ResourceKind, name: str, why: str = "") -> StatusError:
    """409: the request names an old version, or another object's UID."""
    why = why or (
        "the object has been modified; "
        "please apply your changes to the latest version and try again"
    )
    return StatusError(
        HTTPStatus.CONFLICT,
        "Conflict",
        f'Operation cannot be fulfilled on {_qualified(kind)} "{name}": {why}',
        details=_details(kind, name),
    )


def invalid(kind: ResourceKind, name: str, issues: Sequence[FieldIssue]) -> StatusError:
    """422: the object breaks its schema or a rule; names every field."""
    texts = [f"{issue.field}: {issue.message}" for issue in issues]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    causes = [
        {"reason": issue.reason, "message": issue.message, "field": issue.field} for issue in issues
    ]
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
    return StatusError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{qualified} "{name}" is invalid: {text}',
        details={key: value for key, value in details.items() if value},
    )


def bad_request(message: str) -> StatusError:
    """400: the request is malformed."""
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def forbidden(kind: ResourceKind, name: str, why: str) -> StatusError:
    """403: a rule of the server forbids the request."""
    return StatusError(
        HTTPStatus.FORBIDDEN,
        "Forbidden",
        f'{_qualified(kind)} "{name}" is forbidden: {why}',
        details=_details(kind, name),
    )


def expired(message: str) -> StatusError:
    """410: history does not reach back that far; list again."""
    return StatusError(HTTPStatus.GONE, "Expired", message)


def _qualified(kind: ResourceKind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _details(kind: ResourceKind, name: str) -> dict[str, object]:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}
