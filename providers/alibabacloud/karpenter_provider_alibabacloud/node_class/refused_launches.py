"""Recognises refused launches that a dry run cannot predict.

RunInstances is tried out beforehand. Provisioning groups cannot be, nor can the listing of instances
that comes before a launch. `karpenter_core.provider.kit.node_class.refused_launches` remembers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.errors import AuthError
from karpenter_core.provider.kit.node_class.findings import NodeClassFinding
from karpenter_core.provider.kit.node_class.parts import code_reason
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass
from karpenter_provider_alibabacloud.node_class.conditions import stable_text
from karpenter_provider_alibabacloud.node_class.dry_runs import denied

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError

__all__ = ["launch_refusal"]

_FORBIDDEN: Final = "Forbidden."
_BY_POLICY: Final = "Forbidden.RAM"
"""Beginning of codes that forbid a part of the request, as a private pool of another account."""


def launch_refusal(error: CloudProviderError) -> NodeClassFinding | None:
    """Return what the outcome of a launch says of every other launch; None when it says nothing."""
    said = f"launches were refused: {stable_text(str(error))}"
    cause = error.__cause__
    code = cause.code if isinstance(cause, ApiError) else ""
    if isinstance(error, AuthError) and (code == _BY_POLICY or not code.startswith(_FORBIDDEN)):
        return NodeClassFinding(reason=denied(error.action), message=said)
    if isinstance(cause, ApiError) and cause.error_class is ErrorClass.FUNDS:
        return NodeClassFinding(reason=code_reason(cause.code), message=said)
    return None
