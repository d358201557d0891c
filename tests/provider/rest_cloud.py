"""A REST cloud on the simulator kit: prices in EUR, no spot, 201 before the launch is finished."""

from __future__ import annotations

from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_core.provider.kit.simulated.kubelets import NodeTaint
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.provider.kit.simulated.rest import (
    RestCloud,
    RestInstance,
    RestInstanceType,
    RestRoute,
)

TYPES = {
    "small": RestInstanceType(cpus=2, memory_mib=8192, price_per_hour=0.05),
    "large": RestInstanceType(cpus=4, memory_mib=16384, price_per_hour=0.4),
}
TAINT = NodeTaint(key="karpenter.sh/unregistered", effect="NoExecute")


class SampleCloud(RestCloud):
    def __init__(self, **options):
        super().__init__("rest", TYPES, **options)

    @property
    def environment(self):
        return {"REST_ENDPOINT": self.endpoint_url}

    def routes(self):
        return [
            RestRoute(action="create", method="POST", path="/vms", answer=self._create),
            RestRoute(action="list", method="GET", path="/vms", answer=self._list),
            RestRoute(action="delete", method="DELETE", path="/vms/{id}", answer=self._delete),
        ]

    def _create(self, call):
        pool = InstancePool(
            capacity_type="on-demand", instance_type=call.text("size"), zone=call.text("zone")
        )
        vm = self.launch("create", pool)
        vm.image_id, vm.taints = "debian", [TAINT]
        return 201, self._described(vm)

    def _list(self, call):
        return 200, {"vms": [self._described(vm) for vm in self.instances.visible]}

    def _delete(self, call):
        if self.instances.get(call.text("id")) is None:
            raise self.not_found(f"VM {call.text('id')}")
        self.terminate(call.text("id"))
        return 202, {}

    def _described(self, vm):
        state = self.instances.state_of(vm)
        told = {"id": vm.id, "size": vm.instance_type, "zone": vm.zone, "state": state}
        return told | ({"error": vm.failure.code} if state == "failed" else {})


class SampleDemo(SimulatedCloudDemo[RestInstance]):
    currency = "EUR"
    lacks = (DemoFeature.SPOT, DemoFeature.NEWER_IMAGE)

    @property
    def node_class_spec(self):
        return {"image": "debian"}
