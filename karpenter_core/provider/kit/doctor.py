"""Runs a provider's checks for `karpenter doctor`; failures become findings.

The first check shows whether the cloud answers and knows the caller. The others run concurrently after it:
if it fails, each of them would only wait for its time limit.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    KarpenterError,
    SettingsError,
    ThrottledError,
)
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "AccessDoctor",
    "DoctorCheck",
    "error_finding",
    "ok_finding",
    "run_checks",
    "warning_finding",
]

_AT_ONCE: Final = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One check, and the remedies for its failures."""

    run: Callable[[], Finding | Iterable[Finding]]
    """Returns findings; raises the core's errors."""
    remedy: str
    """If the cloud refused or did not answer."""
    denied: str = ""
    """For an AuthError; empty = a permission is missing in the policy."""
    setting: str = ""
    """For a SettingsError; empty = the text of the error says it."""


@final
class AccessDoctor:
    """Runs the checks of one provider."""

    def __init__(
        self, *, policy: str, reach: str, is_granted: Callable[[CloudProviderError], bool]
    ) -> None:
        """`policy` and `reach` are the remedies for a missing permission and a cloud that does not answer.

        `is_granted` returns True for an error of a tried call that shows that the call is permitted: a
        dry run that would have succeeded, or a resource that does not exist.
        """
        self._policy: Final = policy
        self._reach: Final = reach
        self._is_granted: Final = is_granted

    def examine(
        self,
        first: DoctorCheck,
        *,
        permissions: Callable[[], Mapping[str, Callable[[], object]]],
        checks: Callable[[], Iterable[DoctorCheck]],
    ) -> tuple[Finding, ...]:
        """Return all findings: of `first`, of permissions, and of `checks` in their order; raise nothing.

        `permissions` returns calls that try them out and change nothing, by action. `permissions` and
        `checks` are called after `first` was successful; if one of them fails, that is a finding too.
        """
        found = self.run_check(first)
        if any(it.severity is Severity.ERROR for it in found):
            return found
        actions, unlisted_actions = self._listed(lambda: permissions().items())
        listed_checks, unlisted_checks = self._listed(checks)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="provider-doctor") as pool:
            tried = [pool.submit(self._try, action, call) for action, call in actions]
            checked = [pool.submit(self.run_check, check) for check in listed_checks]
            missing = [finding for each in tried for finding in each.result()]
            rest = [finding for each in checked for finding in each.result()]
        missing += unlisted_actions
        rest += unlisted_checks
        granted = ok_finding(f"all of {len(tried)} permissions that can be tested are granted")
        return (*found, *(missing or (granted,)), *rest)

    def _listed(self, items: Callable[[], Iterable[T]]) -> tuple[list[T], list[Finding]]:
        """Return what could be listed, and the finding if that failed."""
        listed: list[T] = []
        try:
            for item in items():
                listed.append(item)  # noqa: PERF402 - a failure keeps the earlier ones
        except Exception as error:
            return listed, [self._failure(error, remedy=self._reach)]
        return listed, []

    def _try(self, action: str, call: Callable[[], object]) -> tuple[Finding, ...]:
        check = DoctorCheck(
            run=partial(self._try_call, call),
            remedy=self._reach,
            denied=f"{action} is not permitted: {self._policy}",
        )
        return self.run_check(check)

    def _try_call(self, call: Callable[[], object]) -> tuple[Finding, ...]:
        try:
            call()
        except (AuthError, ThrottledError):
            raise
        except CloudProviderError as error:
            if not self._is_granted(error):
                raise
        return ()

    def run_check(self, check: DoctorCheck) -> tuple[Finding, ...]:
        """Return the findings of one check, with the finding for what it raised."""
        found: list[Finding] = []
        try:
            result = check.run()
            for finding in (result,) if isinstance(result, Finding) else result:
                found.append(finding)  # noqa: PERF402 - a failure keeps the earlier ones
        except Exception as error:
            found.append(
                self._failure(
                    error, remedy=check.remedy, denied=check.denied, setting=check.setting
                )
            )
        return tuple(found)

    def _failure(
        self, error: Exception, *, remedy: str, denied: str = "", setting: str = ""
    ) -> Finding:
        """Return the finding for a check that raised."""
        match error:
            case AuthError():
                return error_finding(str(error), denied or self._policy)
            case ThrottledError():
                return warning_finding(str(error), "try again later")
            case SettingsError():
                return error_finding(str(error), setting or "correct this setting")
            case KarpenterError():
                return error_finding(str(error), remedy)
            case _:
                message = f"a check failed: {error!r}"
                return error_finding(message, "report this fault of the plug-in")


def run_checks(
    *checks: DoctorCheck, policy: str = "grant the permission in the policy of the account"
) -> tuple[Finding, ...]:
    """Return the findings of checks, in their order; raise nothing. For a cloud with few checks.

        run_checks(DoctorCheck(run=self.try_to_list, remedy="check --mycloud-endpoint"))

    `policy` is the remedy for a missing permission, for a check without its own.
    """
    doctor = AccessDoctor(policy=policy, reach="", is_granted=lambda _: False)
    return tuple(finding for check in checks for finding in doctor.run_check(check))


def ok_finding(message: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(severity=Severity.OK, message=message)


def warning_finding(message: str, remedy: str) -> Finding:
    """Return a finding with which the provider works in part."""
    return Finding(severity=Severity.WARNING, message=message, remedy=remedy)


def error_finding(message: str, remedy: str) -> Finding:
    """Return a finding with which the provider does not work."""
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)
