"""A cluster's launches without a cloud: a fake of Azure Resource Manager and a small region."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import TRUE, Condition
from karpenter_core.api.labels import NODE_POOL, ON_DEMAND, SPOT
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec
from karpenter_core.errors import ThrottledError
from karpenter_core.provider.catalogue import InstanceType, Offering, Price
from karpenter_core.provider.contract import LaunchRequest, UnfencedProcess
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.shared_answer import SharedAnswer
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.arm.client import ArmAnswer
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError, error_of_answer
from karpenter_provider_azure.catalogue.capacity import capacity_of, overhead_of
from karpenter_provider_azure.catalogue.requirements import (
    offering_requirements,
    offering_zones,
    requirements_of,
)
from karpenter_provider_azure.catalogue.vm_sizes import VmSize
from karpenter_provider_azure.described_vms import read_vm
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.launch.boot_data import BootData
from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
from karpenter_provider_azure.launch.extensions import CustomScripts, ExtensionInstaller
from karpenter_provider_azure.launch.failed_launches import ExistingVms, FailedLaunches
from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
from karpenter_provider_azure.launch.node_network import NodeNetwork
from karpenter_provider_azure.launch.vm_calls import VmCalls, open_operations
from karpenter_provider_azure.launch.vm_launcher import VmLauncher
from karpenter_provider_azure.network.cluster_network import ManagedSecurityGroup
from karpenter_provider_azure.settings import AzureSettings
from providers.azure.tests.catalogue.sku_items import plain_vm_size

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOCATION = "westus2"
GROUP = "MC_Foo"
NETWORK = f"/subscriptions/sub/resourceGroups/{GROUP}/providers/Microsoft.Network"
MANAGED_SUBNET = f"{NETWORK}/virtualNetworks/aks-vnet-12345678/subnets/aks-subnet"
OWN_SUBNET = "/subscriptions/sub/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/own/subnets/nodes"
IMAGE = "/CommunityGalleries/AKSUbuntu/images/2204gen2containerd/versions/1"
POOLS = (f"{NETWORK}/loadBalancers/kubernetes/backendAddressPools/kubernetes",)


class SetClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        return NOW + self.passed

    def monotonic(self) -> float:
        return 1000.0 + self.passed.total_seconds()

    def forward(self, **amount: float) -> None:
        self.passed += timedelta(**amount)


def settings(**changes: Any) -> AzureSettings:
    fields: dict[str, Any] = {
        "cluster_name": "tidal",
        "cluster_endpoint": "https://tidal.example.com",
        "kubelet_bootstrap_token": "abcdef.secret",
        "ssh_public_key": "ssh-rsa AAAA",
        "vnet_subnet_id": MANAGED_SUBNET,
        "node_resource_group": GROUP,
        "azure_subscription_id": "sub",
        "location": LOCATION,
        **changes,
    }
    return AzureSettings(**fields)


def vm_size(name: str, *, cpus: int, family: str, **fields: Any) -> VmSize:
    fields = {
        "memory_gib": 4.0 * cpus,
        "zones": ("1", "2", "3"),
        "accelerated_networking": True,
        **fields,
    }
    return plain_vm_size(name, family=family, cpus=cpus, **fields)


def family_sizes(*cpus: int, family: str = "standardDSv5Family") -> list[VmSize]:
    return [vm_size(f"Standard_D{count}s_v5", cpus=count, family=family) for count in cpus]


def instance_type(size: VmSize, prices: Any = None) -> InstanceType:
    """Return a type; `prices` maps (zone, capacity type) to a price, or is one for each vCPU."""

    def price(zone: str, capacity_type: str) -> float:
        if isinstance(prices, dict):
            return prices[zone, capacity_type]
        return size.cpus * (0.05 if capacity_type == ON_DEMAND else 0.02)

    requirements = requirements_of(size, LOCATION, cluster="mc_foo", os_sku="Ubuntu", fips=False)
    return InstanceType(
        name=size.name,
        requirements=requirements,
        offerings=tuple(
            Offering(
                requirements=offering_requirements(
                    capacity_type,
                    zone,
                    has_ultra_ssd=zone.removeprefix("westus2-") in size.ultra_ssd_zones,
                ),
                price=Price(price(zone, capacity_type)),
            )
            for zone in offering_zones(size, LOCATION)
            for capacity_type in (ON_DEMAND, SPOT)
        ),
        capacity=capacity_of(size, pods=110, memory_bytes=size.cpus * 2**32, os_disk_size_gb=128),
        overhead=overhead_of(size),
    )


def node_class(*, ready: str = TRUE, reason: str = "Ready", **spec: Any) -> AKSNodeClass:
    status = {
        "images": [{"id": IMAGE, "requirements": []}],
        "kubernetesVersion": "1.33.0",
    }
    made = AKSNodeClass.model_validate(
        {"metadata": {"name": "general"}, "spec": spec, "status": status}
    )
    condition = Condition(type="Ready", status=ready, reason=reason, message="text")
    return made.model_copy(
        update={"status": made.status.model_copy(update={"conditions": (condition,)})}
    )


def claim(name: str = "web-1", *, requirements: Any = (), pool: str = "web") -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-of-{name}",
            labels={NODE_POOL: pool} if pool else {},
            creation_timestamp=NOW,
        ),
        spec=NodeClaimSpec(
            node_class_ref={
                "group": "karpenter.azure.com",
                "kind": "AKSNodeClass",
                "name": "general",
            },
            requirements=requirements,
        ),
    )


def refusal(code: str, message: str = "", *, status: int = 409, **more: Any) -> ArmError:
    return error_of_answer(status, {"error": {"code": code, "message": message, **more}})


class FakeArm:
    """Virtual machines of one resource group, and what Azure refuses."""

    subscription_id = "sub"
    location = LOCATION

    def __init__(self) -> None:
        self.vms: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refuse: Any = lambda _body: None
        """Returns the error with which a new virtual machine is refused; None for none."""
        self.refuse_first: Any = lambda _body: None
        """The same, before the name is compared with those that exist."""
        self.loses_answers = 0
        """Number of requests that are carried out, and whose answer is lost."""
        self.throttles: list[ThrottledError] = []
        self.operations: dict[str, dict[str, Any]] = {}
        self.views: dict[str, list[dict[str, str]]] = {}
        self.extensions: list[tuple[str, str, dict[str, Any]]] = []
        self._numbers = itertools.count(1)

    @property
    def counts(self) -> Counter[str]:
        return Counter(action for action, _ in self.calls)

    def get(self, path: str, *, api_version: str, action: str, query: Any = None) -> Any:
        assert api_version
        name = path.rpartition("/")[2]
        self.calls.append((action, name))
        if name not in self.vms:
            raise ArmNotFoundError("not found", code="ResourceNotFound", status=404)
        body = self.vms[name]
        if query == {"$expand": "instanceView"}:
            view = {"statuses": self.views.get(name, [])}
            return {**body, "properties": {**body["properties"], "instanceView": view}}
        return body

    def follow(self, url: str, *, action: str) -> ArmAnswer:
        self.calls.append((action, url))
        if url not in self.operations:
            raise ArmNotFoundError("not found", code="NotFound", status=404)
        return ArmAnswer(status=200, body=self.operations[url], headers={})

    def send(
        self,
        method: str,
        path: str,
        *,
        api_version: str,
        action: str,
        body: Any = None,
        query: Any = None,
        headers: Any = None,
    ) -> ArmAnswer:
        assert api_version
        if "/extensions/" in path:
            vm, _, name = path.partition("/extensions/")
            self.calls.append((action, name))
            self.extensions.append((vm.rpartition("/")[2], name, body))
            return ArmAnswer(status=201, body={}, headers={})
        name = path.rpartition("/")[2]
        self.calls.append((action, name))
        if self.throttles:
            raise self.throttles.pop(0)
        if method == "DELETE":
            assert query == {"forceDeletion": "true"}
            if name not in self.vms:
                return ArmAnswer(status=204, body={}, headers={})
            self.vms[name]["properties"]["provisioningState"] = "Deleting"
            return ArmAnswer(status=202, body={}, headers={})
        return self._create(name, path, body, dict(headers or {}))

    def _create(self, name: str, path: str, body: Any, headers: dict[str, str]) -> ArmAnswer:
        self.bodies.append(body)
        self.headers.append(headers)
        if (error := self.refuse_first(body)) is not None:
            raise error
        if name in self.vms:
            assert headers["If-None-Match"] == "*"
            raise ArmError("it exists", code="PreconditionFailed", status=412)
        if (error := self.refuse(body)) is not None:
            raise error
        number = next(self._numbers)
        self.vms[name] = {
            "id": path,
            "name": name,
            **body,
            "properties": {
                **body["properties"],
                "provisioningState": "Creating",
                "vmId": f"guid-{number}",
                "timeCreated": NOW.isoformat(),
            },
        }
        url = f"https://management.azure.com/operations/{number}"
        self.operations[url] = {"status": "InProgress"}
        if self.loses_answers:
            self.loses_answers -= 1
            raise UncertainCallError("no answer")
        return ArmAnswer(status=201, body=self.vms[name], headers={"azure-asyncoperation": url})

    def fail(self, name: str, code: str, message: str = "", *, forgotten: bool = False) -> None:
        """Let the launch of a virtual machine fail; `forgotten`: its operation tells nothing."""
        self.vms[name]["properties"]["provisioningState"] = "Failed"
        error = {"code": code, "message": message}
        self.operations = (
            {}
            if forgotten
            else {key: {"status": "Failed", "error": error} for key in self.operations}
        )
        self.views[name] = [
            {"code": "PowerState/stopped"},
            {"code": f"ProvisioningState/failed/{code}", "message": message},
        ]

    def succeed(self) -> None:
        """Let all launches succeed."""
        for vm in self.vms.values():
            vm["properties"]["provisioningState"] = "Succeeded"
        self.operations = {key: {"status": "Succeeded"} for key in self.operations}


class Quotas:
    """Reservations of vCPUs."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}

    def reserve(self, key: str, size: VmSize, capacity_type: str) -> str:
        self.open[key] = f"{size.name} {capacity_type}"
        return ""

    def note_launched(self, key: str) -> None:
        self.open[key] += " launched"

    def release(self, key: str) -> None:
        self.open.pop(key, None)


