"""Keeps botocore's event handlers of the services that the provider calls.

A session has hundreds of handlers, most of them for the documentation of services and for S3, and each of
its clients copies the tree that they are in.
"""

from __future__ import annotations

from typing import Final, final

from botocore.hooks import HierarchicalEmitter

from karpenter_provider_aws.service_models import OPERATIONS

__all__ = ["UsedEvents"]

_DOCUMENTATION: Final = "docs"
_BY_SERVICE: Final = frozenset(
    {
        "after-call",
        "before-call",
        "before-endpoint-resolution",
        "before-parameter-build",
        "before-parse",
        "before-sign",
        "choose-signer",
        "creating-client-class",
        "getattr",
        "needs-retry",
        "request-created",
    }
)
"""Events whose second word is a service, if there is one."""
_CALLED: Final = frozenset({*OPERATIONS, "*", "", "signin", "sso", "sso-oidc", "sts"})
"""Services of the provider, those of botocore's credentials, and every service."""


@final
class UsedEvents(HierarchicalEmitter):
    """Takes no handler for documentation, nor for a service that is never called."""

    def _register_section(self, event_name: str, *handler: object, section: object) -> None:
        kind, _, rest = event_name.partition(".")
        service = rest.partition(".")[0]
        if kind == _DOCUMENTATION or (kind in _BY_SERVICE and service not in _CALLED):
            return
        super()._register_section(event_name, *handler, section=section)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue] - botocore has no types of its own
