"""Completes objects from files, validates them by their CRDs and decodes them.

Needs no cluster. The same files give the same objects in every process: "now" is the newest
creation time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.cli.admission import decoding_error, quantity_error, shape_error, value_error
from karpenter_core.cli.cluster_input import LocatedObject
from karpenter_core.cli.entry_completion import complete_entries
from karpenter_core.cli.manifests import DAEMON_SET_PODS, ManifestEntry
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodShape
    from karpenter_core.api.schema import SchemaValidator
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.kube.wire.kind_groups import KindGroup
    from karpenter_core.provider.contract import LabelClasses
    from karpenter_core.state.events import StateObject

__all__ = ["ObjectDecoder", "dropped_fields", "groups_in_use", "latest_creation"]

_CORE_GROUP: Final = "karpenter.sh"
_OVERLAY: Final = "NodeOverlay"
_WORKLOADS: Final = frozenset(
    {"CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"}
)
_OLDER_VERSION: Final = re.compile("v[0-9]+(alpha|beta)[0-9]+")
_TEMPLATE_SPEC: Final = ("spec", "template", "spec")


def latest_creation(entries: Iterable[ManifestEntry]) -> datetime:
    """Return the newest creation time: the "now" of files."""
    stamps = [
        datetime.fromisoformat(stamp)
        for entry in entries
        if isinstance(stamp := entry.metadata.get("creationTimestamp"), str)
    ]
    return max(stamps, default=datetime.fromtimestamp(0, tz=UTC))


def groups_in_use(entries: Iterable[ManifestEntry]) -> frozenset[KindGroup]:
    """Return the groups of kinds whose feature the cluster of these objects uses, as they show."""
    from karpenter_core.kube.resources import DEVICE_CLASSES, VERTICAL_POD_AUTOSCALERS
    from karpenter_core.kube.wire.codecs import CAPACITY_BUFFERS, PROVISIONING_REQUESTS
    from karpenter_core.kube.wire.kind_groups import KindGroup

    signs = (
        (CAPACITY_BUFFERS, KindGroup.BUFFERS),
        (PROVISIONING_REQUESTS, KindGroup.REQUESTS),
        (DEVICE_CLASSES, KindGroup.DEVICES),
        (VERTICAL_POD_AUTOSCALERS, KindGroup.AUTOSCALERS),
    )
    by_kind = {(kind.group, kind.kind): group for kind, group in signs}
    kinds = {(entry.group, entry.kind) for entry in entries}
    return frozenset(group for kind, group in by_kind.items() if kind in kinds)


@final
class ObjectDecoder:
    """Validates and decodes objects, and refuses duplicate names."""

    def __init__(
        self,
        models: Mapping[tuple[str, str], type[NodeClass]],
        labels: LabelClasses,
        *,
        groups: Collection[KindGroup] = (),
    ) -> None:
        """Read the kinds that every plan needs, and those in `groups`.

        Other NodeOverlays are ignored with a note.
        """
        from karpenter_core.api.crd import core_models
        from karpenter_core.api.provisioning_request import ProvisioningRequest
        from karpenter_core.kube.wire.codecs import Codecs

        self.codecs: Final[Codecs] = Codecs(models.values(), groups=groups)
        self._labels: Final = labels
        self._models: Final = {
            (model.resource.group, model.resource.kind): model
            for model in (*core_models(), ProvisioningRequest, *models.values())
        }
        self._validators: Final = dict[tuple[str, str], "SchemaValidator"]()
        self._skipped: Final = dict[str, int]()
        self._unknown: Final = list[str]()
        self._sound: Final = dict[int, "PodShape"]()

    def read_all(self, entries: Sequence[ManifestEntry]) -> list[LocatedObject]:
        """Return the objects that scheduling reads, completed and validated.

        Raises:
            BadInputError: an object cannot be used; names file, object and field.
        """
        return [placed for _, placed in self.read_completed(entries)]

    def read_completed(
        self, entries: Sequence[ManifestEntry]
    ) -> list[tuple[ManifestEntry, LocatedObject]]:
        """Return the objects like `read_all`, each with its completed entry.

        Raises:
            BadInputError: an object cannot be used; names file, object and field.
        """
        read_entries = [entry for entry in entries if self._is_read(entry)]
        _refuse_duplicates(read_entries)
        completed = complete_entries(read_entries)
        placed = [
            LocatedObject(entry.where, self._read(entry), entry.is_implied) for entry in completed
        ]
        _refuse_shared_uids(placed)
        return list(zip(completed, placed, strict=True))

    def notes(self) -> tuple[str, ...]:
        """Return notes about objects and fields that were ignored."""
        notes = [
            f"ignored: {count} of kind {kind}"
            + ("; the feature gate NodeOverlay is off" if kind == _OVERLAY else "")
            for kind, count in sorted(self._skipped.items())
            if kind not in _WORKLOADS
        ]
        workloads = [
            f"{count} of kind {kind}"
            for kind, count in sorted(self._skipped.items())
            if kind in _WORKLOADS
        ]
        if workloads:
            ignored = f"ignored: {', '.join(workloads)}"
            notes.append(f"{ignored}; no pods are made of them, those in the files are planned for")
        return (*notes, *self._unknown)

    def _is_read(self, entry: ManifestEntry) -> bool:
        if self.codecs.find(entry.group, entry.kind) is not None:
            return True
        if entry.group == _CORE_GROUP and entry.kind != _OVERLAY:
            raise BadInputError(
                f'{entry.where}: field "kind": unknown kind "{entry.kind}" of {entry.group}'
                f"{self._remedy(entry)}"
            )
        self._skipped[entry.kind] = self._skipped.get(entry.kind, 0) + 1
        return False

    def _remedy(self, entry: ManifestEntry) -> str:
        """Return what to do with an object of a version that `karpenter convert` converts."""
        model = self._models.get((entry.group, entry.kind))
        api_version = str(entry.manifest.get("apiVersion", ""))
        is_served = model is not None and api_version in model.resource.api_versions
        is_older = _OLDER_VERSION.fullmatch(api_version.rpartition("/")[2]) is not None
        if is_served or not is_older or entry.group not in {group for group, _ in self._models}:
            return ""
        return "; `karpenter convert` converts older manifests"

    def _read(self, entry: ManifestEntry) -> StateObject:
        from karpenter_core.api.nodepool import NodePool
        from karpenter_core.api.records import PodView
        from karpenter_core.api.workload_records import DaemonSetView, PodTemplateView, WorkloadView
        from karpenter_core.kube.objects import view_from_manifest

        try:
            view = view_from_manifest(self._validated(entry), self.codecs)
        except BadInputError as error:
            text = f"{_located(error, entry)}{self._remedy(entry)}"
            raise BadInputError(f"{entry.where}: {text}") from error
        except RecursionError as error:
            text = f"{entry.title}: is nested too deeply"
            raise BadInputError(f"{entry.where}: {_as_written(text, entry)}") from error
        except (UnicodeEncodeError, OverflowError) as error:
            text = f"{entry.title}: {value_error(entry.manifest)}"
            raise BadInputError(f"{entry.where}: {_as_written(text, entry)}") from error
        template = view.template if isinstance(view, DaemonSetView | WorkloadView) else None
        if isinstance(view, PodView):
            self._check_shape(view.shape, entry, "")
        elif template is not None:
            self._check_shape(template, entry, "spec.template.")
        elif isinstance(view, PodTemplateView):
            self._check_shape(view.template, entry, "template.")
        return self._ready(view) if isinstance(view, NodePool) else view

    def _check_shape(self, shape: PodShape, entry: ManifestEntry, path: str) -> None:
        """Refuse a pod that an API server would refuse; equal pods are checked once."""
        if id(shape) in self._sound:
            return
        error = shape_error(shape)
        error = error and f"{path}{error}"
        if not error and min(shape.requests.values()) < 0:
            error = quantity_error(entry.manifest)
        if error:
            title = f'{entry.kind} "{entry.namespace or "default"}/{entry.name}"'
            raise BadInputError(f"{entry.where}: {_as_written(f'{title}: {error}', entry)}")
        self._sound[id(shape)] = shape

    def _validated(self, entry: ManifestEntry) -> JsonObject:
        """Default and validate an object of our own kinds as the API server would."""
        model = self._models.get((entry.group, entry.kind))
        if model is None or entry.manifest["apiVersion"] not in model.resource.api_versions:
            return entry.manifest
        error = value_error(entry.manifest)
        if error:
            raise BadInputError(f"{entry.title}: {error}")
        from karpenter_core.api.crd import render_crd
        from karpenter_core.api.field_errors import describe_errors
        from karpenter_core.api.schema import SchemaValidator

        validator = self._validators.get((entry.group, entry.kind))
        if validator is None:
            version = render_crd(model)["spec"]["versions"][0]
            validator = SchemaValidator(version["schema"]["openAPIV3Schema"])
            self._validators[entry.group, entry.kind] = validator
        judged = validator.default(_with_empty_requirements(entry.manifest))
        errors = validator.validate(judged)
        if errors:
            raise BadInputError(f"{entry.title}: {describe_errors(errors)}")
        self._unknown.extend(
            f"{entry.where}: {entry.title}: {field}: unknown field, ignored"
            for field in dropped_fields(entry.manifest, judged, "")
        )
        return judged

    def _ready(self, pool: NodePool) -> NodePool:
        """Set a NodePool to ready unless its status or its fields contradict."""
        from karpenter_core.api.conditions import READY, TRUE, find_condition
        from karpenter_core.api.nodepool import NODE_CLASS_READY
        from karpenter_core.lifecycle.nodepool.status import with_condition
        from karpenter_core.lifecycle.nodepool.validation import with_validation
        from karpenter_core.operator.label_rules import label_rules

        if find_condition(pool.status.conditions, READY) is not None:
            return pool
        beginning = datetime.fromtimestamp(0, tz=UTC)
        rules = label_rules(self._labels)
        pool = with_condition(
            pool, type=NODE_CLASS_READY, status=TRUE, reason=NODE_CLASS_READY, now=beginning
        )
        return with_validation(pool, now=beginning, rules=rules)


def _located(error: BadInputError, entry: ManifestEntry) -> str:
    """Return an error of an object with the field first."""
    title, separator, text = str(error).partition('": ')
    if separator:
        text = quantity_error(entry.manifest) or decoding_error(text, entry.manifest)
    return _as_written(f"{title}{separator}{text}", entry)


def _as_written(text: str, entry: ManifestEntry) -> str:
    """Replace the derived DaemonSet in a message by the pod that describes it."""
    if entry.key != DAEMON_SET_PODS:
        return text
    return text.replace("DaemonSet", "Pod", 1).replace("spec.template.", "", 1)


def dropped_fields(given: object, kept: object, path: str) -> Iterator[str]:
    """Return the names of unknown fields."""
    if isinstance(given, dict) and isinstance(kept, dict):
        kept_fields = cast("JsonObject", kept)
        for name, value in cast("JsonObject", given).items():
            inner = f"{path}.{name}" if path else name
            if name in kept_fields:
                yield from dropped_fields(value, kept_fields[name], inner)
            elif value is not None:
                yield inner
    elif isinstance(given, list) and isinstance(kept, list):
        pairs = zip(cast("list[object]", given), cast("list[object]", kept), strict=False)
        for number, (item, known_item) in enumerate(pairs):
            yield from dropped_fields(item, known_item, f"{path}[{number}]")


def _refuse_duplicates(entries: Iterable[ManifestEntry]) -> None:
    seen: dict[tuple[str, str, str, str], str] = {}
    for entry in entries:
        if not entry.name:
            raise BadInputError(f'{entry.where}: {entry.kind}: field "metadata.name": missing')
        role = entry.key if entry.key == DAEMON_SET_PODS else entry.kind
        identity = (entry.group, role, entry.namespace, entry.name)
        other = seen.setdefault(identity, entry.where)
        if other != entry.where:
            raise BadInputError(f"{entry.where}: {entry.title}: is already in {other}")


def _refuse_shared_uids(placed: Iterable[LocatedObject]) -> None:
    """Refuse two objects with one UID, because one of them would be lost silently."""
    seen: dict[tuple[str, str], str] = {}
    for where, placed_object, _ in placed:
        other = seen.setdefault((type(placed_object).__name__, placed_object.uid), where)
        if other != where:
            raise BadInputError(
                f'{where}: field "metadata.uid": "{placed_object.uid}" is that of another object: {other}'
            )


def _with_empty_requirements(manifest: JsonObject) -> JsonObject:
    """Add empty `requirements` to a NodePool, which the CRD requires."""
    if manifest["kind"] != "NodePool":
        return manifest
    levels = [manifest]
    for name in _TEMPLATE_SPEC:
        inner: object = levels[-1].get(name)
        if not isinstance(inner, dict):
            return manifest
        levels.append(cast("JsonObject", inner))
    rebuilt: JsonObject = {**levels[-1], "requirements": levels[-1].get("requirements") or []}
    for level, name in zip(levels[-2::-1], _TEMPLATE_SPEC[::-1], strict=True):
        rebuilt = {**level, name: rebuilt}
    return rebuilt
