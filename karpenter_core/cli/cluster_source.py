"""Reads a command's cluster: files, a live cluster, or both together."""

from __future__ import annotations

import inspect
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from karpenter_core.cli.command_input import (
    CommandInput,
    context_of,
    input_with_settings,
    log_to_stderr,
)
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from karpenter_core.cli.cluster_input import Catalogues, ClusterInput
    from karpenter_core.cli.manifests import Manifests, SnapshotFile
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.manager import Plugins

__all__ = [
    "ClusterSource",
    "CommandInput",
    "OutputFormat",
    "PackingMode",
    "help_of",
]


class OutputFormat(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


class PackingMode(StrEnum):
    """Values of `--packing`, as `scheduling.problem.Packing` has them."""

    VALUE = "value"
    FIRST_FIT = "first-fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """The options that select the cluster and the way to plan."""

    files: tuple[Path, ...] = ()
    offline: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    instance_types_file: Path | None = None
    ignore_preferences: bool = False
    packing: PackingMode | None = None
    commitments: str | None = None
    scheduler_config: str | None = None
    with_decisions: bool = False
    """Whether to read the Events of the controller too; only of a live cluster."""

    async def read(self) -> CommandInput:
        """Read the objects that the options name.

        Raises:
            BadInputError: a file or an object in it cannot be used.
            SettingsError: options that exclude each other, or no cluster is found.
            ApiError: the cluster does not answer, or refuses.
        """
        async with self.opened() as read:
            return await read()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Callable[[], Awaitable[CommandInput]]]:
        """Yield a function that reads the objects anew at each call; connections stay open.

        Raises:
            SettingsError: options that exclude each other, or no cluster is found.
        """
        if not self.offline:
            from karpenter_core.cli.live_cluster import open_cluster

            async with open_cluster(self) as live:
                yield live.read
            return
        self._check_offline()

        async def read_offline() -> CommandInput:
            from karpenter_core.cli.manifests import read_files

            return await self.read_manifests(read_files(self.files))

        yield read_offline

    def find_namespace(self) -> str:
        """Return the namespace of objects that are named without one: with a cluster, that of its context.

        Raises:
            SettingsError: no cluster is found, or a setting cannot be used.
        """
        if self.offline:
            return "default"
        from karpenter_core.kube.login import find_namespace

        _, settings = self.plugins_and_settings()
        return find_namespace(kubeconfig=settings.kubeconfig, context=settings.context)

    async def read_manifests(self, manifests: Manifests) -> CommandInput:
        """Read the objects of files that are read already, without a cluster.

        Raises:
            BadInputError: an object cannot be used.
        """
        log_to_stderr()
        if manifests.snapshot is not None:
            return await self._read_snapshot(manifests, manifests.snapshot)
        return CommandInput(cluster=await self._read_offline(manifests))

    def _check_offline(self) -> None:
        if not self.offline:
            return
        if self.kubeconfig is not None or self.context is not None:
            raise SettingsError("--offline reads only files: omit --kubeconfig and --context")
        if not self.files:
            raise SettingsError("--offline needs at least one FILE (- is the standard input)")

    async def _read_snapshot(self, manifests: Manifests, file: SnapshotFile) -> CommandInput:
        """Read a snapshot with its own settings, and add the objects of the other files.

        A file of instance types replaces its catalogues, and nothing else.
        """
        from karpenter_core.cli.catalogues import CatalogueSource, open_providers
        from karpenter_core.cli.cluster_input import LocatedObject, build_cluster
        from karpenter_core.cli.cluster_listing import overlay_objects
        from karpenter_core.cli.object_reader import ObjectDecoder
        from karpenter_core.cli.snapshot_file.header import (
            labels_from_json,
            read_header,
            settings_from_json,
        )
        from karpenter_core.cli.snapshot_file.reading import SnapshotCatalogues, objects_of
        from karpenter_core.operator.kind_groups import kind_groups
        from karpenter_core.operator.solve_options import solve_options
        from karpenter_core.provider.host.manager import load_plugins

        header = read_header(file.header, file.where)
        settings = self.adjusted(settings_from_json(header.settings, file.where))
        labels = labels_from_json(header.labels, file.where)
        groups = kind_groups(settings)
        plugins = load_plugins()
        reader = ObjectDecoder(plugins.node_class_models(), labels, groups=groups)
        listed, notes = objects_of(file, reader.codecs)
        additions = reader.read_all(manifests.entries)
        context = context_of(
            settings,
            now=header.taken_at,
            options=solve_options(settings, max_instance_types=header.max_instance_types),
            labels=labels,
            groups=groups,
        )

        async def build(
            catalogues: Catalogues, objects: list[LocatedObject], more: tuple[str, ...]
        ) -> ClusterInput:
            return await build_cluster(
                objects,
                catalogues,
                context,
                is_lenient=True,
                notes=(*header.notes, *notes, *more),
            )

        async def read(catalogues: Catalogues) -> CommandInput:
            plain = await build(catalogues, listed, ())
            command_input = input_with_settings(plain, settings)
            if not manifests.entries:
                return command_input
            objects = overlay_objects((each.found for each in listed), additions)
            changed = await build(catalogues, objects, (*manifests.notes, *reader.notes()))
            return replace(command_input, cluster=changed, before=plain)

        types_file = self.instance_types_file
        if types_file is None:
            return await read(SnapshotCatalogues(header, file.where))
        opening = open_providers(plugins, settings=settings, instance_types_file=types_file)
        async with opening as providers:
            return await read(CatalogueSource(providers, with_file=True))

    async def _read_offline(self, manifests: Manifests) -> ClusterInput:
        """Read files; use default settings, so that the environment has no influence."""
        from karpenter_core.cli.catalogues import (
            CatalogueSource,
            max_instance_types,
            open_providers,
        )
        from karpenter_core.cli.cluster_input import build_cluster
        from karpenter_core.cli.object_reader import ObjectDecoder, groups_in_use, latest_creation
        from karpenter_core.kube.wire.kind_groups import KindGroup
        from karpenter_core.operator.solve_options import solve_options

        plugins, settings = self.plugins_and_settings()
        settings = self.adjusted(settings)
        entries = manifests.entries
        groups = {
            *groups_in_use(entries),
            KindGroup.OVERLAYS,
            KindGroup.QUOTAS,
            *((KindGroup.SELECTORS,) if settings.scheduler_config else ()),
        }
        opening = open_providers(
            plugins, settings=settings, instance_types_file=self.instance_types_file
        )
        async with opening as providers:
            labels = providers.label_classes()
            reader = ObjectDecoder(providers.node_class_models(), labels, groups=groups)
            objects = reader.read_all(entries)
            return await build_cluster(
                objects,
                CatalogueSource(providers, with_file=self.instance_types_file is not None),
                context_of(
                    settings,
                    now=latest_creation(entries),
                    options=solve_options(
                        settings, max_instance_types=max_instance_types(providers)
                    ),
                    labels=labels,
                    groups=groups,
                ),
                notes=(*manifests.notes, *reader.notes()),
            )

    def adjusted(self, settings: Settings) -> Settings:
        """Return the settings with those that the options of the command replace.

        Raises:
            SettingsError: an option cannot be used.
        """
        from karpenter_core.operator.commitments_setting import parse_commitments
        from karpenter_core.operator.scheduler_config import parse_scheduler_config

        if self.commitments is not None:
            settings = replace(settings, commitments=parse_commitments(self.commitments))
        if self.scheduler_config is not None:
            settings = replace(
                settings, scheduler_config=parse_scheduler_config(self.scheduler_config)
            )
        if self.ignore_preferences:
            settings = replace(settings, preference_policy="Ignore")
        if self.packing is not None:
            settings = replace(settings, packing=self.packing.value)
        return settings

    def plugins_and_settings(self) -> tuple[Plugins, Settings]:
        """Load the plug-ins and the settings that `karpenter run` would use.

        With --offline they are default settings, so that the environment has no influence.

        Raises:
            SettingsError: a setting cannot be used, or options exclude each other.
        """
        from karpenter_core.operator.settings import Settings
        from karpenter_core.operator.settings_loader import load_settings, selected_plugins
        from karpenter_core.provider.host.manager import load_plugins

        self._check_offline()
        if self.offline:
            return load_plugins(), Settings(cluster_name="offline")  # no instance has this tag
        plugins = load_plugins(selected=selected_plugins((), os.environ))
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        settings = load_settings((), os.environ, plugin_options=specs)
        if self.kubeconfig is not None:
            settings = replace(settings, kubeconfig=str(self.kubeconfig))
        if self.context is not None:
            settings = replace(settings, context=self.context)
        return plugins, settings


def help_of(command: Callable[..., None]) -> str:
    """Return a command's docstring with each paragraph on one line, for wrapping."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
