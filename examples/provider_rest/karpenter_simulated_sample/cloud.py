"""The API of the sample cloud: unique names, failures after 201, listings by label in pages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.kubelets import NodeTaint
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.provider.kit.simulated.rest import (
    RestCall,
    RestCloud,
    RestInstance,
    RestInstanceType,
    RestRoute,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

ZONES: Final = ("north", "south", "west")
TYPES: Final = {
    f"s-{cpus}": RestInstanceType(cpus=cpus, memory_mib=4096 * cpus, price_per_hour=0.024 * cpus)
    for cpus in (2, 4, 8)
}
STATES: Final = {
    "pending": "creating",
    "running": "running",
    "failed": "error",
    "terminating": "deleting",
    "gone": "deleting",
}


class SimulatedSampleCloud(RestCloud):
    """The cloud, with versions of one image."""

    def __init__(self) -> None:
        super().__init__("sample", TYPES)
        self.images = {"debian": "debian-2", "debian-old": "debian-1"}

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of the provider."""
        return {"SAMPLE_ENDPOINT": self.endpoint_url}

    def routes(self) -> Sequence[RestRoute]:
        """Return the calls."""
        one, many = "/v1/servers/{id}", "/v1/servers"
        return [
            RestRoute(action="types", method="GET", path="/v1/types", answer=self._types),
            RestRoute(action="image", method="GET", path="/v1/images/{name}", answer=self._image),
            RestRoute(action="create", method="POST", path=many, answer=self._create),
            RestRoute(action="list", method="GET", path=many, answer=self._list),
            RestRoute(action="get", method="GET", path=one, answer=self._get),
            RestRoute(action="delete", method="DELETE", path=one, answer=self._delete),
        ]

    def sold_out(self, pool: InstancePool) -> CloudError:
        """Return the refusal of a pool that has nothing left."""
        return CloudError("no_capacity", f"no {pool.instance_type} in {pool.zone}", status=409)

    def _types(self, _: RestCall) -> tuple[int, object]:
        return 200, [
            {
                "name": name,
                "arch": "amd64",
                "cpus": sold.cpus,
                "memory_mib": sold.memory_mib,
                "zones": ZONES,
                "eur_per_hour": f"{self.prices.on_demand(name):.4f}",
            }
            for name, sold in self.types.items()
        ]

    def _image(self, call: RestCall) -> tuple[int, object]:
        if call.text("name") not in self.images:
            raise self.not_found(f"image {call.text('name')}")
        return 200, {"id": self.images[call.text("name")]}

    def _create(self, call: RestCall) -> tuple[int, object]:
        name = call.text("name")
        if any(each.tags["name"] == name for each in self.instances.living):
            raise CloudError("name_taken", f"server {name} exists", status=409)
        pool = InstancePool(
            capacity_type=ON_DEMAND, instance_type=call.text("type"), zone=call.text("zone")
        )
        server = self.launch("create", pool)
        server.image_id = call.text("image")
        parameters = cast("Mapping[str, Mapping[str, str]]", call.parameters)
        server.tags = {"name": name, **parameters["labels"]}
        server.labels = parameters.get("node_labels", {})
        taints = cast("Sequence[dict[str, str]]", parameters.get("node_taints", ()))
        server.taints = [NodeTaint(**taint) for taint in taints]
        return 201, self._described(server)

    def _list(self, call: RestCall) -> tuple[int, object]:
        key, _, value = call.text("label").partition("=")
        wanted = {key: value, **({"name": call.text("name")} if call.text("name") else {})}
        start, size = int(call.text("page_token", "0")), self.behaviour.instances_per_page
        # Positions among all servers there ever were: a deletion between two pages hides no server.
        found = [
            (position, each)
            for position, each in enumerate(self.instances.all)
            if position >= start
            and self.instances.is_visible(each)
            and wanted.items() <= each.tags.items()
        ]
        page = {"servers": [self._described(each) for _, each in found[:size]]}
        return 200, page | ({"next": str(found[size][0])} if found[size:] else {})

    def _get(self, call: RestCall) -> tuple[int, object]:
        return 200, self._described(self._find(call))

    def _delete(self, call: RestCall) -> tuple[int, object]:
        server = self._find(call)
        self.terminate(server.id)
        return 202, self._described(server)

    def _find(self, call: RestCall) -> RestInstance:
        found = self.instances.get(call.text("id"))
        if found is None or not self.instances.is_visible(found):
            raise self.not_found(f"server {call.text('id')}")
        return found

    def _described(self, server: RestInstance) -> Mapping[str, object]:
        state = STATES[self.instances.state_of(server)]
        labels = {key: value for key, value in server.tags.items() if key != "name"}
        error = {"error": server.failure.code} if state == "error" and server.failure else {}
        return {
            "id": server.id,
            "type": server.instance_type,
            "zone": server.zone,
            "image": server.image_id,
            "labels": labels,
            "state": state,
            "created": server.launched_at.isoformat(),
            **error,
        }


class SampleDemo(SimulatedCloudDemo[RestInstance]):
    """The cloud for `karpenter demo --provider sample`."""

    @property
    def currency(self) -> str:
        """Return the currency of the price list."""
        return "EUR"

    @property
    def lacks(self) -> Sequence[DemoFeature]:
        """Return what the cloud has not."""
        return [DemoFeature.SPOT]

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Return a NodeClass with the older image."""
        return {"image": "debian-old"}

    @property
    def newer_image(self) -> Mapping[str, object]:
        """Select the newest image."""
        return {"image": "debian"}


@contextmanager
def simulated_cloud() -> Generator[SampleDemo]:
    """Run the cloud for a demo."""
    with SimulatedSampleCloud() as cloud:
        yield SampleDemo(cloud)
