"""Refusals of client tokens in the words of EC2."""

from __future__ import annotations

from typing import Final

from karpenter_core.provider.kit.simulated.tokens import TokenErrors
from karpenter_simulated_aws.protocol import AwsError

__all__ = ["TOKEN_ERRORS"]

TOKEN_ERRORS: Final = TokenErrors(
    mismatch=lambda: AwsError(
        "IdempotentParameterMismatch",
        "Arguments on this idempotent request are inconsistent with arguments used in previous"
        " request(s).",
    ),
    in_progress=lambda: AwsError(
        "IncorrectState", "A request with this client token is still in progress."
    ),
)
