"""Varies a simulation: one run for every combination of values of keys.

A key is an option of the simulation (`seed`), a setting of `karpenter run` (`batch-idle-duration`), or
the path of a field of all NodePools (`spec.disruption.consolidateAfter`) or of one
(`general:spec.weight`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.cli.object_reader import dropped_fields
from karpenter_core.cli.parsing import read_documents
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.schema import SchemaValidator
    from karpenter_core.cli.manifests import ManifestEntry
    from karpenter_core.cli.simulate.scenario import SimulationScenario
    from karpenter_core.cli.simulate.workload import Workload

__all__ = ["SweepAxis", "SweepRun", "parse_axes", "parse_shard", "swept"]

_MOST_RUNS: Final = 10_000
_PATH: Final = re.compile(r"(?:(?P<pool>[a-z0-9.-]+):)?(?P<path>spec(?:\.[A-Za-z]+(?:\[\d+\])?)+)")
_SHARD: Final = re.compile(r"(\d{1,6})/(\d{1,6})")
_STEP: Final = re.compile(r"([A-Za-z]+)(?:\[(\d+)\])?")
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], float]]]] = {
    "seed": ("seed", int),
    "spot-reclaims": ("reclaims_per_hour", float),
    "stock-outs": ("stock_outs_per_hour", float),
}
"""Options of the simulation that a sweep can vary, and their fields of a scenario."""

SweepAxis = tuple[str, tuple[str, ...]]
"""A key and its values."""

SweepRun: TypeAlias = "tuple[Mapping[str, str], SimulationScenario]"
"""The values of a run, and its simulation."""


def parse_axes(texts: Sequence[str]) -> tuple[SweepAxis, ...]:
    """Read the values of `--sweep`.

    Raises:
        SettingsError: one is not KEY=VALUE,VALUE.
    """
    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, separator, values_text = text.partition("=")
        values = _split(values_text)
        if not separator or not key.strip() or not all(values):
            raise SettingsError(f'--sweep: "{text}" is not KEY=VALUE,VALUE')
        if key in axes:
            raise SettingsError(f'--sweep: key "{key}" is duplicated')
        if len(set(values)) < len(values):
            raise SettingsError(f'--sweep: {key}: a value is duplicated in "{values_text}"')
        axes[key] = values
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > _MOST_RUNS:
        raise SettingsError(f"--sweep: {count} runs are too many; at most {_MOST_RUNS}")
    return tuple(axes.items())


def parse_shard(text: str) -> slice:
    """Read `--shard`: every COUNT-th run from INDEX on; empty = all runs.

    Raises:
        SettingsError: it is not INDEX/COUNT.
    """
    if not text:
        return slice(None)
    match = _SHARD.fullmatch(text)
    if match is None or not int(match[1]) < int(match[2]) <= _MOST_RUNS:
        raise SettingsError(
            f'--shard: "{text}" is not INDEX/COUNT with an INDEX from 0 to COUNT - 1'
        )
    return slice(int(match[1]), None, int(match[2]))


def swept(
    scenario: SimulationScenario,
    axes: Sequence[SweepAxis],
    workload_of: Callable[[int], Workload],
) -> Iterator[SweepRun]:
    """Return every combination of values, and the simulation with them.

    `workload_of` returns the workload of a seed, which draws the noise of its curves.

    Raises:
        SettingsError: a key or a value cannot be used.
    """
    keys = [key for key, _ in axes]
    workloads = {scenario.seed: scenario.workload}
    for values in product(*(values for _, values in axes)):
        chosen = dict(zip(keys, values, strict=True))
        varied = scenario
        for key, value in chosen.items():
            varied = _with(varied, key, value)
        if varied.seed not in workloads:
            is_drawn = scenario.workload.is_drawn
            workloads[varied.seed] = workload_of(varied.seed) if is_drawn else scenario.workload
        name = " ".join(f"{key}={value}" for key, value in chosen.items())
        yield chosen, replace(varied, name=name, workload=workloads[varied.seed])


def _split(text: str) -> tuple[str, ...]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def _with(scenario: SimulationScenario, key: str, value: str) -> SimulationScenario:
    option = _OPTIONS.get(key)
    if option is not None:
        return replace(scenario, **{option[0]: _number(key, value, option[1])})  # pyright: ignore[reportArgumentType] - the table names fields
    match = _PATH.fullmatch(key)
    if match is not None:
        return _with_field(scenario, key, match["pool"], match["path"], value)
    if "." in key or ":" in key:
        raise SettingsError(
            f'--sweep: key "{key}": is no path of a NodePool, such as spec.disruption.consolidateAfter'
        )
    kept = [each for each in scenario.settings if each.partition("=")[0] != f"--{key}"]
    return replace(scenario, settings=(*kept, f"--{key}={value}"))


def _number(key: str, value: str, read: Callable[[str], float]) -> float:
    try:
        number = read(value)
    except ValueError:
        raise SettingsError(f'--sweep: {key}: "{value}" is not a number') from None
    if not 0 <= number < float("inf"):
        raise SettingsError(f'--sweep: {key}: "{value}" is negative or not finite')
    return number


def _with_field(
    scenario: SimulationScenario, key: str, pool: str | None, path: str, text: str
) -> SimulationScenario:
    (value,) = read_documents(f"--sweep {key}", text)
    is_found = False
    manifests: list[ManifestEntry] = []
    for entry in scenario.manifests:
        if entry.kind == "NodePool" and pool in {None, entry.name}:
            is_found = True
            manifest = _replaced(entry.manifest, _steps(path), value, key)
            _refuse_unknown(manifest, key, path)
            manifests.append(replace(entry, manifest=manifest))
        else:
            manifests.append(entry)
    if not is_found:
        raise SettingsError(f'--sweep: key "{key}": there is no NodePool "{pool}"')
    return replace(scenario, manifests=tuple(manifests))


def _refuse_unknown(manifest: JsonObject, key: str, path: str) -> None:
    """Refuse a path that NodePools do not have: every value of the sweep would give the same run."""
    defaulted = _node_pool_schema().default(manifest)
    for field in dropped_fields(manifest, defaulted, ""):
        if path == field or path.startswith((f"{field}.", f"{field}[")):
            raise SettingsError(f'--sweep: key "{key}": NodePools have no field {field}')


@cache
def _node_pool_schema() -> SchemaValidator:
    from karpenter_core.api.crd import render_crd
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.schema import SchemaValidator

    return SchemaValidator(render_crd(NodePool)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is not None:
            steps.append(match[1])
            if match[2] is not None:
                steps.append(int(match[2]))
    return steps


def _replaced(
    holder: JsonObject, steps: Sequence[str | int], value: object, key: str
) -> JsonObject:
    """Return a copy of a manifest with another value at a path."""
    return cast("JsonObject", _copied(holder, steps, value, key))


def _copied(holder: object, steps: Sequence[str | int], value: object, key: str) -> object:
    if not steps:
        return value
    step, *rest = steps
    if isinstance(step, int):
        items = cast("list[object]", holder) if isinstance(holder, list) else []
        if step >= len(items):
            raise SettingsError(f'--sweep: key "{key}": there is no entry [{step}]')
        changed = _copied(items[step], rest, value, key)
        return [*items[:step], changed, *items[step + 1 :]]
    if holder is not None and not isinstance(holder, dict):
        raise SettingsError(f'--sweep: key "{key}": "{step}" is no field of an object there')
    fields = cast("JsonObject", holder or {})
    return {**fields, step: _copied(fields.get(step), rest, value, key)}
