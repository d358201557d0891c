"""`karpenter doctor`: checks settings, providers and cluster for problems.

Takes the options and variables of `karpenter run`, so that its findings apply to that process. Each
finding has one line with the problem, and one with the remedy; the exit code is 1 if a finding
would prevent the process from working.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from karpenter_core.cli.cluster_source import OutputFormat, help_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.kube.client import HttpTransport
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import Finding
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["register"]

_CONTEXT_SETTINGS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
_MARKS: Final = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


class _CheckResult(NamedTuple):
    """A finding and its subject."""

    about: str
    finding: Finding


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Check settings, clouds, CRDs, permissions and workloads for problems."
    app.command(
        "doctor", context_settings=_CONTEXT_SETTINGS, help=help_of(_doctor), short_help=summary
    )(_doctor)


def _doctor(
    context: typer.Context,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="Output format.")
    ] = OutputFormat.TABLE,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="Check only plug-ins and their clouds, or the objects in FILEs, without the cluster.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Also list the changes that this controller would make in a cluster that Karpenter manages.",
        ),
    ] = False,
) -> None:
    """Check settings, plug-ins, clouds, CRDs, permissions and workloads; change nothing.

    Takes the options and variables of `karpenter run` too (`karpenter run --help`): run it in a pod of the
    controller, or with its settings. Each finding has a remedy.

    With --offline FILE... it checks the objects in the files, such as a file of `karpenter snapshot`:
    whether NodePools are ready, and common mistakes in workloads, PodDisruptionBudgets and NodePools.

    Exit code: 0 if no finding is an error; 1 if one is.
    """
    if take_over and offline:
        raise typer.BadParameter("--take-over reads the cluster: omit --offline")
    results = asyncio.run(_run_checks(context.args, offline=offline, take_over=take_over))
    if output is OutputFormat.JSON:
        print(json.dumps([_as_json(checked) for checked in results], indent=2))
    else:
        _print(results)
    if any(checked.finding.severity.value == "error" for checked in results):
        raise typer.Exit(1)


async def _run_checks(
    arguments: Sequence[str], *, offline: bool, take_over: bool
) -> list[_CheckResult]:
    from karpenter_core.errors import KarpenterError
    from karpenter_core.operator.settings_loader import load_settings, selected_plugins, split_files
    from karpenter_core.provider.host.manager import load_plugins

    try:
        selected = selected_plugins(arguments, os.environ)
        plugins = load_plugins(selected=selected)
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        files: list[str] = []
        if offline:
            arguments, files = split_files(arguments, plugin_options=specs)
        settings = load_settings(arguments, os.environ, plugin_options=specs)
    except KarpenterError as error:
        remedy = "run `karpenter plugin list` and `karpenter run --help`"
        return [_CheckResult("start", _error(str(error), remedy))]
    if files:
        from karpenter_core.cli.doctor.files import check_files

        found = await check_files(plugins, files)
        return [*_loaded(plugins), *(_CheckResult(about, finding) for about, finding in found)]
    results = [*_loaded(plugins), *_ignored_settings(settings), *await _clouds(plugins, settings)]
    if not offline:
        from karpenter_core.cli.doctor.process import check_process

        results.append(_CheckResult("controller", await check_process(settings)))
        results += await _cluster(plugins, settings)
        if settings.commitments:
            from karpenter_core.cli.doctor.commitments import check_commitments

            found = await check_commitments(plugins, settings)
            results += [_CheckResult("commitments", finding) for finding in found]
    if take_over:
        from karpenter_core.cli.doctor.take_over import check_take_over

        found = await check_take_over(plugins, settings, os.environ)
        results += [_CheckResult("take-over", finding) for finding in found]
    return results


def _loaded(plugins: Plugins) -> list[_CheckResult]:
    from karpenter_core.provider.contract import Finding, Severity

    if not plugins.providers:
        remedy = (
            "install one, such as by `pip install ./providers/kwok` in a checkout of karpenter-core, or "
            "generate one with `karpenter plugin new`"
        )
        return [_CheckResult("plug-ins", _error("no provider is installed", remedy))]
    names = ", ".join(f"{p.name} ({p.origin})" for p in plugins.providers.values())
    message = f"loaded: {names}"
    return [_CheckResult("plug-ins", Finding(severity=Severity.OK, message=message))]


def _ignored_settings(settings: Settings) -> list[_CheckResult]:
    """Return the settings that have no effect as given."""
    from karpenter_core.provider.contract import Finding, Severity

    remedy = "correct or remove the setting"
    return [
        _CheckResult("settings", Finding(severity=Severity.WARNING, message=warning, remedy=remedy))
        for warning in settings.warnings
    ]


async def _clouds(plugins: Plugins, settings: Settings) -> list[_CheckResult]:
    """Start each provider, and run its check of its cloud."""
    from karpenter_core.cli.catalogues import open_providers

    remedy = "correct the setting, or leave out the provider (--providers)"
    opening = open_providers(plugins, settings=settings, instance_types_file=None)
    async with opening as providers:
        refused = [
            _CheckResult("start", _error(f"{name}: {error}", remedy))
            for name, error in providers.left_out.items()
        ]
        return refused + await _checked(providers)


async def _checked(providers: Providers) -> list[_CheckResult]:
    checks = await providers.check()
    return [
        _CheckResult(name, finding) for name, findings in checks.items() for finding in findings
    ]


async def _cluster(plugins: Plugins, settings: Settings) -> list[_CheckResult]:
    from karpenter_core.cli.doctor.definitions import check_definitions
    from karpenter_core.cli.doctor.objects import check_objects
    from karpenter_core.cli.doctor.permissions import (
        check_fact_permissions,
        check_permissions,
        needed_permissions,
    )
    from karpenter_core.cli.doctor.quotas import check_quotas
    from karpenter_core.cli.doctor.requests import check_requests
    from karpenter_core.cli.doctor.workloads import check_workloads
    from karpenter_core.errors import KarpenterError
    from karpenter_core.kube.api import ClusterApis, KubeApi
    from karpenter_core.kube.client import connect
    from karpenter_core.kube.resources import LEASES
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.kube.wire.kind_groups import KindGroup
    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.operator.kind_groups import kind_groups
    from karpenter_core.operator.launcher import own_namespace

    clock = SystemClock()
    models = {name: found.info.node_classes for name, found in plugins.providers.items()}
    every_model = [model for found in models.values() for model in found]
    groups_read = kind_groups(settings)
    codecs = Codecs(every_model, groups=groups_read)
    namespace = settings.leader_election_namespace or own_namespace(os.environ)
    needed = needed_permissions(
        codecs.kinds,
        every_model,
        lease_namespace=None if settings.disable_leader_election else namespace,
        lease_name=settings.leader_election_name,
        reads=[read for found in plugins.providers.values() for read in found.info.reads],
        creates_nodes=any(found.info.creates_nodes for found in plugins.providers.values()),
        observe=settings.observe,
        metrics_token_auth=settings.metrics_token_auth,
        surge_moves=settings.surge_moves,
    )
    transports: list[HttpTransport] = []
    try:
        objects = await connect(
            kubeconfig=settings.kubeconfig or None, context=settings.context or None, clock=clock
        )
        transports.append(objects)
        if settings.workload_kubeconfig:
            transports.append(await connect(kubeconfig=settings.workload_kubeconfig, clock=clock))
        groups = frozenset(model.resource.group for model in every_model)
        apis = ClusterApis(*(KubeApi(t, clock=clock) for t in transports), node_class_groups=groups)
        found = [
            _CheckResult("CRDs", f)
            for f in await check_definitions(apis, models, groups=groups_read)
        ]
        found += [
            _CheckResult("objects", f)
            for f in await check_objects(
                apis,
                every_model,
                static_capacity=settings.feature_gates.static_capacity,
                groups=groups_read,
            )
        ]
        are_served = KindGroup.REQUESTS in groups_read
        request_findings = await check_requests(apis, are_served=are_served)
        found += [_CheckResult("objects", f) for f in request_findings]
        if KindGroup.QUOTAS in groups_read:
            found += [_CheckResult("objects", f) for f in await check_quotas(apis)]
        found += [_CheckResult("workloads", f) for f in await check_workloads(apis, codecs)]
        of_lease = tuple(one for one in needed if one.kind == LEASES)
        if settings.leader_election_kubeconfig and of_lease:
            needed = tuple(one for one in needed if one.kind != LEASES)
            transports.append(
                await connect(kubeconfig=settings.leader_election_kubeconfig, clock=clock)
            )
            keeper = ClusterApis(KubeApi(transports[-1], clock=clock))
            found += [
                _CheckResult("permissions", f) for f in await check_permissions(keeper, of_lease)
            ]
        found += [_CheckResult("permissions", f) for f in await check_fact_permissions(apis)]
        return found + [
            _CheckResult("permissions", f) for f in await check_permissions(apis, needed)
        ]
    except KarpenterError as error:
        remedy = "check --kubeconfig and --context, and that the API server answers"
        return [_CheckResult("cluster", _error(str(error), remedy))]
    finally:
        for transport in transports:
            await transport.close()


def _error(message: str, remedy: str) -> Finding:
    from karpenter_core.provider.contract import Finding, Severity

    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)


def _as_json(result: _CheckResult) -> dict[str, str]:
    about, finding = result
    return {
        "about": about,
        "severity": finding.severity.value,
        "message": finding.message,
        "remedy": finding.remedy,
    }


def _print(results: Sequence[_CheckResult]) -> None:
    width = max(len(checked.about) for checked in results)
    for about, finding in results:
        print(f"{_MARKS[finding.severity.value]}  {about:{width}}  {finding.message}")
        if finding.remedy:
            print(f"{'':{width + 11}}remedy: {finding.remedy}")
