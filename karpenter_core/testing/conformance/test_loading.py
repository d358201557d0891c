"""Rules of loading: a plug-in's identity; no effects before its start."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest

from karpenter_core.errors import CloudProviderError, KarpenterError, PluginError
from karpenter_core.provider.contract import CONTRACT_VERSION, LaunchedInstance
from karpenter_core.provider.host.manager import MANDATORY_HOOKS, load_plugins
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "PUBLIC_MODULES",
    "test_pc_001_the_name_is_that_of_the_entry_point",
    "test_pc_002_speaks_this_version_of_the_contract",
    "test_pc_003_no_other_plugin_serves_its_kinds",
    "test_pc_004_mandatory_hooks_are_there",
    "test_pc_005_loading_is_cheap",
    "test_pc_006_imports_what_is_public",
    "test_pc_007_starts_while_the_cloud_is_down",
    "test_pc_008_stands_concurrent_calls",
    "test_pc_009_gives_up_in_time",
]

PUBLIC_MODULES: Final = (
    "karpenter_core.api",
    "karpenter_core.clock",
    "karpenter_core.errors",
    "karpenter_core.provider.kit.subnet_addresses",
    "karpenter_core.provider.kit.batch_sizes",
    "karpenter_core.provider.kit.bounded_gather",
    "karpenter_core.provider.kit.calls",
    "karpenter_core.provider.catalogue",
    "karpenter_core.provider.kit.claim_tags",
    "karpenter_core.provider.contract",
    "karpenter_core.provider.kit.disk_cache",
    "karpenter_core.provider.kit.doctor",
    "karpenter_core.provider.kit.cached_response",
    "karpenter_core.provider.kit.cached_prices",
    "karpenter_core.provider.kit.device_templates",
    "karpenter_core.provider.kit.instance_owners",
    "karpenter_core.provider.kit.instance_types",
    "karpenter_core.provider.kit.instances",
    "karpenter_core.provider.kit.launch",
    "karpenter_core.provider.kit.late_failures",
    "karpenter_core.provider.kit.launch_candidates",
    "karpenter_core.provider.kit.learned_memory",
    "karpenter_core.provider.markers",
    "karpenter_core.provider.kit.node_class",
    "karpenter_core.provider.kit.json_values",
    "karpenter_core.provider.kit.node_groups",
    "karpenter_core.provider.kit.node_names",
    "karpenter_core.provider.kit.node_registration",
    "karpenter_core.provider.kit.offering_series",
    "karpenter_core.provider.kit.one_by_one",
    "karpenter_core.provider.kit.orphans",
    "karpenter_core.provider.kit.per_instance",
    "karpenter_core.provider.kit.plugin",
    "karpenter_core.provider.kit.price_table",
    "karpenter_core.provider.kit.provider_metrics",
    "karpenter_core.provider.kit.recent_entries",
    "karpenter_core.provider.kit.recent_launches",
    "karpenter_core.provider.kit.refreshed_value",
    "karpenter_core.provider.kit.reservation_counts",
    "karpenter_core.provider.kit.kubelet_reserved",
    "karpenter_core.provider.kit.setting_values",
    "karpenter_core.provider.kit.shared_answer",
    "karpenter_core.provider.kit.shared_metrics",
    "karpenter_core.provider.kit.shortages",
    "karpenter_core.provider.kit.simulated",
    "karpenter_core.provider.kit.demo_cloud",
    "karpenter_core.provider.kit.termination_batches",
    "karpenter_core.provider.kit.token_bucket",
    "karpenter_core.provider.kit.ttl_cache",
    "karpenter_core.provider.kit.type_listing",
    "karpenter_core.provider.kit.unavailable_offerings",
    "karpenter_core.provider.kit.user_data",
)
"""Modules that a provider may import, with their submodules; `karpenter_core.testing` in tests
only.
"""

_HOLDERS: Final = {"karpenter_core", "karpenter_core.provider", "karpenter_core.provider.kit"}
"""Packages whose modules a provider imports by name."""
_THREADS: Final = 12
_START_SECONDS: Final = 10.0


def test_pc_001_the_name_is_that_of_the_entry_point(subject: ConformanceSubject) -> None:
    """MUST: the name is in lower case, and equals that of the entry point in group `karpenter`."""
    assert re.fullmatch(r"[a-z][a-z0-9-]*", subject.name), (
        f'"{subject.name}" must be lower-case letters, digits and dashes'
    )
    points = [point for point in entry_points(group="karpenter") if point.name == subject.name]
    made = type(subject.make())
    for point in points:
        loaded = point.load()
        found = loaded if isinstance(loaded, type) else type(loaded)
        assert issubclass(made, found) or issubclass(found, made), (
            f'the entry point "{subject.name}" is {point.value}, the subject makes a {made}'
        )


def test_pc_002_speaks_this_version_of_the_contract(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: the provider returns its name, contract version and NodeClass models."""

    async def scenario(world: ProviderWorld) -> None:
        info = world.providers.infos()[subject.name]
        assert info.name == subject.name, (
            f'karpenter_provider_info returns the name "{info.name}", the subject is "{subject.name}"'
        )
        assert info.contract_version == CONTRACT_VERSION, (
            f"the provider has version {info.contract_version} of the contract, the kit "
            f"{CONTRACT_VERSION}"
        )
        assert type(subject.node_class) in info.node_classes, (
            f"karpenter_provider_info does not name {type(subject.node_class).__name__}"
        )

    rule_steps.run_rule(subject, tmp_path, scenario, shows="PC-002")


