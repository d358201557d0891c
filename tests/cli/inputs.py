"""Objects and catalogues as users of the planning commands write them."""

from __future__ import annotations

import json

import typer
import yaml

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_provider_kwok.api import KWOKNodeClass

NODE_CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def offering(price, *, zone="z1", capacity_type="on-demand", **fields):
    return {
        "Price": price,
        "Available": True,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ],
        **fields,
    }


def instance_type(name, cpu, memory, *offerings, arch="amd64", **resources):
    return {
        "name": name,
        "offerings": list(offerings),
        "architecture": arch,
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": cpu, "memory": memory, "ephemeral-storage": "20Gi", "pods": "110", **resources,
        },
    }  # fmt: skip


TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10)),
    instance_type("medium", "4", "8Gi", offering(0.18)),
    instance_type("large", "16", "32Gi", offering(1.00)),
]


def pool(name="general", *, labels=None, template=None, **spec):
    metadata = {"metadata": {"labels": labels}} if labels else {}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                **metadata,
                "spec": {"nodeClassRef": NODE_CLASS_REF, "requirements": [], **(template or {})},
            },
            **spec,
        },
    }


POOL = pool()


def pod(name, cpu="500m", memory="512Mi", *, limits=False, metadata=None, **spec):
    amounts = {"limits" if limits else "requests": {"cpu": cpu, "memory": memory}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", **(metadata or {})},
        "spec": {"containers": [{"name": "app", "image": "app", "resources": amounts}], **spec},
    }


def node(name, *, cpu="1", provider_id=None, labels=None, **spec):
    amounts = {"cpu": cpu, "memory": "2Gi", "pods": "10"}
    provider_id = f"test://{name}" if provider_id is None else provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {**({"providerID": provider_id} if provider_id else {}), **spec},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def write(path, *documents):
    """Write YAML documents, or a whole cluster by keys into a JSON file."""
    if path.suffix == ".json":
        (document,) = documents
        path.write_text(json.dumps(document))
    else:
        path.write_text(yaml.safe_dump_all(documents))
    return path


def paid_commitment():
    """Return the option for one node of the type `large` that is paid for already."""
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}
    row = {
        "name": "paid",
        "requirements": [requirement],
        "resource": "nodes",
        "amount": 1,
        "price": 0,
    }
    return f"--commitments={json.dumps([row])}"


def option_names(command):
    """Return the options that a command takes, as users write them."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {
        option
        for parameter in typer.main.get_command(app).params
        for option in parameter.opts
        if option.startswith("-")
    }


async def read_harness(harness, folder):
    """Read the cluster of a harness as an offline command reads its file."""
    codecs = Codecs([KWOKNodeClass])
    items = [
        {**item, "apiVersion": kind.api_version, "kind": kind.kind}
        for kind in codecs.kinds
        for item in harness.cluster.list(kind)
    ]
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return await ClusterSource(files=(file,), offline=True).read()
