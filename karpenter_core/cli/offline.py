"""From files to a scheduling problem, by the same code that serves a live cluster.

Objects are judged by their CRDs, decoded as the watch would, folded into the state; catalogues
come from the providers. Nothing of a cluster is needed, and nothing is written anywhere.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from karpenter_core.cli.manifests import DAEMON_SET_PODS, Entry, read_entries
from karpenter_core.errors import BadInputError, FencedError, KarpenterError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClassRef
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.api.schema import SchemaValidator
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.provider.contract import LabelClasses, ProviderContext
    from karpenter_core.provider.facade import Providers
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.events import Object
    from karpenter_core.state.problem import ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["OfflineCluster", "read_cluster"]

INSTANCE_TYPES_FILE: Final = "--instance-types-file"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_CORE_GROUP: Final = "karpenter.sh"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfflineCluster:
    """A cluster read from files: what is to be solved, and what was left aside."""

    input: ProvisioningInput
    snapshot: Snapshot
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Objects of kinds that scheduling does not read, and how many."""


async def read_cluster(
    paths: Sequence[Path], *, instance_types_file: Path | None = None
) -> OfflineCluster:
    """Read files, ask providers for catalogues, and state the problem.

    Raises:
        BadInputError: a file, object or reference cannot be used.
        SettingsError: no provider reads an instance types file.
    """
    from karpenter_core.provider.manager import load_plugins

    entries = read_entries(paths)
    plugins = load_plugins()
    with tempfile.TemporaryDirectory(prefix="karpenter-plan-") as folder:
        providers = _providers(plugins)
        await providers.start(
            lambda name: _context(providers, name, Path(folder), instance_types_file)
        )
        try:
            return await _build(entries, providers, instance_types_file)
        finally:
            await providers.stop()


async def _build(
    entries: Sequence[Entry], providers: Providers, instance_types_file: Path | None
) -> OfflineCluster:
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import CataloguePublished, Observed, Synced
    from karpenter_core.state.pod_volumes import VolumesUnsupported
    from karpenter_core.state.problem import scheduling_problem

    reader = _ObjectReader(providers.node_class_models())
    objects = [(entry, found) for entry in entries if (found := reader.read(entry)) is not None]
    seller = _Seller(providers, objects, instance_types_file)
    catalogues = await seller.catalogues()
    builder = StateBuilder({**_owners(providers), **seller.adopted})
    for _, found in objects:
        builder.fold(Observed(found))
    for pool, catalogue in sorted(catalogues.items()):
        builder.fold(CataloguePublished(pool, catalogue))
    builder.fold(Synced())
    snapshot = builder.snapshot()
    labels: LabelClasses = providers.label_classes()
    return OfflineCluster(
        input=scheduling_problem(
            snapshot,
            now=_latest(entries),
            well_known=labels.well_known,
            aliases=_aliases(labels),
            unsupported_volumes=VolumesUnsupported(
                topology_keys=labels.unsupported_topology_keys,
                provisioners=labels.unsupported_provisioners,
            ),
        ),
        snapshot=snapshot,
        skipped=reader.skipped,
    )


def _aliases(labels: LabelClasses) -> Mapping[str, str]:
    from karpenter_core.api.labels import ALIASES

    return {**ALIASES, **labels.aliases}


def _owners(providers: Providers) -> dict[tuple[str, str], str]:
    return {
        (model.resource.group, model.resource.kind): name
        for name, info in providers.infos().items()
        for model in info.node_classes
    }


def _latest(entries: Iterable[Entry]) -> datetime:
    """Return when the newest object was made: the "now" of files, the same on every run."""
    stamps: list[datetime] = []
    for entry in entries:
        metadata: dict[str, Any] = entry.manifest.get("metadata") or {}
        stamp: Any = metadata.get("creationTimestamp")
        if isinstance(stamp, str):
            try:
                stamp = datetime.fromisoformat(stamp)
            except ValueError:
                continue
        if isinstance(stamp, datetime):
            stamps.append(stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC))
    return max(stamps, default=datetime.fromtimestamp(0, tz=UTC))


