"""Inspects and changes the simulated cloud over HTTP.

Everything is below `/_sim/`; bodies and answers are JSON.

    GET  calls        how often each action was called, and how it ended
    GET  state        instances, and the Nodes that have joined
    POST reset        the ready world and nothing else
    POST advance      {"seconds": 60}: let time pass
    POST fail         {"action", "code", "status", "times"}: refuse calls
    POST lose-replies {"action", "times"}
    POST clear-faults
    POST sell-out     {"capacity_type", "instance_type", "zone"}: shell patterns
    POST behaviour    {"pending_seconds": 2}: any field of CloudBehaviour
    POST reclaim      {"instance": "i-…"}
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.server import HttpReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_simulated_alibabacloud.instances import SimulatedInstance
    from karpenter_simulated_alibabacloud.parts import CloudParts

    Body = Mapping[str, str | float]

__all__ = ["PREFIX", "RemoteControl"]

PREFIX: Final = "/_sim/"
"""Paths that begin so are for `RemoteControl`."""
_OK: Final = 200
_WRONG: Final = 400
_NOT_FOUND: Final = 404


@final
class RemoteControl:
    """Looks at and changes one simulated cloud."""

    def __init__(
        self,
        cloud: SimulatedCloud[SimulatedInstance],
        parts: CloudParts,
        *,
        reset: Callable[[], None],
    ) -> None:
        self._cloud: Final = cloud
        self._parts: Final = parts
        self._routes: Final[Mapping[tuple[str, str], Callable[[Body], object]]] = {
            ("GET", "calls"): self._calls,
            ("GET", "state"): self._state,
            ("POST", "advance"): lambda body: cloud.time.advance(float(body["seconds"])),
            ("POST", "behaviour"): self._behave,
            ("POST", "clear-faults"): lambda _: cloud.faults.clear(),
            ("POST", "fail"): self._fail,
            ("POST", "lose-replies"): self._lose_replies,
            ("POST", "reclaim"): self._reclaim,
            ("POST", "reset"): lambda _: reset(),
            ("POST", "sell-out"): self._sell_out,
        }

    def __call__(self, request: HttpRequest) -> HttpReply:
        """Answer one request."""
        route = self._routes.get((request.method, request.path.removeprefix(PREFIX)))
        if route is None:
            return _reply(_NOT_FOUND, {"error": f"there is no {request.method} {request.path}"})
        try:
            body = cast("Body", json.loads(request.body or b"{}"))
            return _reply(_OK, route(body))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return _reply(_WRONG, {"error": f"{type(error).__name__}: {error}"})

    def _calls(self, _body: Body) -> object:
        counted = Counter((call.action, call.outcome) for call in self._cloud.calls.all)
        reply: dict[str, dict[str, int]] = {}
        for (action, outcome), number in sorted(counted.items()):
            reply.setdefault(action, {})[outcome] = number
        return reply

    def _state(self, _body: Body) -> object:
        instances = self._parts.instances
        return {
            "instances": [
                {
                    "id": each.id,
                    **asdict(each.pool),
                    "status": str(instances.state_of(each)),
                    "tags": each.tags,
                }
                for each in self._cloud.living()
            ],
            "nodes": dict(self._cloud.nodes()),
        }

    def _fail(self, body: Body) -> None:
        self._cloud.fail(
            str(body["action"]),
            code=str(body["code"]),
            status=int(body.get("status", _WRONG)),
            times=int(body.get("times", 1)),
        )

    def _lose_replies(self, body: Body) -> None:
        self._cloud.lose_replies(str(body["action"]), times=int(body.get("times", 1)))

    def _sell_out(self, body: Body) -> None:
        self._parts.capacity.sell_out(**_texts(body))

    def _reclaim(self, body: Body) -> object:
        return {"at": self._cloud.reclaim(str(body["instance"])).isoformat()}

    def _behave(self, body: Body) -> None:
        for name, value in body.items():
            getattr(self._parts.behaviour, name)  # a name that is none must not become one
            setattr(self._parts.behaviour, name, value)


def _texts(body: Body) -> dict[str, str]:
    return {name: str(value) for name, value in body.items()}


def _reply(status: int, answer: object) -> HttpReply:
    body = json.dumps({} if answer is None else answer).encode()
    return HttpReply(status=status, headers=(("Content-Type", "application/json"),), body=body)
