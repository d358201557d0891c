"""Virtual machines through the typed SDK and through plain requests."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.tokens import CLIENT_SECRET
from karpenter_simulated_azure.vm_bodies import vm_body

VERSION = "2024-07-01"


@dataclass
class Answer:
    """A plain answer."""

    status: int
    headers: Any
    body: dict

    @property
    def code(self):
        return self.body["error"]["code"]

    @property
    def message(self):
        return self.body["error"]["message"]


@dataclass
class Azure:
    """A caller of the simulated Azure."""

    cloud: SimulatedAzure

    @cached_property
    def compute(self):
        from azure.identity import ClientSecretCredential
        from azure.mgmt.compute import ComputeManagementClient

        cloud = self.cloud
        credential = ClientSecretCredential(
            cloud.world.tenant_id,
            cloud.world.client_id,
            CLIENT_SECRET,
            authority=cloud.endpoint_url,
            connection_verify=cloud.ca_bundle,
            disable_instance_discovery=True,
        )
        return ComputeManagementClient(
            credential,
            cloud.world.subscription_id,
            base_url=cloud.endpoint_url,
            connection_verify=cloud.ca_bundle,
            polling_interval=0.01,
            retry_total=0,
        )

    @property
    def machines(self):
        return self.compute.virtual_machines

    @property
    def group(self):
        return self.cloud.world.node_group

    def body(self, name="aks-a", *, image="2204gen2containerd", **fields):
        image_id = self.cloud.galleries.community_id(image)
        return vm_body(self.cloud.world, name, **{"image_id": image_id, **fields})

    def create(self, name="aks-a", **fields):
        """Create a virtual machine and wait for it."""
        return self.begin(name, **fields).result()

    def begin(self, name="aks-a", **fields):
        """Start to create a virtual machine."""
        return self.machines.begin_create_or_update(self.group, name, self.body(name, **fields))

    def path(self, name, kind="Microsoft.Compute/virtualMachines"):
        return f"{self.cloud.world.group_path()}/providers/{kind}/{name}"

    def interface_path(self, name):
        return self.path(name, "Microsoft.Network/networkInterfaces")

    def send(self, method, path, body=None, *, headers=None, version=VERSION, **query):
        """Send a plain request with the token of the SDK."""
        from azure.core.rest import HttpRequest

        request = HttpRequest(
            method,
            path,
            params={"api-version": version, **query},
            headers=headers or {},
            json=body,
        )
        reply = self.compute.send_request(request)
        return Answer(reply.status_code, reply.headers, reply.json() if reply.content else {})

    def put(self, name="aks-a", body=None, *, headers=None, **fields):
        """PUT a virtual machine without waiting for its operation."""
        return self.send("PUT", self.path(name), body or self.body(name, **fields), headers=headers)

    def poll(self, answer):
        """Return the body of the operation that an answer started."""
        url = answer.headers["Azure-AsyncOperation"]
        path, _, query = url.partition("?")
        version = query.removeprefix("api-version=")
        return self.send("GET", path, version=version).body

    def put_interface(self, name="nic", **properties):
        """Create a network interface of its own."""
        subnet = {"id": self.cloud.world.subnet_id}
        configuration = {"name": name, "properties": {"primary": True, "subnet": subnet}}
        body = {
            "location": self.cloud.world.location,
            "properties": {"ipConfigurations": [configuration], **properties},
        }
        assert self.send("PUT", self.interface_path(name), body).status == 201
        return self.interface_path(name)

    def changed(self, path, value, name="aks-a", **fields):
        """A body with another value at a path of members; None removes it."""
        body = deepcopy(self.body(name, **fields))
        *parents, member = path.split(".")
        inner = body
        for each in parents:
            inner = inner.setdefault(each, {})
        inner[member] = value
        if value is None:
            del inner[member]
        return body


@pytest.fixture(scope="session")
def azure_caller(cloud_server):
    return Azure(cloud_server)


@pytest.fixture
def azure(cloud, azure_caller):
    return azure_caller