# -- objects ---------------------------------------------------------------------------------------


@final
class _ObjectReader:
    """Judges and decodes objects, and refuses two of one name."""

    def __init__(self, models: Mapping[tuple[str, str], type[NodeClass]]) -> None:
        from karpenter_core.api.crd import core_models
        from karpenter_core.kube.wire.codecs import Codecs

        self._codecs: Final[Codecs] = Codecs(models.values())
        self._models: Final = {
            (model.resource.group, model.resource.kind): model
            for model in (*core_models(), *models.values())
        }
        self._validators: Final = dict[tuple[str, str], "SchemaValidator"]()
        self._seen: Final = dict[tuple[str, str, str, str], str]()
        self.skipped: Final = dict[str, int]()

    def read(self, entry: Entry) -> Object | None:
        """Return the object as the state knows it; None for a kind that scheduling ignores."""
        from karpenter_core.kube.objects import view_from_manifest

        group = str(entry.manifest["apiVersion"]).rpartition("/")[0]
        kind = str(entry.manifest["kind"])
        if self._codecs.find(group, kind) is None:
            if group == _CORE_GROUP:
                raise BadInputError(
                    f'{entry.where}: field "kind": unknown kind "{kind}" of {group}'
                )
            self.skipped[kind] = self.skipped.get(kind, 0) + 1
            return None
        self._refuse_twins(entry, group, kind)
        try:
            manifest = self._judged(entry, group, kind)
            if entry.key == DAEMON_SET_PODS:
                return _daemon_set(manifest, self._codecs)
            return view_from_manifest(_as_served(manifest), self._codecs)
        except BadInputError as error:
            raise BadInputError(f"{entry.where}: {error}") from error

    def _refuse_twins(self, entry: Entry, group: str, kind: str) -> None:
        metadata: dict[str, Any] = entry.manifest.get("metadata") or {}
        name = str(metadata.get("name") or "")
        if not name:
            raise BadInputError(f'{entry.where}: {kind}: field "metadata.name": missing')
        role = entry.key if entry.key == DAEMON_SET_PODS else kind
        identity = (group, role, str(metadata.get("namespace") or ""), name)
        other = self._seen.setdefault(identity, entry.where)
        if other != entry.where:
            raise BadInputError(f"{entry.where}: {entry.title}: is already in {other}")

    def _judged(self, entry: Entry, group: str, kind: str) -> dict[str, Any]:
        """Default and judge an object of our own kinds as the API server would."""
        model = self._models.get((group, kind))
        if model is None:
            return entry.manifest
        from karpenter_core.api.crd import render_crd
        from karpenter_core.api.field_errors import describe_errors
        from karpenter_core.api.schema import SchemaValidator

        validator = self._validators.get((group, kind))
        if validator is None:
            version = render_crd(model)["spec"]["versions"][0]
            validator = SchemaValidator(version["schema"]["openAPIV3Schema"])
            self._validators[group, kind] = validator
        judged = validator.default(_with_empty_requirements(entry.manifest))
        errors = validator.validate(judged)
        if errors:
            raise BadInputError(f"{entry.title}: {describe_errors(errors)}")
        return judged


def _with_empty_requirements(manifest: dict[str, Any]) -> dict[str, Any]:
    """Let a pool leave out `requirements`, which the CRD wants to be there though empty."""
    manifest = copy.deepcopy(manifest)
    spec: Any = manifest.get("spec")
    for name in ("template", "spec"):
        spec = cast("dict[str, Any]", spec).get(name) if isinstance(spec, dict) else None
    if manifest["kind"] == "NodePool" and isinstance(spec, dict):
        template = cast("dict[str, Any]", spec)
        template["requirements"] = template.get("requirements") or []
    return manifest


