"""Sends raw requests over any transport, for the tests of API semantics."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from karpenter_core.kube.transport import ApiRequest, Transport

_NUMBERS = itertools.count(1)

WIDGETS = "/apis/test.karpenter.sh/v1/widgets"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def unique(word: str) -> str:
    """Return a name that no other test uses."""
    return f"{word}-{next(_NUMBERS)}"


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    text: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def causes(self) -> list[tuple[str, str]]:
        causes = self.body.get("details", {}).get("causes", [])
        return [(cause.get("reason", ""), cause.get("field", "")) for cause in causes]


class Api:
    """One API server as a client without any convenience sees it."""

    def __init__(self, transport: Transport, *, compact: Callable[[], None] = lambda: None) -> None:
        self._transport = transport
        self.compact = compact
        """Forget history; a real server's begins after version 1 anyway."""

    async def send(
        self, method: str, path: str, body: Any = None, *, media: str = "", **query: str
    ) -> Answer:
        request = ApiRequest(
            method=method,
            path=path,
            query=query,
            body=b"" if body is None else json.dumps(body).encode(),
            content_type=media or "application/json",
        )
        response = await self._transport.request(request)
        return Answer(response.status, dict(response.headers), response.body)

    async def create(self, path: str, body: Any) -> Any:
        answer = await self.send("POST", path, body)
        assert answer.status == 201, answer
        return answer.body

    async def get(self, path: str) -> Any:
        answer = await self.send("GET", path)
        assert answer.status == 200, answer
        return answer.body

    async def patch(self, path: str, body: Any, *, media: str = MERGE) -> Any:
        answer = await self.send("PATCH", path, body, media=media)
        assert answer.status == 200, answer
        return answer.body

    async def watch(self, path: str, *, count: int, **query: str) -> list[dict[str, Any]]:
        """Return the first events of a watch, or as many as come before it ends."""
        events: list[dict[str, Any]] = []
        request = ApiRequest(method="GET", path=path, query={"watch": "true", **query})
        async with asyncio.timeout(20), self._transport.stream(request) as (response, lines):
            assert response.status == 200, response
            async for line in lines:
                events.append(json.loads(line))
                if len(events) == count:
                    break
        return events

    async def until(self, path: str, holds: Any, *, seconds: float = 45.0) -> Any:
        """Read an object until something holds of it; `None` stands for not found, or not served yet."""
        async with asyncio.timeout(seconds):
            while True:
                answer = await self.send("GET", path)
                result = None if answer.status in {404, 429, 503} else answer.body
                if holds(result):
                    return result
                await asyncio.sleep(0.05)


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "test.karpenter.sh/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a pod that no scheduler touches."""
    spec: dict[str, Any] = {
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "nginx"}],
    }
    if node:
        spec["nodeName"] = node
        spec["tolerations"] = [{"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def budget(name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, **spec},
    }


WIDGET_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.karpenter.sh"},
    "spec": {
        "group": "test.karpenter.sh",
        "scope": "Cluster",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "default": 3},
                                    "color": {
                                        "type": "string",
                                        "enum": ["red", "blue"],
                                        "x-kubernetes-validations": [
                                            {
                                                "rule": "self == oldSelf",
                                                "message": "color is immutable",
                                            }
                                        ],
                                    },
                                    "low": {"type": "integer"},
                                    "high": {"type": "integer"},
                                    "replicas": {"type": "integer"},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(self.low) || !has(self.high) || "
                                        "self.low <= self.high",
                                        "message": "low must not exceed high",
                                    }
                                ],
                            },
                            "status": {
                                "type": "object",
                                "default": {"phase": "Fresh"},
                                "properties": {
                                    "phase": {"type": "string"},
                                    "replicas": {"type": "integer"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
