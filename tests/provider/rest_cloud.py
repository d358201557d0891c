"""A REST cloud on the simulator kit: prices in EUR, no spot, 201 before the launch is finished."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour
from karpenter_core.provider.kit.simulated.capacity import CapacityLimits
from karpenter_core.provider.kit.simulated.cloud import SharedParts, SimulatedCloud
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_core.provider.kit.simulated.endpoint import CallCharge, CloudEndpoint
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.ids import IdGenerator
from karpenter_core.provider.kit.simulated.instances import SimulatedInstance, SimulatedInstances
from karpenter_core.provider.kit.simulated.kubelets import (
    BootedNode,
    NodeTaint,
    SimulatedKubelets,
    allocatable_amounts,
)
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFaults
from karpenter_core.provider.kit.simulated.prices import SimulatedPrices
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer

SIZES = {"small": 0.05, "large": 0.4}
"""Prices in EUR."""
TAINT = NodeTaint(key="karpenter.sh/unregistered", effect="NoExecute")
GIBIBYTE = 2**30


@dataclass(frozen=True, kw_only=True)
class Call:
    action: str
    target: str
    parameters: dict[str, object] = field(default_factory=dict)
    service: str = "vms"

    @property
    def name(self):
        return f"vms:{self.action}"


class Kubelets(SimulatedKubelets[SimulatedInstance]):
    def boot(self, instance):
        capacity = {"cpu": 4000, "memory": 16 * GIBIBYTE, "pods": 110}
        return BootedNode(
            name=instance.id,
            provider_id=f"rest://{instance.id}",
            labels={"topology.kubernetes.io/zone": instance.zone},
            taints=[TAINT],
            capacity=capacity,
            allocatable=allocatable_amounts(capacity, {"cpu": 100}, thresholds={"memory": "100Mi"}),
        )


class RestCloud(SimulatedCloud[SimulatedInstance]):
    def __init__(self, clock=utc_now, *, tls=None):
        time, self.behaviour = CloudTime(clock), CloudBehaviour()
        self.ids = IdGenerator("rest")
        self.endpoint = CloudEndpoint(self, time)
        self.server = HttpServer(self.endpoint, name="rest-cloud", tls=tls)
        self.instances = SimulatedInstances[SimulatedInstance](time, self.behaviour)
        self.capacity = CapacityLimits(self.instances, sold_out=sold_out)
        self.kubelets = Kubelets(time, self.behaviour, self.instances)
        self.announced = []
        parts = SharedParts(
            behaviour=self.behaviour,
            instances=self.instances,
            capacity=self.capacity,
            kubelets=self.kubelets,
            prices=SimulatedPrices(time, lambda size: SIZES.get(size, 0)),
            refusals=PoolFaults(),
        )
        super().__init__(time, self.endpoint, parts)

    @property
    def environment(self):
        return {"REST_ENDPOINT": self.server.endpoint_url}

    def start(self):
        self.server.start()

    def stop(self):
        self.faults.clear()
        self.server.stop()

    def provider_id(self, instance):
        return f"rest://{instance.id}"

    def announce_interruption(self, instance, at, ends_at):
        self.announced.append((instance.id, at, ends_at))

    def read(self, request):
        action = {"POST": "create", "GET": "read", "DELETE": "delete"}.get(request.method)
        if action is None or not request.path.startswith("/vms"):
            raise CloudError("not-found", "there is no such path", status=404)
        body = json.loads(request.body or b"{}")
        return Call(action=action, target=request.path[len("/vms/") :], parameters=body)

    def charges(self, call):
        kind = "read" if call.action == "read" else "write"
        return [CallCharge(bucket=kind, by_pattern=False)]

    def throttled(self, call):
        return CloudError("throttled", "too many requests", status=429)

    def denied(self, call):
        return CloudError("forbidden", f"{call.name} is not permitted", status=403)

    def carry_out(self, call):
        with self.endpoint.state:
            match call.action:
                case "create":
                    return answer(201, described(self._create(**call.parameters))), "ok"
                case "delete":
                    self.terminate(call.target)
                    return answer(202, {}), "ok"
                case _:
                    vms = [described(each, self.instances) for each in self.instances.visible]
                    return answer(200, {"vms": vms}), "ok"

    def _create(self, size, zone, tags):
        pool = InstancePool(capacity_type="on-demand", instance_type=size, zone=zone)
        fault = self.shared.refusals.strike(pool)
        obtained, error = (0, fault.error) if fault else self.capacity.obtainable(pool, 1)
        if not obtained:
            raise error
        vm = SimulatedInstance(
            id=self.ids.new("vm"), pool=pool, launched_at=self.time(), tags=tags, image_id="debian"
        )
        self.instances.add(vm)
        return vm

    def refuse(self, call, error):
        after = error.retry_after_seconds
        headers = () if after is None else (("Retry-After", str(round(after))),)
        return answer(error.status, {"code": error.code, "message": error.message}, headers)


class RestDemo(SimulatedCloudDemo[SimulatedInstance]):
    currency = "EUR"
    lacks = (DemoFeature.SPOT, DemoFeature.NEWER_IMAGE)

    @property
    def node_class_spec(self):
        return {"image": "debian"}


def sold_out(pool):
    return CloudError("sold-out", f"no {pool.instance_type} in {pool.zone}", status=409)


def described(vm, instances=None):
    state = instances.state_of(vm) if instances else "pending"
    told = {"id": vm.id, "size": vm.instance_type, "zone": vm.zone, "state": state}
    return told | ({"error": vm.failure.code} if state == "failed" else {})


def answer(status, body, headers=()):
    return HttpReply(
        status=status,
        headers=(("Content-Type", "application/json"), *headers),
        body=json.dumps(body).encode(),
    )