def test_pc_003_no_other_plugin_serves_its_kinds(subject: ConformanceSubject) -> None:
    """MUST: no other loaded plug-in serves the same NodeClass kind."""
    rule_steps.skip_unless_loaded(subject)
    others = [point for point in entry_points(group="karpenter") if point.name != subject.name]
    try:
        load_plugins(extra={subject.name: subject.make()}, entry_points=others)
    except PluginError as error:
        pytest.fail(f"with the other installed plug-ins it does not load: {error}")


def test_pc_004_mandatory_hooks_are_there(subject: ConformanceSubject) -> None:
    """MUST: the mandatory hooks are implemented, under their names and with known arguments."""
    try:
        plugins = load_plugins(extra={subject.name: subject.make()}, entry_points=())
    except Exception as error:
        pytest.fail(f"the plug-in is refused: {error}")
    missing = [hook for hook in MANDATORY_HOOKS if plugins.caller(hook, subject.name) is None]
    assert not missing, f"not implemented: {', '.join(missing)}"


def test_pc_005_loading_is_cheap(subject: ConformanceSubject) -> None:
    """MUST: loading, provider_info and add_settings do no I/O and import no SDK."""
    rule_steps.skip_unless_loaded(subject)
    with rule_steps.network_forbidden() as seen:
        plugins = load_plugins(extra={subject.name: subject.make()}, entry_points=())
        plugins.settings()
    assert not seen, f"loading the plug-in used the network or started a program: {seen}"

    loaded = _modules_after_import(type(subject.make()).__module__)
    heavy = [
        module
        for module in subject.sdk_modules
        if any(name == module or name.startswith(f"{module}.") for name in loaded)
    ]
    assert not heavy, (
        f"importing the plug-in imports {', '.join(heavy)}; import it where it is first used: "
        "every `karpenter --help` loads every plug-in"
    )


