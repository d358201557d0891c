"""A transport with scripted answers, and small builders of API objects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from karpenter_core.kube.transport import ApiRequest, ApiResponse


class ScriptedTransport:
    """Answers requests from one queue and watches from another, and remembers what was asked.

    An answer is a Response, an exception, or a function of the request that gives one of these.
    Answers may be endless; a
    number among them is how many seconds the next one takes. A watch is a list of lines; an exception in it breaks the stream, `HANG` keeps it open.
    """

    def __init__(self, answers=(), watches=()):
        self.answers = iter(answers)
        self.watches = list(watches)
        self.requests: list[ApiRequest] = []
        self.times: list[float] = []

    async def request(self, request):
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        answer = next(self.answers)
        if isinstance(answer, (int, float)):
            await asyncio.sleep(answer)
            answer = next(self.answers)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, request):
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        script = self.watches.pop(0) if self.watches else [HANG]
        if isinstance(script, Exception):
            raise script
        if isinstance(script, ApiResponse):
            yield script, _lines([])
        else:
            yield ApiResponse(status=200, body=b""), _lines(script)

    async def close(self):
        pass


HANG = object()


async def _lines(script):
    for step in script:
        if step is HANG:
            await asyncio.Event().wait()
        elif isinstance(step, Exception):
            raise step
        elif isinstance(step, (int, float)):
            await asyncio.sleep(step)
        else:
            yield step


def answer(body: Any = None, status: int = 200, **headers: str) -> ApiResponse:
    return ApiResponse(status=status, body=msgspec.json.encode(body or {}), headers=headers)


def refusal(status: int, message: str = "no", reason: str = "", **headers: str) -> ApiResponse:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "message": message,
        "reason": reason,
    }
    return answer(body, status, **headers)


def event(kind: str, body: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body})


def bookmark(version: int, *, initial: bool = False) -> bytes:
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Node", "metadata": meta})


def node(name: str, version: int = 1, uid: str = "", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def page(items: list[Any], version: int, token: str = "") -> ApiResponse:
    return answer(
        {"metadata": {"resourceVersion": str(version), "continue": token}, "items": items}
    )


def node_pool(name: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": meta,
        "spec": {"template": {"spec": {"nodeClassRef": ref}}, **spec},
    }
