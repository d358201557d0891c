"""Reads a claim into the allocator's requests, or refuses it with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.devices import MAX_DEVICES_PER_CLAIM
from karpenter_core.scheduling.devices.selectors import selector_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.devices import (
        DeviceClassView,
        DeviceConstraint,
        DeviceRequest,
        PrioritizedRequest,
        ResourceClaimView,
    )

__all__ = ["ClaimRequests", "DeviceRefusal", "WantedDevices", "read_claim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRefusal:
    """The reason why devices cannot be allocated."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDevices:
    """One alternative of a request, with the selectors of its class."""

    claim: str
    parent: str
    request: DeviceRequest
    class_selectors: tuple[str, ...]
    has_parent: bool

    @property
    def result_name(self) -> str:
        """The name of the request in results: `parent/sub` for an alternative."""
        return f"{self.parent}/{self.request.name}" if self.has_parent else self.parent

    def __str__(self) -> str:
        """Describe the devices, as events show them."""
        amount = "all devices" if self.request.count is None else f"{self.request.count} device(s)"
        text = f"{amount} of class {self.request.device_class}"
        if self.request.selectors:
            text += f" with {' and '.join(self.request.selectors)}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequests:
    """The requests of one claim, each with its alternatives, and their constraints."""

    claim: str
    requests: tuple[tuple[WantedDevices, ...], ...]
    constraints: tuple[DeviceConstraint, ...]


def read_claim(
    claim: ResourceClaimView, classes: Mapping[str, DeviceClassView]
) -> ClaimRequests | DeviceRefusal:
    """Return what a claim requests; a refusal names the claim and what is not supported."""
    problem = claim.unsupported or _request_problem(claim, classes)
    if problem:
        return DeviceRefusal(message=f'resourceclaim "{claim.key}": {problem}')
    return ClaimRequests(
        claim=claim.key,
        requests=tuple(
            tuple(
                WantedDevices(
                    claim=claim.key,
                    parent=one.name,
                    request=request,
                    class_selectors=classes[request.device_class].selectors,
                    has_parent=one.has_subrequests,
                )
                for request in one.alternatives
            )
            for one in claim.requests
        ),
        constraints=claim.constraints,
    )


def _request_problem(claim: ResourceClaimView, classes: Mapping[str, DeviceClassView]) -> str:
    fewest = 0
    for one in claim.requests:
        if not one.alternatives:
            return f'request "{one.name}" asks for nothing'
        fewest += min(1 if request.count is None else request.count for request in one.alternatives)
        for request in one.alternatives:
            problem = _alternative_problem(one, request, classes)
            if problem:
                return f'request "{one.name}": {problem}'
    if fewest > MAX_DEVICES_PER_CLAIM:
        return f"asks for {fewest} devices, and a claim has at most {MAX_DEVICES_PER_CLAIM}"
    return ""


def _alternative_problem(
    one: PrioritizedRequest, request: DeviceRequest, classes: Mapping[str, DeviceClassView]
) -> str:
    if request.count is not None and request.count <= 0:
        return f"count {request.count} is not above zero"
    found = classes.get(request.device_class)
    if found is None:
        return f'deviceclass "{request.device_class}" not found'
    if found.unsupported:
        return f'deviceclass "{request.device_class}": {found.unsupported}'
    if one.has_subrequests and request.admin_access:
        return "adminAccess is not possible in firstAvailable"
    for selector in (*found.selectors, *request.selectors):
        problem = selector_problem(selector)
        if problem:
            return problem
    return ""
