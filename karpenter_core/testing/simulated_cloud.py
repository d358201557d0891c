"""Troubles of a simulated cloud for the conformance kit."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_core.provider.kit.simulated.instances import SimulatedInstance
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.provider.kit.simulated.faults import CloudError

    Trouble = Callable[[], AbstractContextManager[object]]

__all__ = ["changed_environment", "cloud_troubles", "partial_listing"]

_NEVER_SECONDS: Final = 3600.0

Item = TypeVar("Item", bound=SimulatedInstance)


@contextmanager
def changed_environment(variables: Mapping[str, str | None]) -> Generator[None]:
    """Set environment variables of this process while the context is open; None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def cloud_troubles(
    cloud: SimulatedCloud[Item], *, launches: Sequence[str], throttled: CloudError
) -> dict[CloudTrouble, Trouble]:
    """Return the troubles that every simulated cloud can have.

    `launches` are the actions that launch instances; `throttled` is the refusal of calls that come
    too often. A cloud adds `QUOTA`, `PARTIAL_LISTING` and `TOKEN_IN_PROGRESS`.
    """
    return {
        CloudTrouble.STOCK_OUT: cloud.shared.capacity.sell_out,
        CloudTrouble.THROTTLING: lambda: _all(
            cloud.fail(
                action,
                code=throttled.code,
                status=throttled.status,
                retry_after_seconds=throttled.retry_after_seconds,
                times=None,
            )
            for action in launches
        ),
        CloudTrouble.AUTH_FAILURE: lambda: _all(cloud.deny(action) for action in launches),
        CloudTrouble.LOST_REPLY: lambda: _all(cloud.lose_replies(action) for action in launches),
        CloudTrouble.OUTAGE: cloud.cut_off,
        CloudTrouble.NO_BOOT: lambda: _pending(cloud),
        CloudTrouble.SILENCE: cloud.fall_silent,
    }


@contextmanager
def partial_listing(
    cloud: SimulatedCloud[Item], action: str, *, has_token: Callable[[Mapping[str, object]], bool]
) -> Generator[None]:
    """Answer a listing with an empty page, and fail on the next page.

    `action` lists instances; `has_token` tells from its parameters that a further page is wanted.
    """
    behaviour = cloud.shared.behaviour
    before, behaviour.instances_per_page = behaviour.instances_per_page, 0
    try:
        with cloud.fail(action, code="InternalError", status=500, times=None, where=has_token):
            yield
    finally:
        behaviour.instances_per_page = before


@contextmanager
def _pending(cloud: SimulatedCloud[Item]) -> Generator[None]:
    behaviour = cloud.shared.behaviour
    before, behaviour.pending_seconds = behaviour.pending_seconds, _NEVER_SECONDS
    try:
        yield
    finally:
        behaviour.pending_seconds = before


@contextmanager
def _all(contexts: Iterable[AbstractContextManager[object]]) -> Generator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
