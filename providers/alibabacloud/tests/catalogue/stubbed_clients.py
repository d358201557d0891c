"""Clients whose answers are given, call by call."""

from __future__ import annotations

from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any

from karpenter_provider_alibabacloud.sdk import ClientLimits, listed_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class AnsweringClients:
    """Stands in for `sdk.Clients`: each action has a function of its parameters to its answer."""

    def __init__(self, region: str = "cn-hangzhou", **answers: Answer) -> None:
        self.limits = ClientLimits()
        self.region = region
        self.answers: dict[str, Answer] = dict(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._lock = Lock()

    @property
    def ecs(self) -> Any:
        return self

    def call(self, action: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            self.calls.append((action, dict(parameters)))
        return self.answers[action](parameters)

    def pages(
        self, action: str, parameters: Mapping[str, Any], *, items: str
    ) -> Iterator[Mapping[str, Any]]:
        pages = listed_pages(
            lambda page: self.call(action, page), parameters, items=items, action=f"ecs:{action}"
        )
        return chain.from_iterable(pages)

    def asked(self, action: str) -> list[dict[str, Any]]:
        """Return the parameters of all calls of an action."""
        return [parameters for called, parameters in self.calls if called == action]


def zones(*rows: tuple[str, str, Mapping[str, str]], kind: str = "InstanceType") -> dict[str, Any]:
    """Return an answer of DescribeAvailableResource: zone, its stock, and stock by resource."""
    return {
        "AvailableZones": {
            "AvailableZone": [
                {
                    "ZoneId": zone,
                    "Status": "Available",
                    "StatusCategory": category,
                    "AvailableResources": {
                        "AvailableResource": [
                            {
                                "Type": kind,
                                "SupportedResources": {
                                    "SupportedResource": [
                                        {
                                            "Value": value,
                                            "Status": "Available",
                                            "StatusCategory": stock,
                                        }
                                        for value, stock in resources.items()
                                    ]
                                },
                            }
                        ]
                    },
                }
                for zone, category, resources in rows
            ]
        }
    }