def _as_served(manifest: dict[str, Any]) -> dict[str, Any]:
    """Fill in what only a cluster knows: pods wait for a node, pools are ready."""
    match manifest["kind"]:
        case "Pod":
            return _waiting_pod(_with_requests(manifest))
        case "NodePool":
            return _ready_pool(manifest)
        case _:
            return manifest


def _with_requests(pod: dict[str, Any]) -> dict[str, Any]:
    """Let limits stand for requests that are missing, as the API server does."""
    pod = copy.deepcopy(pod)
    spec: dict[str, Any] = pod.get("spec") or {}
    for field_name in ("containers", "initContainers"):
        for container in cast("list[Any]", spec.get(field_name) or []):
            if isinstance(container, dict):
                _let_limits_stand(cast("dict[str, Any]", container).get("resources"))
    return pod


def _let_limits_stand(resources: Any) -> None:
    if not isinstance(resources, dict):
        return
    amounts = cast("dict[str, Any]", resources)
    limits: Any = amounts.get("limits")
    requests: Any = amounts.get("requests") or cast("dict[str, Any]", {})
    if isinstance(limits, dict) and isinstance(requests, dict):
        amounts["requests"] = {**cast("dict[str, Any]", limits), **cast("dict[str, Any]", requests)}


def _waiting_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """Say of a pod without a node that the scheduler found none (unless gates hold it)."""
    spec: dict[str, Any] = pod.get("spec") or {}
    status: dict[str, Any] = pod.get("status") or {}
    if spec.get("nodeName") or status.get("phase") in _FINISHED:
        return pod
    if spec.get("schedulingGates"):
        return {**pod, "status": {"phase": "Pending"}}
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    kept = {name: value for name, value in status.items() if name != "nominatedNodeName"}
    return {**pod, "status": {**kept, "phase": "Pending", "conditions": conditions}}


def _ready_pool(pool: dict[str, Any]) -> dict[str, Any]:
    """Take a pool for ready unless its status says otherwise."""
    status: dict[str, Any] = pool.get("status") or {}
    conditions: list[Any] = list(status.get("conditions") or ())
    if any(condition.get("type") == "Ready" for condition in conditions):
        return pool
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    return {**pool, "status": {**status, "conditions": [*conditions, ready]}}


def _daemon_set(pod: dict[str, Any], codecs: Codecs) -> Object:
    """Make the DaemonSet whose pods look like this one."""
    from karpenter_core.kube.objects import view_from_manifest

    metadata: dict[str, Any] = pod.get("metadata") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    return view_from_manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": metadata.get("name"), "namespace": metadata.get("namespace")},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod.get("spec") or {}},
            },
        },
        codecs,
    )


# -- catalogues ------------------------------------------------------------------------------------