class Observer:
    """Requests and failures that were counted."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def note_requested(self, attempt: Any) -> None:
        assert attempt.image
        self.requested.append(attempt.zone)

    def note_failed(self, attempt: Any, *, phase: str, code: str) -> None:
        self.failed.append((phase, code))


class SecurityGroups:
    """The managed security group."""

    def current(self) -> ManagedSecurityGroup:
        return ManagedSecurityGroup(id="nsg-id", name="nsg", cluster_id="12345678")


class Boot:
    """Boot data of nodes."""

    def __init__(self, script: str = "") -> None:
        self.script = script
        self.targets: list[Any] = []

    def boot_data(self, target: Any) -> BootData:
        self.targets.append(target)
        return BootData(custom_data="Ym9vdA==", custom_script=self.script)


class LaunchWorld:
    """Everything that launches are made of."""

    def __init__(
        self, *sizes: VmSize, arm: FakeArm | None = None, script: str = "", **changes: Any
    ) -> None:
        self.clock = SetClock()
        self.arm = arm or FakeArm()
        self.sizes = {size.name: size for size in sizes or family_sizes(2, 4)}
        self.types = [instance_type(size) for size in self.sizes.values()]
        self.settings = settings(**changes)
        self.unavailable = UnavailableOfferings()
        self.closed: set[tuple[str, str, str]] = set()
        self.quotas: Any = Quotas()
        self.observer = Observer()
        self.boot = Boot(script)
        self.pool_reads = 0
        self.pools = POOLS
        self.claims: dict[str, NodeClaim] = {}
        self.node_class = node_class()
        self.on_sleep: Callable[[], None] = lambda: None
        self.start()

    def start(self) -> None:
        """Begin a process, which remembers nothing."""
        calls = VmCalls(
            self.arm,
            self.settings,
            UnfencedProcess(),
            image_headers=dict,
            note_deleted=lambda: None,
        )
        self.operations = open_operations(self.clock)
        self.failures = FailureRecorder(
            self.clock,
            location=LOCATION,
            sizes=lambda: self.sizes,
            unavailable_offerings=self.unavailable,
            metrics=self.observer,
        )
        catalogue = LaunchCatalogue(
            sizes=lambda: self.sizes,
            is_open=self.is_open,
            instance_types=lambda _node_class: self.types,
            quotas=self.quotas,
        )
        self.scripts = CustomScripts(
            self.clock,
            boot=self.boot,
            catalogue=catalogue,
            node_class_of=lambda _claim: self.node_class,
        )
        self.recent = RecentLaunches(self.clock)
        self.launcher = VmLauncher(
            self.settings,
            self.clock,
            calls=calls,
            catalogue=catalogue,
            network=NodeNetwork(
                self.settings,
                pools=SharedAnswer(self.clock, timedelta(hours=2), self.read_pools),
                security_groups=SecurityGroups(),
            ),
            boot=self.boot,
            failures=self.failures,
            existing=ExistingVms(
                calls,
                VmReader(self.arm, self.settings),
                cluster="tidal",
                failures=self.failures,
                operations=self.operations,
            ),
            operations=self.operations,
            scripts=self.scripts,
            recent=self.recent,
            sleep=self.sleep,
        )
        self.failed = FailedLaunches(
            self.clock,
            calls=calls,
            list_vms=self.list_vms,
            read_claims=lambda: self.claims,
            failures=self.failures,
            operations=self.operations,
        )
        self.installer = ExtensionInstaller(
            self.settings,
            self.clock,
            calls=calls,
            list_vms=self.list_vms,
            read_claims=lambda: self.claims,
            scripts=self.scripts if self.boot.script else None,
        )

    def sleep(self, seconds: float) -> None:
        self.clock.forward(seconds=seconds)
        self.on_sleep()

    def list_vms(self) -> list[Any]:
        self.arm.calls.append(("virtualMachines:list", ""))
        return [read_vm(body) for body in self.arm.vms.values()]

    def read_pools(self) -> tuple[str, ...]:
        self.pool_reads += 1
        return self.pools

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        return self.is_available(it.name, offering.zone, offering.capacity_type)

    def is_available(self, name: str, zone: str, capacity_type: str) -> bool:
        """Whether an offering is available by the marks of failed launches."""
        size = self.sizes[name]
        return (name, zone, capacity_type) not in self.closed and not self.unavailable.view(
            now=self.clock.now()
        ).is_unavailable(
            UnavailableOffering(name, zone, capacity_type),
            group=size.quota_group,
            cpu_milli=size.cpus * 1000,
        )

    def open_zones(self, name: str, capacity_type: str) -> set[str]:
        """Return the zones in which a size is available; `0` for the regional one."""
        return {
            zone.removeprefix(f"{LOCATION}-")
            for zone in offering_zones(self.sizes[name], LOCATION)
            if self.is_available(name, zone, capacity_type)
        }

    def request(self, name: str = "web-1", **changes: Any) -> LaunchRequest:
        own = changes.pop("node_class", self.node_class)
        names = changes.pop("types", self.sizes)
        return LaunchRequest(
            node_claim=claim(name, **changes),
            node_class=own,
            instance_types=tuple(it for it in self.types if it.name in names),
        )

    def launch(self, name: str = "web-1", **changes: Any) -> Any:
        return self.launcher.launch(self.request(name, **changes))

    def vm(self, name: str = "web-1") -> dict[str, Any]:
        return self.arm.vms[f"aks-{name}"]
