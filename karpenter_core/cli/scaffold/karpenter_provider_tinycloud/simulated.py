"""Simulates tinycloud for tests; the client calls it over HTTP.

It stands on the simulator kit and adds the API of tinycloud. Delete this module, and use the cloud's
sandbox in `testing`, once the real cloud has one.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.capacity import SimulatedQuota
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_core.provider.kit.simulated.kubelets import NodeTaint
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.provider.kit.simulated.rest import RestCloud, RestInstanceType, RestRoute
from karpenter_core.provider.kit.simulated.tokens import ClientTokens, TokenErrors

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from karpenter_core.provider.kit.simulated.rest import RestCall, RestInstance
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_provider_tinycloud.client import Json

__all__ = ["SimulatedTinyCloud"]

TOKEN: Final = "secret"  # noqa: S105
ZONES: Final = ("north", "south")
SIZES: Final = {
    "small": RestInstanceType(cpus=2, memory_mib=8192, price_per_hour=0.08),
    "medium": RestInstanceType(cpus=4, memory_mib=16384, price_per_hour=0.16),
    "large": RestInstanceType(cpus=16, memory_mib=65536, price_per_hour=0.62),
    "medium-arm": RestInstanceType(cpus=4, memory_mib=16384, price_per_hour=0.13),
}
STATES: Final = {
    InstancePhase.PENDING: "booting",
    InstancePhase.RUNNING: "running",
    InstancePhase.FAILED: "failed",
    InstancePhase.TERMINATING: "stopping",
}


@final
class SimulatedTinyCloud(RestCloud):
    """Serves the API on 127.0.0.1; a context manager starts and stops it."""

    def __init__(self) -> None:
        super().__init__("tinycloud", SIZES)
        self.behaviour.terminating_seconds = 0.05
        self.images: Final = {"debian": "debian-v7"}
        self.sold_out_zones: Final = set[str]()
        """Zones where the list of sizes says that nothing is left."""
        self.unread_zones: Final = set[str]()
        """Zones whose VMs are missing in listings."""
        self.is_token_in_progress = False
        self._wishes: Final[dict[str, Json]] = {}
        """Arguments with which VMs were created, by VM id."""
        self._protected: Final = set[str]()
        errors = TokenErrors(
            mismatch=lambda: _conflict("token-mismatch", "the token belongs to another VM"),
            in_progress=lambda: _conflict("in-progress", "the VM is still being created"),
        )
        self._tokens: Final = ClientTokens[str](
            self.time, errors, is_repetition_refused=lambda: self.is_token_in_progress
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of the provider."""
        return {"TINYCLOUD_ENDPOINT": self.endpoint_url, "TINYCLOUD_TOKEN": TOKEN}

    # -- called by tests -------------------------------------------------------------------------

    @contextmanager
    def no_quota(self) -> Generator[None]:
        """Permit no VM inside the block."""
        error = _conflict("quota", "the account may have no more VMs")
        quota = SimulatedQuota(amount=0, covers=lambda _: True, error=error)
        self.capacity.set_quota("VMs", quota)
        try:
            yield
        finally:
            self.capacity.set_quota("VMs", None)

    @contextmanager
    def partial_listing(self) -> Generator[None]:
        """Leave VMs of a zone out of listings inside the block."""
        self.unread_zones.add("north")
        try:
            yield
        finally:
            self.unread_zones.clear()

    @contextmanager
    def token_in_progress(self) -> Generator[None]:
        """Lose the reply of a launch, and refuse its token, inside the block."""
        self.is_token_in_progress = True
        try:
            with self.lose_replies("create-vm"):
                yield
        finally:
            self.is_token_in_progress = False

    @contextmanager
    def protect(self, named: str) -> Generator[None]:
        """Refuse to delete a VM inside the block."""
        vm_id = self.instance(named).id
        self._protected.add(vm_id)
        try:
            yield
        finally:
            self._protected.discard(vm_id)

    def create_foreign_vm(self) -> str:
        """Create a VM of another cluster; return its provider ID."""
        wish = {"cluster": "another", "claim": "web-1", "token": "foreign", "spot": False}
        wish |= {"size": "small", "zone": "north", "image": "debian-v7"}
        return f"{self.name}://{self._create(wish)}"

    def change_image(self, named: str, image: str) -> None:
        """Let a VM have been created from another image."""
        self._wishes[self.instance(named).id]["image"] = image

    # -- requests --------------------------------------------------------------------------------

    def routes(self) -> Sequence[RestRoute]:
        """Return the calls."""
        vms, vm, notices = "/v1/vms", "/v1/vms/{id}", "/v1/notices"
        notice = "/v1/notices/{id}"
        return [
            RestRoute(action="sizes", method="GET", path="/v1/sizes", answer=self._sizes),
            RestRoute(action="image", method="GET", path="/v1/images/{name}", answer=self._image),
            RestRoute(action="create-vm", method="POST", path=vms, answer=self._create_vm),
            RestRoute(action="vms", method="GET", path=vms, answer=self._list),
            RestRoute(action="vm", method="GET", path=vm, answer=self._vm),
            RestRoute(action="tag-vm", method="PATCH", path=vm, answer=self._tag),
            RestRoute(action="delete-vm", method="DELETE", path=vm, answer=self._delete),
            RestRoute(action="notices", method="GET", path=notices, answer=self._notices),
            RestRoute(action="forget", method="DELETE", path=notice, answer=self._forget),
        ]

    def read(self, request: HttpRequest) -> RestCall:
        """Read a request with the right token."""
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise CloudError("forbidden", "the token does not permit this", status=403)
        return super().read(request)

    def _sizes(self, _call: RestCall) -> tuple[int, Json]:
        sizes = [
            {
                "name": name,
                "cpus": size.cpus,
                "memory_mib": size.memory_mib,
                "architecture": "arm64" if name.endswith("-arm") else "amd64",
                "price": size.price_per_hour,
                "spot_price": round(size.price_per_hour * 0.35, 4),
                "zones": list(ZONES),
                "sold_out_in": sorted(self.sold_out_zones),
            }
            for name, size in self.types.items()
        ]
        return 200, {"sizes": sizes}

    def _image(self, call: RestCall) -> tuple[int, Json]:
        version = self.images.get(call.text("name"))
        if version is None:
            raise self.not_found(f"image {call.text('name')}")
        return 200, {"version": version}

    def _create_vm(self, call: RestCall) -> tuple[int, Json]:
        wish: Json = dict(call.parameters)
        vm_id = self._tokens.once(call.text("token"), {}, lambda: self._create(wish))
        vm = self.instance(vm_id)
        if self.instances.phase_of(vm) is InstancePhase.GONE:
            raise _conflict("token-used", "the VM of this token is gone")
        return 200, self._described(vm)

    def _create(self, wish: Json) -> str:
        if wish["image"] not in self.images.values():
            raise CloudError("invalid", f"there is no image {wish['image']}", status=422)
        pool = InstancePool(
            capacity_type=SPOT if wish["spot"] else ON_DEMAND,
            instance_type=wish["size"],
            zone=wish["zone"],
        )
        vm = self.launch("create-vm", pool)
        user_data: Json = json.loads(wish.get("user_data", "{}"))
        vm.labels = user_data.get("labels", {})
        vm.taints = [NodeTaint(**taint) for taint in user_data.get("taints", ())]
        self._wishes[vm.id] = wish
        return vm.id

    def _list(self, call: RestCall) -> tuple[int, Json]:
        vms = [
            self._described(vm)
            for vm in self.instances.visible
            if self._is_of(vm.id, call) and vm.zone not in self.unread_zones
        ]
        return 200, {"vms": vms, "unread_zones": sorted(self.unread_zones)}

    def _vm(self, call: RestCall) -> tuple[int, Json]:
        return 200, self._described(self._existing(call))

    def _tag(self, call: RestCall) -> tuple[int, Json]:
        vm = self._existing(call)
        vm.tags.update(cast("Mapping[str, str]", call.parameters["tags"]))
        return 200, self._described(vm)

    def _delete(self, call: RestCall) -> tuple[int, Json]:
        vm = self._existing(call)
        if vm.id in self._protected:
            raise _conflict("protected", f"{vm.id} is protected")
        self.terminate(vm.id)
        return 200, {}

    def _notices(self, call: RestCall) -> tuple[int, Json]:
        notices = [
            {
                "id": each.instance_id,
                "kind": "reclaim",
                "vm": each.instance_id,
                "deadline": each.ends_at.timestamp(),
            }
            for each in self.announcements
            if self._is_of(each.instance_id, call)
        ]
        return 200, {"notices": notices}

    def _forget(self, call: RestCall) -> tuple[int, Json]:
        self.announcements[:] = [
            each for each in self.announcements if each.instance_id != call.text("id")
        ]
        return 200, {}

    def _is_of(self, vm_id: str, call: RestCall) -> bool:
        return self._wishes[vm_id]["cluster"] == call.text("cluster")

    def _existing(self, call: RestCall) -> RestInstance:
        found = self.instances.get(call.text("id"))
        if found is None or not self.instances.is_visible(found):
            raise self.not_found(f"VM {call.text('id')}")
        return found

    def _described(self, vm: RestInstance) -> Json:
        return {
            **self._wishes[vm.id],
            "id": vm.id,
            "state": STATES[self.instances.phase_of(vm)],
            "created": vm.launched_at.timestamp(),
            "tags": vm.tags,
        }


def _conflict(code: str, message: str) -> CloudError:
    return CloudError(code, message, status=409)