@final
class _Seller:
    """Asks the right provider what each pool may buy.

    With an instance types file, pools of NodeClass kinds that nobody here serves are planned with
    that file too: `adopted` are those kinds.
    """

    def __init__(
        self,
        providers: Providers,
        objects: Sequence[tuple[Entry, Object]],
        instance_types_file: Path | None,
    ) -> None:
        from karpenter_core.api.nodeclass import NodeClass
        from karpenter_core.api.nodepool import NodePool

        self._providers: Final = providers
        self._models: Final = providers.node_class_models()
        self._pools: Final = [(e, found) for e, found in objects if isinstance(found, NodePool)]
        self._node_classes: Final = {
            (found.resource.group, found.resource.kind, found.name): found
            for _, found in objects
            if isinstance(found, NodeClass)
        }
        self._fallback: Final = (
            None if instance_types_file is None else _reader_of_catalogues(providers)
        )
        self.adopted: Final = dict[tuple[str, str], str]()

    async def catalogues(self) -> dict[str, Catalogue]:
        """Return the catalogue of each pool, by name."""
        from karpenter_core.controllers.catalogue.controller import catalogue_version
        from karpenter_core.scheduling.problem import Catalogue

        listed: dict[tuple[str, str, str], Catalogue] = {}
        catalogues: dict[str, Catalogue] = {}
        for entry, pool in self._pools:
            ref = pool.spec.template.spec.node_class_ref
            key = (ref.group, ref.kind, ref.name)
            if key not in listed:
                node_class = self._node_class(entry, pool, ref)
                types = await self._providers.list_instance_types(pool, node_class)
                listed[key] = Catalogue(version=catalogue_version(types), instance_types=types)
            catalogues[pool.name] = listed[key]
        return catalogues

    def _node_class(self, entry: Entry, pool: NodePool, ref: NodeClassRef) -> NodeClass:
        known = self._node_classes.get((ref.group, ref.kind, ref.name))
        if known is not None:
            return known
        model = self._models.get((ref.group, ref.kind))
        if model is None and self._fallback is not None:
            self.adopted[ref.group, ref.kind] = self._fallback
            model = self._providers.infos()[self._fallback].node_classes[0]
        field = f'{entry.where}: NodePool "{pool.name}": spec.template.spec.nodeClassRef'
        if model is None:
            served = ", ".join(f"{kind}.{group}" for group, kind in sorted(self._models))
            raise BadInputError(
                f"{field}: no loaded provider serves {ref.kind}.{ref.group} (served: {served}); "
                f"{INSTANCE_TYPES_FILE} gives such pools a catalogue"
            )
        resource = model.resource
        blank = {
            "apiVersion": f"{resource.group}/{resource.version}",
            "kind": resource.kind,
            "metadata": {"name": ref.name, "uid": f"{resource.kind.lower()}/{ref.name}"},
            "spec": {},
        }
        try:
            return model.model_validate(blank)
        except ValueError as error:
            raise BadInputError(f'{field}: {ref.kind} "{ref.name}" is not in the files') from error


def _reader_of_catalogues(providers: Providers) -> str:
    for name in providers.names:
        specs = providers.setting_specs().get(name, ())
        if any(spec.flag == INSTANCE_TYPES_FILE for spec in specs):
            return name
    raise SettingsError(f"{INSTANCE_TYPES_FILE}: no loaded provider reads such a file")


def _providers(plugins: Any) -> Providers:
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.provider.executor import InlineExecutor
    from karpenter_core.provider.facade import Providers

    return Providers(
        plugins,
        executor=InlineExecutor(),
        clock=SystemClock(),
        fence=_Closed(),
        registry=CollectorRegistry(),
    )


def _context(
    providers: Providers, name: str, folder: Path, instance_types_file: Path | None
) -> ProviderContext:
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.provider.contract import ClusterFacts, ProviderContext

    settings = {
        spec.flag.lstrip("-"): spec.default for spec in providers.setting_specs().get(name, ())
    }
    flag = INSTANCE_TYPES_FILE.lstrip("-")
    if instance_types_file is not None and flag in settings:
        settings[flag] = str(instance_types_file)
    return ProviderContext(
        settings=settings,
        clock=SystemClock(),
        cache_folder=folder,
        metrics=CollectorRegistry(),
        cluster=ClusterFacts(),
        nodes=_Closed(),
        read_nodes=_no_nodes,
        wake=lambda _name: None,
    )


def _no_nodes() -> Mapping[str, NodeView]:
    return {}


@final
class _Closed:
    """The outside world of a plan made from files: there is none, so nothing can be changed."""

    def check(self) -> None:
        raise FencedError("planning from files changes nothing")

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"planning from files creates no Node ({sorted(manifest)})")

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"planning from files changes no Node ({name}: {sorted(patch)})")

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"planning from files changes no Node ({name}: {sorted(patch)})")

    async def delete(self, name: str) -> None:
        raise KarpenterError(f"planning from files deletes no Node ({name})")
