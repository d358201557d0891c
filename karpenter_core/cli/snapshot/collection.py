"""Collects the contents of a snapshot from a live cluster, or from files.

Instance types are listed with the NodeClasses as they are; only then is anything left out.
"""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.cli.doctor.workloads import CONTROLLER_KINDS, conflicting_images
from karpenter_core.cli.snapshot.redaction import redacted
from karpenter_core.cli.snapshot_file.catalogue_document import instance_types_to_json
from karpenter_core.cli.snapshot_file.header import (
    ClassCatalogue,
    SnapshotHeader,
    labels_to_json,
    settings_to_json,
)
from karpenter_core.errors import ApiError, BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.cli.catalogues import CatalogueSource
    from karpenter_core.cli.cluster_source import ClusterSource
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.events import StateObject

__all__ = ["CollectedCluster", "collect"]

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectedCluster:
    """The contents of a snapshot: its header, and its objects, without secrets."""

    header: SnapshotHeader
    items: list[JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Listing:
    """Objects as manifests and as the controller reads them, in the same order."""

    manifests: list[JsonObject]
    objects: list[StateObject]
    notes: tuple[str, ...]
    taken_at: datetime
    controllers: tuple[dict[str, object], ...] = ()


async def collect(source: ClusterSource) -> CollectedCluster:
    """Read the cluster that the options name.

    Raises:
        BadInputError: a file or an object in it cannot be used, or is a snapshot.
        SettingsError: options that exclude each other, or no cluster is found.
        ApiError: the cluster does not answer, or refuses.
    """
    from karpenter_core.cli.catalogues import CatalogueSource, max_instance_types, open_providers

    plugins, settings = source.plugins_and_settings()
    settings = source.adjusted(settings)
    opening = open_providers(
        plugins, settings=settings, instance_types_file=source.instance_types_file
    )
    async with opening as providers:
        if source.offline:
            settings, listing = _read_files(source, settings, providers)
        else:
            listing = await _list_live(source, settings, providers)
        catalogue_source = CatalogueSource(
            providers, with_file=source.instance_types_file is not None
        )
        classes, catalogues = await _catalogues(listing.objects, catalogue_source)
        kept, left_out = _redacted(listing.manifests, providers)
        header = SnapshotHeader(
            taken_at=listing.taken_at,
            program=importlib.metadata.version("karpenter-core"),
            settings=settings_to_json(settings),
            labels=labels_to_json(providers.label_classes()),
            max_instance_types=max_instance_types(providers),
            classes=classes,
            catalogues=catalogues,
            controllers=listing.controllers,
            notes=(*listing.notes, *left_out),
        )
    return CollectedCluster(header=header, items=kept)


# -- objects ---------------------------------------------------------------------------------------


async def _list_live(source: ClusterSource, settings: Settings, providers: Providers) -> _Listing:
    """List every kind that the controller reads with these settings."""
    from karpenter_core.cli.cluster_listing import connected, list_kinds
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.operator.kind_groups import kind_groups

    if source.files:
        raise BadInputError(
            "a snapshot of a cluster reads no FILE: add --offline to read it instead, or --output to write it"
        )
    clock = SystemClock()
    models = providers.node_class_models()
    codecs = Codecs(models.values(), groups=kind_groups(settings))
    manifests: list[JsonObject] = []
    objects: list[StateObject] = []
    notes: list[str] = []
    groups = frozenset(group for group, _ in models)
    async with connected(settings, clock, node_class_groups=groups) as apis:
        kinds = list_kinds(apis, codecs.kinds, _page, notes, absence="the snapshot has none")
        async for kind, pages in kinds:
            items = [item for page in pages for item in page]
            _decode(items, kind, codecs, manifests=manifests, objects=objects, notes=notes)
        controllers = await _controllers(apis, manifests, notes)
    return _Listing(
        manifests=manifests,
        objects=objects,
        notes=tuple(notes),
        taken_at=clock.now(),
        controllers=controllers,
    )


def _page(kind: ResourceKind, body: bytes) -> list[JsonObject]:
    """Return the objects of a page as manifests: those of a list do not say their kind."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [{**item, **head} for item in json.loads(body)["items"] or ()]


def _decode(
    items: Sequence[JsonObject],
    kind: ResourceKind,
    codecs: Codecs,
    *,
    manifests: list[JsonObject],
    objects: list[StateObject],
    notes: list[str],
) -> None:
    codec = codecs.for_kind(kind)
    for item in items:
        try:
            objects.append(codec.decode(json.dumps(item).encode()))
        except BadInputError as error:
            notes.append(f"left out: {error}")
            continue
        manifests.append(item)


async def _controllers(
    apis: ClusterApis, manifests: Sequence[JsonObject], notes: list[str]
) -> tuple[dict[str, object], ...]:
    """Return the workloads of other controllers that act on nodes, with the fields that tell so."""
    from karpenter_core.cli.cluster_listing import read_pages

    found: list[dict[str, object]] = []
    for kind in CONTROLLER_KINDS:
        listed = [each for each in manifests if each["kind"] == kind.kind]
        if not listed:
            try:
                listed = [item for page in await read_pages(apis, kind, _page) for item in page]
            except ApiError as error:
                if error.status not in {_FORBIDDEN, _NOT_FOUND}:
                    raise
                notes.append(f"{error}; no controllers are looked for there")
        found += [_controller(each) for each in listed if conflicting_images(each)]
    return tuple(found)


def _controller(item: JsonObject) -> dict[str, object]:
    metadata: JsonObject = item["metadata"]
    images = [{"image": image} for image in conflicting_images(item)]
    spec: JsonObject = {"template": {"spec": {"containers": images}}}
    if "replicas" in item.get("spec", {}):
        spec["replicas"] = item["spec"]["replicas"]
    head = {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
    return {"metadata": head, "spec": spec}


def _read_files(
    source: ClusterSource, settings: Settings, providers: Providers
) -> tuple[Settings, _Listing]:
    """Read files as every offline command does, with default settings."""
    from karpenter_core.cli.manifests import read_files
    from karpenter_core.cli.object_reader import ObjectDecoder, groups_in_use, latest_creation
    from karpenter_core.kube.objects import complete_manifest
    from karpenter_core.kube.wire.kind_groups import KindGroup
    from karpenter_core.operator.kind_groups import kind_groups

    manifests = read_files(source.files)
    if manifests.snapshot is not None:
        raise BadInputError(
            f"{manifests.snapshot.where}: is a snapshot already; copy the file, or give it to other commands"
        )
    used = groups_in_use(manifests.entries)
    gates = replace(
        settings.feature_gates,
        static_capacity=True,
        node_overlay=True,
        capacity_buffer=KindGroup.BUFFERS in used,
    )
    settings = replace(
        settings,
        feature_gates=gates,
        capacity_quotas=True,
        provisioning_requests=KindGroup.REQUESTS in used,
        vpa_predictions=KindGroup.AUTOSCALERS in used,
        ignore_dra_requests=KindGroup.DEVICES not in used,
    )
    reader = ObjectDecoder(
        providers.node_class_models(),
        providers.label_classes(),
        groups=kind_groups(settings),
    )
    pairs = reader.read_completed(manifests.entries)
    return settings, _Listing(
        manifests=[
            _manifest_of(placed.found) or complete_manifest(entry.manifest, reader.codecs)
            for entry, placed in pairs
        ],
        objects=[placed.found for _, placed in pairs],
        notes=(*manifests.notes, *reader.notes()),
        taken_at=latest_creation(manifests.entries),
    )


def _manifest_of(found: StateObject) -> JsonObject | None:
    """Return the manifest of an object of our kinds, whose fields are complete; None of others."""
    from karpenter_core.api.base import KubernetesObject

    if not isinstance(found, KubernetesObject):
        return None
    fields = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    head = {"apiVersion": found.resource.api_version, "kind": found.resource.kind}
    return cast("JsonObject", {**fields, **head})


def _redacted(
    manifests: Sequence[JsonObject], providers: Providers
) -> tuple[list[JsonObject], list[str]]:
    """Return the objects without secrets, and notes about those that cannot be reduced."""
    models = providers.node_class_models()
    kept: list[JsonObject] = []
    notes: list[str] = []
    for manifest in manifests:
        group = str(manifest["apiVersion"]).rpartition("/")[0]
        kind = str(manifest["kind"])
        try:
            kept.append(
                redacted(manifest, group=group, kind=kind, is_node_class=(group, kind) in models)
            )
        except BadInputError as error:
            notes.append(f"left out: {kind}: {error}")
    return kept, notes


# -- catalogues ------------------------------------------------------------------------------------


async def _catalogues(
    objects: Sequence[StateObject], source: CatalogueSource
) -> tuple[tuple[ClassCatalogue, ...], dict[str, list[object]]]:
    """List the instance types of each NodeClass that a NodePool refers to; equal lists once."""
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool

    pools = [each for each in objects if isinstance(each, NodePool)]
    classes: list[NodeClass] = [each for each in objects if isinstance(each, NodeClass)]
    found, problems = await source.catalogues(
        [("the cluster", pool) for pool in pools], classes, is_lenient=True
    )
    owners = source.owners(pools)
    by_key: dict[tuple[str, str, str], ClassCatalogue] = {}
    for pool in pools:
        ref = pool.spec.template.spec.node_class_ref
        by_key[ref.group, ref.kind, ref.name] = ClassCatalogue(
            group=ref.group,
            kind=ref.kind,
            name=ref.name,
            catalogue=found[pool.name].version if pool.name in found else "",
            problem=problems.get(pool.name, ""),
            provider=owners.get((ref.group, ref.kind), ""),
        )
    written: Mapping[str, list[object]] = {
        each.version: instance_types_to_json(each.instance_types) for each in found.values()
    }
    return tuple(by_key[key] for key in sorted(by_key)), dict(written)
