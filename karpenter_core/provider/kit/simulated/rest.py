"""A simulated REST cloud: JSON over HTTP, routed by method and path.

A cloud derives from `RestCloud`, and supplies its routes and what a kubelet reads from an instance.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl, unquote

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour
from karpenter_core.provider.kit.simulated.capacity import CapacityLimits
from karpenter_core.provider.kit.simulated.cloud import SharedParts, SimulatedCloud
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.endpoint import CallCharge, CloudEndpoint
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.ids import IdGenerator
from karpenter_core.provider.kit.simulated.instances import SimulatedInstance, SimulatedInstances
from karpenter_core.provider.kit.simulated.kubelets import (
    BootedNode,
    BootError,
    NodeTaint,
    SimulatedKubelets,
    allocatable_amounts,
)
from karpenter_core.provider.kit.simulated.launch_calls import LaunchCalls
from karpenter_core.provider.kit.simulated.pools import PoolFaults
from karpenter_core.provider.kit.simulated.prices import SimulatedPrices
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer
from karpenter_core.provider.kit.simulated.tokens import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from ssl import SSLContext

    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_core.provider.kit.simulated.server import HttpRequest

__all__ = ["Announcement", "RestCall", "RestCloud", "RestInstance", "RestInstanceType", "RestRoute"]

_MEBIBYTE: Final = 2**20
_PODS: Final = 110
_SERVER_ERROR: Final = 500
_REPORTED_SHARE: Final = 0.95
"""Of the memory that an instance is sold with; the rest is the kernel's."""
_RESERVED: Final = {"cpu": 100}
_THRESHOLDS: Final = {"memory": "100Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCall:
    """One request that a route matches."""

    route: RestRoute
    parameters: Mapping[str, object]
    """Parameters of the path, the query and the JSON body together."""
    request: HttpRequest
    service: str = ""

    @property
    def action(self) -> str:
        """The name of the route."""
        return self.route.action

    @property
    def name(self) -> str:
        """The name of the route, for patterns of faults."""
        return f"{self.service}:{self.action}"

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter as text."""
        return str(self.parameters.get(name, default))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRoute:
    """Requests of one method and path, and the function that answers them."""

    action: str
    """Name in the log and in faults: `create`."""
    method: str
    path: str
    """With names in braces: `/vms/{id}`."""
    answer: Callable[[RestCall], tuple[int, object]]
    """Returns the status and the JSON body; raises `CloudError`."""
    operation_class: str = ""
    """Name of the bucket that calls take a token from; by default `read` for GET, else `write`."""

    def match(self, request: HttpRequest) -> Mapping[str, str] | None:
        """Return the parameters of the path; None if the request is another one."""
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        found = re.fullmatch(pattern, request.path)
        if found is None or request.method != self.method:
            return None
        return {name: unquote(value) for name, value in found.groupdict().items()}

    @property
    def bucket(self) -> str:
        """The operation class."""
        return self.operation_class or ("read" if self.method == "GET" else "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestInstanceType:
    """An instance type."""

    cpus: int
    memory_mib: int
    price_per_hour: float


@dataclass(slots=True, kw_only=True, eq=False)
class RestInstance(SimulatedInstance):
    """An instance with what its kubelet reads at boot."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: Sequence[NodeTaint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The announcement of an interruption."""

    instance_id: str
    at: datetime
    ends_at: datetime


class _Kubelets(SimulatedKubelets[RestInstance]):
    def __init__(self, cloud: RestCloud, time: CloudTime) -> None:
        super().__init__(time, cloud.behaviour, cloud.instances)
        self._cloud: Final = cloud

    def boot(self, instance: RestInstance) -> BootedNode:
        instance_type = self._cloud.types.get(instance.instance_type)
        if instance_type is None:
            raise BootError(f"there is no instance type {instance.instance_type}")
        memory = int(instance_type.memory_mib * _REPORTED_SHARE) * _MEBIBYTE
        capacity = {"cpu": instance_type.cpus * 1000, "memory": memory, "pods": _PODS}
        return BootedNode(
            name=instance.id,
            provider_id=self._cloud.provider_id(instance),
            labels={
                INSTANCE_TYPE: instance.instance_type,
                ZONE: instance.zone,
                **instance.labels,
            },
            taints=instance.taints,
            capacity=capacity,
            allocatable=allocatable_amounts(capacity, _RESERVED, thresholds=_THRESHOLDS),
        )


class RestCloud(SimulatedCloud[RestInstance]):
    """A simulated REST cloud."""

    def __init__(
        self,
        name: str,
        types: Mapping[str, RestInstanceType],
        *,
        clock: Callable[[], datetime] = utc_now,
        port: int = 0,
        tls: SSLContext | None = None,
    ) -> None:
        """Sell instance types by name; `name` is the scheme of provider IDs."""
        self.name: Final = name
        self.types: Final = dict(types)
        self.behaviour: Final = CloudBehaviour()
        self.ids: Final = IdGenerator(name)
        time = CloudTime(clock)
        self._endpoint: Final[CloudEndpoint[RestCall]] = CloudEndpoint(self, time)
        self._server: Final = HttpServer(self._endpoint, name=name, port=port, tls=tls)
        self.instances: Final = SimulatedInstances[RestInstance](time, self.behaviour)
        self.capacity: Final = CapacityLimits(self.instances, sold_out=self.sold_out)
        self.kubelets: Final = _Kubelets(self, time)
        self.prices: Final = SimulatedPrices(time, self._list_price)
        self.launches: Final = LaunchCalls()
        self.announcements: Final[list[Announcement]] = []
        parts = SharedParts(
            behaviour=self.behaviour,
            instances=self.instances,
            capacity=self.capacity,
            kubelets=self.kubelets,
            prices=self.prices,
            refusals=PoolFaults(),
        )
        super().__init__(time, self._endpoint, parts)

    @abstractmethod
    def routes(self) -> Sequence[RestRoute]:
        """Return the calls of the cloud; the first that matches a request answers it."""

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return self._server.endpoint

    @property
    def endpoint_url(self) -> str:
        """The URL, without a slash at its end."""
        return self._server.endpoint_url

    def start(self) -> None:
        """Start to serve."""
        self._server.start()

    def stop(self) -> None:
        """Stop."""
        self.faults.clear()
        self._server.stop()

    def provider_id(self, instance: RestInstance) -> str:
        """Return the provider ID of an instance: the name of the cloud and its id."""
        return f"{self.name}://{instance.id}"

    def announce_interruption(
        self, instance: RestInstance, at: datetime, ends_at: datetime, /
    ) -> None:
        """Add to the announcements."""
        self.announcements.append(Announcement(instance_id=instance.id, at=at, ends_at=ends_at))

    def launch(self, action: str, pool: InstancePool) -> RestInstance:
        """Launch an instance, and record the call; the caller may add tags, labels and taints.

        Raises:
            CloudError: the pool is refused by a fault, a quota or its stock.
        """
        if fault := self.shared.refusals.strike(pool):
            raise fault.error
        obtained, error = self.capacity.obtainable(pool, 1)
        if error is not None:
            is_sold_out = self.capacity.left(pool) == 0
            self.launches.add(action, sold_out=[pool] if is_sold_out else [], bought={})
            raise error
        self.launches.add(action, bought={pool: obtained})
        instance = RestInstance(id=self.ids.new("vm"), pool=pool, launched_at=self.time())
        self.instances.add(instance)
        return instance

    # -- errors in the words of the cloud --------------------------------------------------------

    def sold_out(self, pool: InstancePool) -> CloudError:
        """Return the refusal of a launch from a pool that has nothing left."""
        return CloudError("sold-out", f"no {pool.instance_type} in {pool.zone}", status=409)

    def not_found(self, what: str) -> CloudError:
        """Return the refusal of a call about something that does not exist."""
        return CloudError("not-found", f"there is no {what}", status=404)

    def error_body(self, error: CloudError) -> object:
        """Return the JSON body of a refusal."""
        return {"code": error.code, "message": error.message}

    # -- the steps of a call ---------------------------------------------------------------------

    def read(self, request: HttpRequest) -> RestCall:
        """Find the route of a request, and read its parameters."""
        for route in self.routes():
            found = route.match(request)
            if found is not None:
                query = dict(parse_qsl(request.query, keep_blank_values=True))
                body: object = json.loads(request.body) if request.body else {}
                fields = cast("dict[str, object]", body) if isinstance(body, dict) else {}
                parameters = {**query, **fields, **found}
                return RestCall(route=route, parameters=parameters, request=request)
        raise self.not_found(f"call {request.method} {request.path}")

    def charges(self, call: RestCall) -> Sequence[CallCharge]:
        """Return the token of the operation class."""
        return [CallCharge(bucket=call.route.bucket, by_pattern=False)]

    def throttled(self, _call: RestCall, /) -> CloudError:
        """Return the refusal of a call whose operation class is throttled."""
        return CloudError("throttled", "too many requests", status=429)

    def denied(self, call: RestCall) -> CloudError:
        """Return the refusal of a call that is not permitted."""
        return CloudError("forbidden", f"{call.action} is not permitted", status=403)

    def carry_out(self, call: RestCall) -> tuple[HttpReply, str]:
        """Answer a call; a mistake of the simulation is the client's error, with its text."""
        try:
            with self._endpoint.state:
                status, body = call.route.answer(call)
        except (CloudError, NoAnswerError):
            raise
        except Exception as error:
            raise CloudError("simulation-failed", repr(error), status=_SERVER_ERROR) from error
        return _reply(status, body), "ok"

    def refuse(self, _call: RestCall | None, error: CloudError, /) -> HttpReply:
        """Write a refusal, with the header `Retry-After` if the error says when."""
        seconds = error.retry_after_seconds
        tells = seconds is not None and isfinite(seconds)
        headers = (("Retry-After", str(ceil(seconds))),) if tells and seconds is not None else ()
        return _reply(error.status, self.error_body(error), headers)

    def _list_price(self, instance_type: str) -> float:
        found = self.types.get(instance_type)
        return 0.0 if found is None else found.price_per_hour


def _reply(status: int, body: object, headers: tuple[tuple[str, str], ...] = ()) -> HttpReply:
    return HttpReply(
        status=status,
        headers=(("Content-Type", "application/json"), *headers),
        body=json.dumps(body).encode(),
    )
