"""`SimulatedAlibabaCloud`: a cloud on 127.0.0.1 that the SDKs reach as they reach Alibaba Cloud.

    with SimulatedAlibabaCloud() as cloud:
        os.environ.update(cloud.environment)
        cloud.capacity.sell_out(capacity_type="spot", zone="cn-hangzhou-b")
        with cloud.fail("RunInstances", code="InternalError", status=500):
            ...
        assert cloud.calls.count("RunInstances") == 2

Everything is in the process that made it, and is looked at and changed there; a provider may run in
the same process or in any other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_core.provider.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.simulated.faults import CloudError, Fault, FaultKind
from karpenter_provider_alibabacloud.simulated.account import Account, Ids
from karpenter_provider_alibabacloud.simulated.application import Application
from karpenter_provider_alibabacloud.simulated.behaviour import Behaviour
from karpenter_provider_alibabacloud.simulated.parts import Parts
from karpenter_provider_alibabacloud.simulated.server import Server
from karpenter_provider_alibabacloud.simulated.signatures import ACCESS_KEY_ID, ACCESS_KEY_SECRET
from karpenter_provider_alibabacloud.simulated.world import World, WorldPlan, build_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from karpenter_provider_alibabacloud.simulated.types import TypeFacts
    from karpenter_provider_alibabacloud.simulated.wire import Reply, Request

__all__ = ["SimulatedAlibabaCloud"]


@final
class SimulatedAlibabaCloud:
    """One simulated cloud, of one account in one region."""

    def __init__(
        self,
        *,
        region: str = "cn-hangzhou",
        plan: WorldPlan | None = None,
        instance_types: Iterable[TypeFacts] | None = None,
        clock: Callable[[], datetime] = utc_now,
        port: int = 0,
    ) -> None:
        """Make it, of types like real ones or of those given, with made-up prices."""
        self._plan: Final = plan or WorldPlan()
        self.time: Final = CloudTime(clock)
        self.account: Final = Account(region=region, clock=self.time, ids=Ids(region))
        self.behaviour: Final = Behaviour()
        self._application: Final = Application(self.account)
        self._server: Final = Server(self._answer, port=port, name="simulated-alibabacloud")
        self.faults: Final = self._application.faults
        self.throttling: Final = self._application.rates
        self.calls: Final = self._application.calls
        self.signatures: Final = self._application.signatures
        parts = Parts(self.account, self.behaviour, plan=self._plan, types=instance_types)
        self._parts: Final = parts
        self.catalogue: Final = parts.catalogue
        self.clusters: Final = parts.clusters
        self.images: Final = parts.images
        self.networks: Final = parts.networks
        self.prices: Final = parts.prices
        self._application.handlers = parts.handlers
        self._world: World | None = None

    def start(self) -> None:
        """Build the world, and serve."""
        self.reset()
        self._server.start()

    def stop(self) -> None:
        """End serving."""
        self.faults.clear()
        self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> None:
        """Make the cloud as it was in the beginning: the ready world and nothing else."""
        self.faults.clear()
        self.throttling.set({})
        self.signatures.clear()
        self._application.retry_after_ms = 0
        self.behaviour.reset()
        self.time.reset()
        with self._application.state:
            self._parts.clear()
            self.images.publish_all()
            self._world = build_world(
                self._plan, self.account, networks=self.networks, clusters=self.clusters
            )
        self.calls.clear()

    def _answer(self, request: Request) -> Reply | None:
        if self.behaviour.latency_seconds > 0:
            time.sleep(self.behaviour.latency_seconds)
        return self._application(request)

    @property
    def endpoint(self) -> str:
        """Where it is served: host and port."""
        return self._server.endpoint

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead the provider here."""
        return {
            "ALIBABA_ENDPOINT_ECS": self.endpoint,
            "ALIBABA_ENDPOINT_VPC": self.endpoint,
            "ALIBABA_ENDPOINT_CS": self.endpoint,
            "ALIBABA_ENDPOINT_PROTOCOL": "http",
            "ALIBABA_CLOUD_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "ALIBABA_CLOUD_ACCESS_KEY_SECRET": ACCESS_KEY_SECRET,
            "REGION_ID": self.account.region,
            "CLUSTER_ID": self._plan.cluster,
        }

    @property
    def world(self) -> World:
        """What there is from the beginning."""
        if self._world is None:
            raise RuntimeError("the simulated Alibaba Cloud is not started")
        return self._world

    # What goes wrong.

    def fail(
        self,
        action: str,
        *,
        code: str,
        message: str = "simulated",
        status: int = 400,
        times: int | None = 1,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> Fault:
        """Refuse calls of an action (`RunInstances`, `ecs:Describe*`); nothing of them is done."""
        error = CloudError(code, message, status=status)
        return self._fault(FaultKind.REFUSED, action, error=error, times=times, where=where)

    def deny(self, action: str, *, times: int | None = None) -> Fault:
        """Refuse calls as no policy permits them."""
        return self._fault(FaultKind.REFUSED, action, times=times)

    def lose_replies(self, action: str, *, times: int | None = 1) -> Fault:
        """Carry calls out, and cut the connection before the answer."""
        return self._fault(FaultKind.LOST_REPLY, action, times=times)

    def fall_silent(self, action: str = "*", *, times: int | None = None) -> Fault:
        """Take calls, do nothing and never answer."""
        return self._fault(FaultKind.SILENT, action, times=times)

    def cut_off(self, action: str = "*", *, times: int | None = None) -> Fault:
        """Be unreachable: connections are cut, nothing is done."""
        return self._fault(FaultKind.UNREACHABLE, action, times=times)

    def tell_retry_after(self, milliseconds: int) -> None:
        """Let refusals for throttling say how long to wait; 0 for nothing."""
        self._application.retry_after_ms = milliseconds

    def _fault(
        self,
        kind: FaultKind,
        action: str,
        *,
        error: CloudError | None = None,
        times: int | None,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> Fault:
        return self.faults.add(
            Fault(kind=kind, action=action, error=error, times=times, where=where)
        )
