"""Virtual machines, interfaces and disks in memory, with the methods of `ArmClient`, and a clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_provider_azure.arm.client import ArmAnswer
from karpenter_provider_azure.arm.errors import ArmError, error_of_answer
from karpenter_provider_azure.instance_tags import instance_tags
from karpenter_provider_azure.instances.cluster_vms import cluster_vms
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.resource_ids import provider_id, vm_id
from providers.azure.tests.arm.values import GROUP, SUBSCRIPTION, settings_for

PREFIX = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
SIZE = "Standard_D4s_v5"
IMAGE = "/CommunityGalleries/aks/Images/2204gen2/Versions/1.0.0"


class Clock:
    def __init__(self):
        self.time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def now(self):
        return self.time

    def monotonic(self):
        return self.time.timestamp()

    def forward(self, **delta):
        self.time += timedelta(**delta)


class Fence:
    def __init__(self):
        self.error = None
        self.checks = 0

    def check(self):
        self.checks += 1
        if self.error is not None:
            raise self.error


def refusal(status, code, message="no"):
    return error_of_answer(status, {"error": {"code": code, "message": message}})


class FakeAzure:
    """Resources by id in lower case; `calls` are the method and last two segments of each path."""

    subscription_id = SUBSCRIPTION
    location = "westus2"

    def __init__(self):
        self.resources = {}
        self.unlisted = set()
        """Ids in lower case that listings lack."""
        self.errors = {}
        """By method and name in lower case."""
        self.policy_tags = {}
        """Tags that a policy of the subscription sets on whatever is written."""
        self.calls = []
        self.sent = []
        self._lock = threading.Lock()

    def get(self, path, *, api_version, action, query=None):
        self._note("GET", path, action)
        return self._found(path)

    def list_all(self, path, *, api_version, action, query=None):
        self._note("LIST", path, action)
        prefix = f"{path.lower()}/"
        return [
            item
            for key, item in sorted(self.resources.items())
            if key.startswith(prefix) and key not in self.unlisted
        ]

    def send(self, method, path, *, api_version, action, **more):
        self._note(method, path, action)
        self.sent.append((method, path, more))
        item = self._found(path)
        if method == "DELETE":
            if "/virtualmachines/" in path.lower():
                item["properties"]["provisioningState"] = "Deleting"
            else:
                del self.resources[path.lower()]
            return ArmAnswer(status=202, body={}, headers={})
        body = more["body"]
        if "tags" in body:
            item["tags"] = {**body["tags"], **self.policy_tags}
        if "identity" in body:
            kept = item.setdefault("identity", {}).setdefault("userAssignedIdentities", {})
            kept |= body["identity"]["userAssignedIdentities"]
            item["identity"]["type"] = body["identity"]["type"]
        return ArmAnswer(status=200, body=item, headers={})

    def delete(self, name):
        """As `VmCalls.delete`."""
        try:
            self.send(
                "DELETE",
                vm_id(SUBSCRIPTION, GROUP, name),
                api_version="",
                action="virtualMachines:delete",
                query={"forceDeletion": "true"},
            )
        except ArmError as error:
            if error.status != 404:
                raise

    def actions(self, *names):
        """Return the actions that were called; with names, those of them alone."""
        return [action for action, _ in self.calls if not names or action in names]

    def _note(self, method, path, action):
        name = path.rpartition("/")[2].lower()
        with self._lock:
            self.calls.append((action, name))
        error = self.errors.get((method, name))
        if error is not None:
            raise error

    def _found(self, path):
        item = self.resources.get(path.lower())
        if item is None:
            raise refusal(404, "ResourceNotFound")
        return item


class World:
    """The cloud, and the parts of one process that looks after it."""

    def __init__(self):
        self.azure, self.clock, self.fence = FakeAzure(), Clock(), Fence()
        self.settings = settings_for()
        self.nodes, self.claims = {}, {}
        self.restart()

    def restart(self):
        self.recent = RecentLaunches(self.clock)
        self.reader = VmReader(self.azure, self.settings)
        self.instances = cluster_vms(
            self.clock, reader=self.reader, recent=self.recent, delete=self.azure.delete
        )

    def add_vm(self, claim="web-1", *, uid=None, tags=None, pool="web", state="Succeeded", **more):
        """Add a virtual machine with its interface as a launch leaves it; return its provider ID."""
        name = f"aks-{claim}"
        path = vm_id(SUBSCRIPTION, GROUP, name)
        if tags is None:
            tags = instance_tags(
                {},
                additional_tags={},
                cluster="demo",
                claim_uid=f"uid-of-{claim}" if uid is None else uid,
                node_pool=pool,
            )
        interface = self.add_interface(name, tags, vm=path)
        self.azure.resources[path.lower()] = {
            "id": path,
            "name": name,
            "location": "westus2",
            "zones": ["1"],
            "tags": dict(tags),
            "properties": {
                "provisioningState": state,
                "timeCreated": self.clock.now().isoformat(),
                "hardwareProfile": {"vmSize": SIZE},
                "storageProfile": {"imageReference": {"communityGalleryImageId": IMAGE}},
                "networkProfile": {"networkInterfaces": [{"id": interface}]},
            },
            **more,
        }
        return provider_id(path)

    def vm(self, claim="web-1"):
        return self.azure.resources[vm_id(SUBSCRIPTION, GROUP, f"aks-{claim}").lower()]

    def remove(self, claim="web-1"):
        """Let a virtual machine and its interface be gone."""
        for kind in ("Microsoft.Compute/virtualMachines", "Microsoft.Network/networkInterfaces"):
            self.azure.resources.pop(f"{PREFIX}/{kind}/aks-{claim}".lower(), None)

    def add_interface(self, name, tags, *, vm=""):
        path = f"{PREFIX}/Microsoft.Network/networkInterfaces/{name}"
        properties = {"virtualMachine": {"id": vm}} if vm else {}
        self.azure.resources[path.lower()] = {
            "id": path,
            "tags": dict(tags),
            "properties": properties,
        }
        return path

    def add_disk(self, name, tags, *, managed_by="", state="Unattached"):
        path = f"{PREFIX}/Microsoft.Compute/disks/{name}"
        self.azure.resources[path.lower()] = {
            "id": path,
            "tags": dict(tags),
            "managedBy": managed_by,
            "properties": {"diskState": state},
        }
        return path

    def query(self, text):
        """Return the interfaces, as Resource Graph does."""
        assert GROUP.lower() in text
        return self.azure.list_all(
            f"{PREFIX}/Microsoft.Network/networkInterfaces", api_version="", action="graph"
        )