def _modules_after_import(module: str) -> Sequence[str]:
    """Import a module in a new interpreter and return the loaded modules."""
    program = (
        "import importlib, json, sys; importlib.import_module(sys.argv[1]); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, module],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, f"{module} cannot be imported alone:\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def test_pc_006_imports_what_is_public(subject: ConformanceSubject) -> None:
    """MUST: the provider imports only modules of the core that the contract lists."""
    wrong = [
        f"{path.name}:{line} imports {name}"
        for path in _source_files(type(subject.make()).__module__)
        for line, name in _core_imports(path)
        if not _is_allowed(name, path)
    ]
    assert not wrong, f"the core's own modules change without notice: {'; '.join(wrong)}"


def _source_files(module: str) -> Iterator[Path]:
    """Yield the source files of the distribution that a plug-in's module belongs to."""
    top = sys.modules[module.partition(".")[0]]
    if getattr(top, "__path__", None):
        for folder in top.__path__:
            yield from sorted(Path(folder).rglob("*.py"))
    elif top.__file__:
        yield Path(top.__file__)


def _core_imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module in _HOLDERS:
                yield from ((node.lineno, f"{node.module}.{a.name}") for a in node.names)
            else:
                yield node.lineno, node.module


def _is_allowed(name: str, path: Path) -> bool:
    if name.partition(".")[0] != "karpenter_core":
        return True
    if name.startswith("karpenter_core.testing"):
        return path.stem in {"testing", "conftest"} or path.stem.startswith("test_")
    return any(name == public or name.startswith(f"{public}.") for public in PUBLIC_MODULES)


def test_pc_007_starts_while_the_cloud_is_down(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST NOT: karpenter_start waits for the cloud; the core starts while the cloud is down."""
    rule_steps.skip_unless_started(subject, tmp_path)
    rule_steps.skip_unless_supported(subject, CloudTrouble.OUTAGE)

    async def play() -> None:
        world = rule_steps.new_world(subject, tmp_path)
        with rule_steps.trouble(subject, world, CloudTrouble.OUTAGE):
            started_at = world.clock.monotonic()
            try:
                async with world:
                    seconds = world.clock.monotonic() - started_at
            except KarpenterError as error:
                pytest.fail(f"while no call reaches the cloud, karpenter_start fails: {error}")
        assert seconds < _START_SECONDS, f"karpenter_start took {seconds:.1f} s without a cloud"

    asyncio.run(play())


def test_pc_008_stands_concurrent_calls(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: hooks can be called concurrently, from any thread."""

    async def scenario(world: ProviderWorld) -> None:
        requests = [await world.request(f"thread-{n}", subject.node_class) for n in range(_THREADS)]

        async def one(request: LaunchRequest) -> str:
            answer = await rule_steps.direct_call(
                world, subject, "karpenter_launch_instances", requests=(request,)
            )
            (outcome,) = cast("Sequence[object]", answer)
            assert isinstance(outcome, LaunchedInstance), (
                f"of {_THREADS} launches in as many threads one returned {outcome!r}"
            )
            await rule_steps.direct_call(world, subject, "karpenter_list_instances")
            await rule_steps.direct_call(
                world, subject, "karpenter_fetch_instances", provider_ids=(outcome.provider_id,)
            )
            return outcome.provider_id

        ids = await asyncio.gather(*(one(request) for request in requests))
        assert len(set(ids)) == _THREADS, f"{_THREADS} claims share instances: {sorted(ids)}"
        found = await rule_steps.list_by_provider_id(world, subject)
        for request, provider_id in zip(requests, ids, strict=True):
            assert provider_id in found, f"{provider_id} was launched and is not listed"
            token = found[provider_id].token
            assert token == request.token, (
                f"{provider_id} was launched with the token {request.token}, and is listed with "
                f"{token!r}"
            )
        await world.settle()
        await asyncio.gather(
            *(
                rule_steps.terminate_until_gone(world, r, i)
                for r, i in zip(requests, ids, strict=True)
            )
        )

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_009_gives_up_in_time(subject: ConformanceSubject, tmp_path: Path) -> None:
    """SHOULD: socket timeouts of the SDK are shorter than the hook's time limit."""

    async def scenario(world: ProviderWorld) -> None:
        patience = subject.patience.total_seconds()
        with rule_steps.trouble(subject, world, CloudTrouble.SILENCE):
            started_at = world.clock.monotonic()
            try:
                await asyncio.wait_for(world.providers.list_instances(subject.name), patience)
            except TimeoutError:
                pytest.fail(
                    f"a cloud that never answers holds karpenter_list_instances for more than "
                    f"{patience:g} s: set the SDK's timeouts (ConformanceSubject.settings, Subject.patience)"
                )
            except CloudProviderError:
                return
            finally:
                seconds = world.clock.monotonic() - started_at
        pytest.fail(f"a cloud that never answers was listed in {seconds:.1f} s, as if it had")

    rule_steps.run_rule(subject, tmp_path, scenario)
