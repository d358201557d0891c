"""Checks objects of files, such as a snapshot, for `doctor --offline FILE`.

The findings are those of a live cluster, without what only an API server knows: definitions and
permissions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.doctor.objects import object_findings
from karpenter_core.cli.doctor.quotas import quota_findings
from karpenter_core.cli.doctor.workloads import trap_findings
from karpenter_core.cli.manifests import read_files
from karpenter_core.cli.snapshot_file.header import read_header
from karpenter_core.kube.resources import custom_kind
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS, NODE_OVERLAYS, NODE_POOLS
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["check_files"]


async def check_files(plugins: Plugins, files: Sequence[str]) -> list[tuple[str, Finding]]:
    """Return the findings of the cluster in the files, each with what it is about.

    Raises:
        BadInputError: a file or an object in it cannot be used.
    """
    paths = tuple(map(Path, files))
    manifests = read_files(paths)
    command_input = await ClusterSource(files=paths, offline=True).read_manifests(manifests)
    entries = manifests.entries
    controllers: list[JsonObject] = []
    if manifests.snapshot is not None:
        file = manifests.snapshot
        entries = (*file.entries, *entries)
        controllers = list(read_header(file.header, file.where).controllers)
    models = plugins.node_class_models().values()
    kinds = (NODE_POOLS, *(custom_kind(model.resource) for model in models), NODE_OVERLAYS)
    found: dict[ResourceKind, list[JsonObject]] = {
        kind: [
            entry.manifest
            for entry in entries
            if (entry.group, entry.kind) == (kind.group, kind.kind)
            and (manifests.snapshot is not None or entry.manifest.get("status"))
        ]
        for kind in (*kinds, CAPACITY_QUOTAS)
    }
    quotas = found.pop(CAPACITY_QUOTAS)
    results = [
        ("objects", finding)
        for finding in object_findings(found, models, static_capacity=command_input.static_capacity)
    ]
    results += [("objects", finding) for item in quotas for finding in quota_findings(item)]
    results += [("workloads", finding) for finding in _traps(command_input, controllers)]
    results += [
        ("files", Finding(severity=Severity.WARNING, message=note))
        for note in command_input.cluster.notes
        if note.startswith("left out: ")
    ]
    return results


def _traps(command_input: CommandInput, controllers: Sequence[JsonObject]) -> list[Finding]:
    snapshot = command_input.cluster.snapshot
    objects = (
        *snapshot.pods.values(),
        *snapshot.disruption_budgets.values(),
        *snapshot.node_pools.values(),
    )
    return trap_findings(objects, controllers)
