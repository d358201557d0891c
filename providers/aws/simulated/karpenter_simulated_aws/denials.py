"""Words access denials as each service does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from karpenter_simulated_aws.protocol import ApiCall

__all__ = ["denial", "denied"]

_FORBIDDEN: Final = 403


def denial(call: ApiCall, *, because: str = "") -> AwsError:
    """Return the refusal of a call that no policy permits, as its service words it."""
    return denied(call.service, call.name, because=because)


def denied(service: str, action: str, *, because: str = "") -> AwsError:
    """Return the refusal of an action (`ec2:CreateFleet`), as its service words it."""
    message = (
        f"User: arn:aws:sts::123456789012:assumed-role/karpenter/session is not authorized to perform:"
        f" {action}{because or ' because no identity-based policy allows the action'}"
    )
    match service:
        case "ec2":
            return AwsError(
                "UnauthorizedOperation",
                f"You are not authorized to perform this operation. {message}",
                status=_FORBIDDEN,
            )
        case "iam" | "sts":
            return AwsError("AccessDenied", message, status=_FORBIDDEN)
        case "eks" | "arc-zonal-shift":
            return AwsError("AccessDeniedException", message, status=_FORBIDDEN)
        case _:
            return AwsError("AccessDeniedException", message)
