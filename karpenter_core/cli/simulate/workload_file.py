"""Reads workload files: Deployments and jobs over time, objects, CSV traces.

Deployments, jobs and Kubernetes objects are written in YAML.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, cast

from pydantic import ValidationError

from karpenter_core.cli.manifests import ManifestEntry, json_type, manifest_text, read_files
from karpenter_core.cli.object_reader import ObjectDecoder
from karpenter_core.cli.parsing import read_documents
from karpenter_core.cli.simulate.curves import replica_changes, start_times
from karpenter_core.cli.simulate.trace_file import read_trace
from karpenter_core.cli.simulate.workload import PodArrival, ScaledDeployment, Workload
from karpenter_core.cli.simulate.workload_models import WorkloadFile, described
from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.info import LabelClasses
from karpenter_core.provider.kit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.trace_file import TraceFormat
    from karpenter_core.cli.simulate.workload_models import DeploymentSpec, JobSpec, PodSpec

__all__ = ["read_workload"]

_CSV: Final = ".csv"
_DEPLOYMENT: Final = ("apps/v1", "Deployment")


def read_workload(
    files: Sequence[Path],
    *,
    start: datetime,
    duration: float,
    seed: int,
    trace_format: TraceFormat,
) -> Workload:
    """Read the workload of a simulation.

    Raises:
        BadInputError: a file cannot be used; names file, field and value.
    """
    rng = random.Random(f"workload {seed}")  # noqa: S311 - the same each time
    workload = Workload()
    for file in files:
        if file.suffix.lower() == _CSV or file.name.lower().endswith(f"{_CSV}.gz"):
            read = read_trace(file, trace_format, duration=duration)
        else:
            read = _read_yaml(file, start=start, duration=duration, rng=rng)
        workload = workload.merged(read)
    _check_names(workload)
    _check_pods(workload)
    if not workload.manifests and not workload.arrivals:
        names = ", ".join(str(file) for file in files)
        raise BadInputError(f"{names}: no workload: no Deployment, job or object")
    return workload


def _read_yaml(file: Path, *, start: datetime, duration: float, rng: random.Random) -> Workload:
    name, text = manifest_text(file)
    documents = [each for each in read_documents(name, text) if each is not None]
    given = [_is_workload(each) for each in documents]
    if not any(given):
        return Workload(manifests=read_files([file]).entries)
    workload = Workload()
    for number, document in enumerate(documents, start=1):
        where = f"{name}, document {number}"
        if not isinstance(document, dict):
            raise BadInputError(f"{where}: must be an object, not {json_type(document)}")
        if not given[number - 1]:
            entry = ManifestEntry(where=where, manifest=_object(cast("object", document), where))
            workload = workload.merged(Workload(manifests=(entry,)))
            continue
        try:
            model = WorkloadFile.model_validate(document)
        except ValidationError as error:
            raise BadInputError(f"{where}: {described(error)}") from None
        read = _built(model, where, start=start, duration=duration, rng=rng)
        workload = workload.merged(read)
    return workload


def _is_workload(document: object) -> bool:
    """Tell whether a document is one of ours, and no Kubernetes object."""
    return isinstance(document, dict) and "kind" not in document and "apiVersion" not in document


def _object(document: object, where: str) -> JsonObject:
    manifest = cast("JsonObject", document)
    for field in ("apiVersion", "kind", "metadata"):
        if not manifest.get(field):
            raise BadInputError(f'{where}: field "{field}": missing')
    return manifest


def _built(
    model: WorkloadFile, where: str, *, start: datetime, duration: float, rng: random.Random
) -> Workload:
    manifests: list[ManifestEntry] = []
    deployments: list[ScaledDeployment] = []
    arrivals: list[PodArrival] = []
    for number, given in enumerate(model.deployments):
        place = f"{where}, deployments[{number}]"
        changes = replica_changes(given, start=start, duration=duration, rng=rng)
        manifests += [
            ManifestEntry(where=place, manifest=each)
            for each in _deployment_objects(given, changes[0].replicas)
        ]
        deployments.append(
            ScaledDeployment(
                namespace=given.namespace, name=given.name, where=place, changes=changes
            )
        )
    for number, given in enumerate(model.jobs):
        arrivals += _arrivals(given, f"{where}, jobs[{number}]", start=start, duration=duration)
    return Workload(
        manifests=tuple(manifests),
        deployments=tuple(deployments),
        arrivals=tuple(sorted(arrivals, key=lambda each: each.at)),
        is_drawn=any(each.sine is not None and each.sine.noise for each in model.deployments),
    )


def _deployment_objects(given: DeploymentSpec, replicas: int) -> list[JsonObject]:
    """Return the Deployment, unless its pods stand elsewhere, and its budget."""
    metadata = {"name": given.name, "namespace": given.namespace}
    made: list[JsonObject] = []
    if _has_pods(given):
        labels = {"app": given.name, **given.labels}
        selector = {"matchLabels": {"app": labels["app"]}}
        made.append(
            {
                "apiVersion": _DEPLOYMENT[0],
                "kind": _DEPLOYMENT[1],
                "metadata": metadata,
                "spec": {
                    "replicas": replicas,
                    "selector": selector,
                    "template": _pod(given, labels),
                },
            }
        )
    bounds = {"maxUnavailable": given.max_unavailable, "minAvailable": given.min_available}
    bound = {name: value for name, value in bounds.items() if value is not None}
    if bound:
        app = given.labels.get("app", given.name)
        made.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": metadata,
                "spec": {"selector": {"matchLabels": {"app": app}}, **bound},
            }
        )
    return made


def _has_pods(given: PodSpec) -> bool:
    return bool(given.cpu or given.memory or given.resources or given.spec)


def _pod(given: PodSpec, labels: dict[str, str]) -> JsonObject:
    own = {"cpu": given.cpu, "memory": given.memory}
    requests = {**given.resources, **{name: text for name, text in own.items() if text is not None}}
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    container = {"name": "main", "image": "simulated", "resources": resources}
    return {
        "metadata": {"labels": labels, "annotations": given.annotations},
        "spec": {"containers": [container], **given.spec},
    }


def _arrivals(
    given: JobSpec, where: str, *, start: datetime, duration: float
) -> Iterable[PodArrival]:
    pod = _pod(given, {"job": given.name, **given.labels})
    width = len(str(given.pods - 1))
    for run, at in enumerate(start_times(given, start=start, duration=duration)):
        for number in range(given.pods):
            yield PodArrival(
                at=at,
                namespace=given.namespace,
                name=f"{given.name}-{run:04d}-{number:0{width}d}",
                where=where,
                pod=pod,
                run_seconds=given.duration,
            )


def _check_pods(workload: Workload) -> None:
    """Refuse pods that cannot be decoded: a controller would ignore them, at no cost."""
    decoder = ObjectDecoder({}, LabelClasses())
    pods = {
        id(each.pod): _pod_entry(each.where, each.name, each.namespace, each.pod)
        for each in workload.arrivals
    }
    templates = [
        _pod_entry(entry.where, entry.name, entry.namespace, template)
        for entry in workload.manifests
        if (template := _template(entry)) is not None
    ]
    for entry in (*templates, *pods.values()):
        decoder.read_all([entry])


def _template(entry: ManifestEntry) -> Mapping[str, object] | None:
    """Return the pod of an object; None if it has none."""
    if entry.kind == "Pod":
        return entry.manifest
    template = as_object(entry.manifest.get("spec")).get("template")
    return as_object(template) or None


def _pod_entry(where: str, name: str, namespace: str, pod: Mapping[str, object]) -> ManifestEntry:
    metadata = {**as_object(pod.get("metadata")), "name": name, "namespace": namespace or "default"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.get("spec")}
    return ManifestEntry(where=where, manifest=manifest)


def _check_names(workload: Workload) -> None:
    """Refuse two Deployments of one name, and a curve without a Deployment."""
    there: dict[tuple[str, str, str], str] = {}
    for entry in workload.manifests:
        key = (entry.kind, entry.namespace or "default", entry.name)
        other = there.setdefault(key, entry.where)
        if other != entry.where:
            raise BadInputError(f"{entry.where}: {entry.title}: is already in {other}")
    scaled: dict[tuple[str, str], str] = {}
    for each in workload.deployments:
        if (_DEPLOYMENT[1], each.namespace, each.name) not in there:
            raise BadInputError(
                f'{each.where}: Deployment "{each.namespace}/{each.name}" has no pods: give cpu, memory, '
                "resources or spec, or the Deployment as an object"
            )
        other = scaled.setdefault((each.namespace, each.name), each.where)
        if other != each.where:
            raise BadInputError(f'{each.where}: field "name": "{each.name}" is already in {other}')
    names: dict[tuple[str, str], str] = {}
    for arrival in workload.arrivals:
        other = names.setdefault((arrival.namespace, arrival.name), arrival.where)
        if other != arrival.where:
            raise BadInputError(
                f'{arrival.where}: field "name": "{arrival.name}" is already in {other}'
            )
