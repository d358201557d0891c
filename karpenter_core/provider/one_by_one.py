"""Write a plural hook as a function for one item."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, cast

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["one_by_one"]


def one_by_one(function: Callable[..., object]) -> Callable[..., object]:
    """Make a plural hook of a function for one item, for clouds without batch calls.

    Goes below `@hookimpl`, on a function or method named like the hook:

        @hookimpl
        @one_by_one
        def karpenter_terminate_instances(provider_id: str) -> Termination: ...

    An error the function raises is that item's outcome, and the other items go on. Items of an
    `async def` function run concurrently, others one after the other.

    Raises:
        TypeError: no plural hook has the function's name.
    """
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"
    adapter = _ADAPTERS.get((function.__name__, is_method))
    if adapter is None:
        message = f"one_by_one: {function.__name__} is not the name of a plural hook"
        raise TypeError(message)
    hook = adapter(_each_of(function))
    hook.__name__ = function.__name__
    hook.__qualname__ = function.__qualname__
    hook.__doc__ = function.__doc__
    hook.__module__ = function.__module__
    return hook


def _each_of(function: Callable[..., object]) -> _Each:
    """Return a function that calls another for each item, between fixed other arguments."""

    def each(before: Sequence[object], items: Sequence[object], after: Sequence[object]) -> object:
        return [_attempt(function, *before, item, *after) for item in items]

    async def each_async(
        before: Sequence[object], items: Sequence[object], after: Sequence[object]
    ) -> object:
        answers = [cast("Awaitable[object]", function(*before, item, *after)) for item in items]
        results = await asyncio.gather(*answers, return_exceptions=True)
        return [_outcome(function, result) for result in results]

    return each_async if inspect.iscoroutinefunction(function) else each


def _attempt(function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except Exception as error:
        return _outcome(function, error)


def _outcome(function: Callable[..., object], result: object) -> object:
    """Turn what a function raised into a typed error."""
    if isinstance(result, CloudProviderError) or not isinstance(result, BaseException):
        return result
    error = CloudProviderError(f"{function.__name__} failed: {result!r}")
    error.__cause__ = result
    return error


if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    class _Each(Protocol):
        def __call__(
            self, before: Sequence[object], items: Sequence[object], after: Sequence[object]
        ) -> object: ...

    _Adapter: TypeAlias = Callable[[_Each], Callable[..., object]]


# pluggy reads argument names from the code of a function, so each hook has its own two adapters.


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


_ADAPTERS: dict[tuple[str, bool], _Adapter] = {
    ("karpenter_launch_instances", False): _requests,
    ("karpenter_launch_instances", True): _requests_method,
    ("karpenter_fetch_instances", False): _provider_ids,
    ("karpenter_fetch_instances", True): _provider_ids_method,
    ("karpenter_terminate_instances", False): _provider_ids,
    ("karpenter_terminate_instances", True): _provider_ids_method,
    ("karpenter_detect_drift", False): _node_claims,
    ("karpenter_detect_drift", True): _node_claims_method,
}
