"""Batches the three calls about instances: launch, fetch, terminate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Instance, LaunchedInstance, LaunchRequest
from karpenter_core.provider.host.answer_check import check_launched
from karpenter_core.provider.host.answer_values import check_description, check_instance
from karpenter_core.provider.host.batching import HookBatcher
from karpenter_core.provider.host.hooks import (
    FETCH_INSTANCES,
    LAUNCH_INSTANCES,
    TERMINATE_INSTANCES,
    LaunchArguments,
    ProviderIdArguments,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.provider.contract import FetchOutcome, LaunchOutcome, TerminateOutcome
    from karpenter_core.provider.host.dispatch import Dispatcher
    from karpenter_core.provider.host.hooks import Hook

__all__ = ["BatchedInstanceCalls"]

T = TypeVar("T")
Request = TypeVar("Request", bound="Mapping[str, object]")
Item = TypeVar("Item", LaunchRequest, str)


@final
class BatchedInstanceCalls:
    """The batched calls to one provider; what fails for one item is its outcome, never raised."""

    def __init__(self, provider: str, dispatcher: Dispatcher) -> None:
        self._provider: Final = provider
        self._dispatcher: Final = dispatcher
        self.on_late_launch: Callable[[LaunchRequest, LaunchOutcome], None] | None = None
        self._launches: Final = self._batcher(
            LAUNCH_INSTANCES,
            lambda requests: LaunchArguments(requests=requests),
            identity=_token,
            key=_node_class_name,
            on_late=self._late_launch,
        )
        self._fetches: Final = self._batcher(
            FETCH_INSTANCES,
            _of_provider_ids,
            identity=_provider_id,
            key=_one_key,
        )
        self._terminations: Final = self._batcher(
            TERMINATE_INSTANCES,
            _of_provider_ids,
            identity=_provider_id,
            key=_one_key,
        )

    @property
    def open_launches(self) -> int:
        """Number of claims that wait for their launch."""
        return self._launches.open

    async def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Launch one instance; FencedError is raised."""
        return self._checked(await _as_outcome(self._launches.add(request)))

    async def fetch(self, provider_id: str) -> FetchOutcome:
        """Fetch one instance."""
        outcome = await _as_outcome(self._fetches.add(provider_id))
        if isinstance(outcome, Instance):
            try:
                check_instance(outcome, where=FETCH_INSTANCES.at(self._provider))
            except CloudProviderError as error:
                return error
        return outcome

    async def terminate(self, provider_id: str) -> TerminateOutcome:
        """Ask for one instance's end; FencedError is raised."""
        return await _as_outcome(self._terminations.add(provider_id))

    def close(self) -> None:
        """Send nothing more."""
        self._launches.close()
        self._fetches.close()
        self._terminations.close()

    def _late_launch(
        self, request: LaunchRequest, outcome: LaunchedInstance | CloudProviderError | BaseException
    ) -> None:
        if self.on_late_launch is None:
            return
        if not isinstance(outcome, LaunchedInstance | CloudProviderError):
            outcome = CloudProviderError(f"the launch failed: {outcome!r}")
        self.on_late_launch(request, self._checked(outcome))

    def _checked(self, outcome: LaunchOutcome) -> LaunchOutcome:
        """Return the outcome of a launch without invalid labels and shortages, which are logged."""
        if not isinstance(outcome, LaunchedInstance):
            return outcome
        try:
            check_description(outcome, where=LAUNCH_INSTANCES.at(self._provider))
        except CloudProviderError as error:
            return error
        valid, problems = check_launched(outcome)
        for problem in problems:
            log: FilteringBoundLogger = structlog.get_logger("provider")
            log.error(
                "plug-in describes a launched instance by an invalid value, it is ignored",
                plugin=self._provider,
                problem=problem.message,
            )
        return valid

    def _batcher(
        self,
        hook: Hook[Request, tuple[T | CloudProviderError, ...]],
        request_of: Callable[[tuple[Item, ...]], Request],
        *,
        identity: Callable[[Item], Hashable],
        key: Callable[[LaunchRequest | str], Hashable],
        on_late: Callable[[Item, T | CloudProviderError | BaseException], None] | None = None,
    ) -> HookBatcher[Item, T | CloudProviderError]:
        limits = self._dispatcher.limits(hook, self._provider)
        return HookBatcher[Item, "T | CloudProviderError"](
            self._dispatcher.batch_call(hook, self._provider, request_of),
            what=f'{hook.name} of plug-in "{self._provider}"',
            limits=limits,
            clock=self._dispatcher.clock,
            calls=self._dispatcher.timed_calls(self._provider),
            identity=identity,
            key=limits.key or key,
            on_late=on_late,
            width=self._dispatcher.item_width(hook, self._provider),
        )


async def _as_outcome(waiting: Awaitable[T | CloudProviderError]) -> T | CloudProviderError:
    """Make an outcome of what was raised for a whole batch."""
    try:
        return await waiting
    except CloudProviderError as error:
        return error


def _of_provider_ids(provider_ids: tuple[str, ...]) -> ProviderIdArguments:
    return ProviderIdArguments(provider_ids=provider_ids)


def _token(request: LaunchRequest) -> Hashable:
    return request.token


def _provider_id(provider_id: str) -> Hashable:
    return provider_id


def _node_class_name(item: LaunchRequest | str) -> Hashable:
    if isinstance(item, str):
        return item
    return type(item.node_class).resource.kind, item.node_class.name


def _one_key(_item: LaunchRequest | str) -> Hashable:
    return ""
