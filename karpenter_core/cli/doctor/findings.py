"""Makes the findings of the checks of a cluster."""

from __future__ import annotations

from karpenter_core.provider.contract import Finding, Severity

__all__ = ["error_finding", "ok_finding"]


def error_finding(message: str, remedy: str) -> Finding:
    """Return an error with its remedy."""
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)


def ok_finding(message: str) -> Finding:
    """Return a finding without an error."""
    return Finding(severity=Severity.OK, message=message)
