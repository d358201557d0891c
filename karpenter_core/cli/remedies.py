"""Adds to the errors of an API server what a user can do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.errors import KarpenterError

__all__ = ["remedy_of"]

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


def remedy_of(error: KarpenterError) -> str:
    """Return the remedy with what separates it from the message; empty if the message says it all."""
    from karpenter_core.errors import ApiError
    from karpenter_core.kube.transport import NO_ANSWER, UNREACHABLE

    if not isinstance(error, ApiError):
        return ""
    if error.reason in {UNREACHABLE, NO_ANSWER}:
        return "; check --kubeconfig and --context, and that the API server answers"
    if error.status == _UNAUTHORIZED:
        return "; check --kubeconfig and --context, or log in again"
    if error.status == _FORBIDDEN:
        return "; ask for the right to get, list and watch it: `karpenter rbac` prints a role"
    return ""
