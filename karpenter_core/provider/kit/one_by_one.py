"""Adapts a function for one item to a plural hook."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, cast

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.spelling import did_you_mean
from karpenter_core.provider.value_text import error_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["CALLED_PLUGIN", "ItemCallMode", "item_call_mode", "one_by_one"]

CALLED_PLUGIN: Final[ContextVar[str]] = ContextVar("CALLED_PLUGIN", default="")
"""Name of the plug-in whose hook runs, for error messages; the host sets it around each call."""

_MARK: Final = "karpenter_item_calls"


class ItemCallMode(StrEnum):
    """Ways in which the host calls a hook for one item."""

    THREADS = "threads"
    """Each item in a thread of the provider's pool."""
    COROUTINES = "coroutines"
    """Each item as a coroutine on the event loop."""


def item_call_mode(hook: object) -> ItemCallMode | None:
    """Return how a hook is called for one item; None if it takes many items at once."""
    return getattr(hook, _MARK, None)


def one_by_one(function: Callable[..., object]) -> Callable[..., object]:
    """Adapt a function for one item to a plural hook, for clouds without batch calls.

    Use it below `@hookimpl`, on a function or method with the name of the hook:

        @hookimpl
        @one_by_one
        def karpenter_terminate_instances(provider_id: str) -> TerminationStatus: ...

    The host calls the function concurrently, once for each item: in threads of the provider's pool,
    or as coroutines if it is an `async def`. So each outcome counts as soon as its call returns,
    and each item has its own time limit. An error that the function raises is the outcome of its
    item. Called with several items, as in tests, the hook returns all outcomes in their order.

    Raises:
        TypeError: no plural hook has the function's name, or an argument has an unknown name.
    """
    parameters = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
    ]
    is_method = parameters[:1] == ["self"]
    shape = _ITEM_ADAPTERS.get(function.__name__)
    if shape is None:
        meant = did_you_mean(function.__name__, _ITEM_ADAPTERS)
        message = f"one_by_one: {function.__name__} is not the name of a plural hook{meant}"
        raise TypeError(message)
    named = parameters[1:] if is_method else parameters
    for name in named:
        if name not in shape.arguments:
            meant = did_you_mean(name, shape.arguments)
            message = f'one_by_one: {function.__name__} has no argument "{name}"{meant}'
            raise TypeError(message)
    hook = (shape.method if is_method else shape.function)(_each_of(function, shape, named))
    hook.__name__ = function.__name__
    hook.__qualname__ = function.__qualname__
    hook.__doc__ = function.__doc__
    hook.__module__ = function.__module__
    is_async = inspect.iscoroutinefunction(function)
    setattr(hook, _MARK, ItemCallMode.COROUTINES if is_async else ItemCallMode.THREADS)
    return hook


def _each_of(function: Callable[..., object], shape: _ItemAdapters, named: Sequence[str]) -> _Each:
    """Return a function that calls another for each item, with the arguments that it declares."""

    def arguments(item: object, other: Sequence[object]) -> dict[str, object]:
        given = dict(zip(shape.arguments, (item, *other), strict=True))
        return {name: given[name] for name in named}

    def each(owner: Sequence[object], items: Sequence[object], other: Sequence[object]) -> object:
        return [_attempt(function, *owner, **arguments(item, other)) for item in items]

    async def each_async(
        owner: Sequence[object], items: Sequence[object], other: Sequence[object]
    ) -> object:
        answers = [_attempt_async(function, *owner, **arguments(item, other)) for item in items]
        return await asyncio.gather(*answers)

    return each_async if inspect.iscoroutinefunction(function) else each


def _attempt(function: Callable[..., object], *owner: object, **arguments: object) -> object:
    try:
        return function(*owner, **arguments)
    except Exception as error:
        return _outcome(function, error)


async def _attempt_async(
    function: Callable[..., object], *owner: object, **arguments: object
) -> object:
    """Attempt a coroutine function; its SystemExit must not leave the task: it would end the event loop."""
    try:
        return await cast("Awaitable[object]", function(*owner, **arguments))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _outcome(function, error)
    except BaseException as error:
        return _outcome(function, error)


def _outcome(function: Callable[..., object], result: object) -> object:
    """Convert an exception of a function into a typed error."""
    if isinstance(result, CloudProviderError) or not isinstance(result, BaseException):
        return result
    plugin = CALLED_PLUGIN.get()
    who = f'plug-in "{plugin}" failed in {function.__name__}' if plugin else function.__name__
    error = CloudProviderError(f"{who}: {error_text(result)}")
    error.__cause__ = result
    return error


class _Each(Protocol):
    def __call__(
        self, owner: Sequence[object], items: Sequence[object], other: Sequence[object]
    ) -> object: ...


_Adapter: TypeAlias = "Callable[[_Each], Callable[..., object]]"


class _ItemAdapters(NamedTuple):
    """The arguments of a function for one item, and the two adapters to a plural hook."""

    arguments: tuple[str, ...]
    """Names of the arguments: the item first."""
    function: _Adapter
    method: _Adapter


# pluggy reads argument names from the code of a function, so each shape has its own two adapters.


def _requests(each: _Each) -> Callable[..., object]:
    def hook(requests: Sequence[object]) -> object:
        return each((), requests, ())

    return hook


def _requests_method(each: _Each) -> Callable[..., object]:
    def hook(self: object, requests: Sequence[object]) -> object:
        return each((self,), requests, ())

    return hook


def _provider_ids(each: _Each) -> Callable[..., object]:
    def hook(provider_ids: Sequence[object]) -> object:
        return each((), provider_ids, ())

    return hook


def _provider_ids_method(each: _Each) -> Callable[..., object]:
    def hook(self: object, provider_ids: Sequence[object]) -> object:
        return each((self,), provider_ids, ())

    return hook


def _node_claims(each: _Each) -> Callable[..., object]:
    def hook(node_claims: Sequence[object], node_class: object) -> object:
        return each((), node_claims, (node_class,))

    return hook


def _node_claims_method(each: _Each) -> Callable[..., object]:
    def hook(self: object, node_claims: Sequence[object], node_class: object) -> object:
        return each((self,), node_claims, (node_class,))

    return hook


_PROVIDER_ID_ADAPTERS: Final = _ItemAdapters(("provider_id",), _provider_ids, _provider_ids_method)
_ITEM_ADAPTERS: Final = {
    "karpenter_launch_instances": _ItemAdapters(("request",), _requests, _requests_method),
    "karpenter_fetch_instances": _PROVIDER_ID_ADAPTERS,
    "karpenter_terminate_instances": _PROVIDER_ID_ADAPTERS,
    "karpenter_detect_drift": _ItemAdapters(
        ("node_claim", "node_class"), _node_claims, _node_claims_method
    ),
}
