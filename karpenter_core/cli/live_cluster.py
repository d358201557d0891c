"""Connects to a live cluster by the settings of `karpenter run`; reads it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from karpenter_core.cli.cluster_events import ControllerEvents, read_decisions
from karpenter_core.cli.cluster_input import LocatedObject, build_cluster, input_of_state
from karpenter_core.cli.cluster_listing import CLUSTER, connected, list_cluster, overlay_objects
from karpenter_core.cli.command_input import context_of, input_with_settings, log_to_stderr
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping
    from pathlib import Path

    from karpenter_core.cli.catalogues import CatalogueSource
    from karpenter_core.cli.cluster_input import ClusterInput, PlanningContext
    from karpenter_core.cli.command_input import CommandInput
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.kube.wire.kind_groups import KindGroup
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import LabelClasses
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.builder import StateBuilder

__all__ = ["LiveCluster", "open_cluster"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LiveCluster:
    """A connection to a cluster, and what is needed to plan for it."""

    apis: ClusterApis
    clock: Clock
    settings: Settings
    codecs: Codecs
    catalogues: CatalogueSource
    groups: Collection[KindGroup]
    labels: LabelClasses
    options: SolveOptions
    additions: tuple[LocatedObject, ...]
    """The objects of files that are added to the cluster."""
    addition_notes: tuple[str, ...]
    has_files: bool
    with_decisions: bool

    async def read(self) -> CommandInput:
        """List the cluster, and add the objects of files.

        Raises:
            ApiError: the cluster does not answer, or refuses.
        """
        listing = await list_cluster(self.apis, self.codecs)
        said = await read_decisions(self.apis) if self.with_decisions else ControllerEvents()
        listing = replace(listing, notes=(*listing.notes, *said.notes))
        plain = await self._build(
            [LocatedObject(CLUSTER, listed_object) for listed_object in listing.objects],
            listing.notes,
        )
        command_input = replace(
            input_with_settings(plain, self.settings),
            is_live=True,
            decisions=said.decisions,
            refusals=said.refusals,
        )
        if not self.has_files:
            return command_input
        changed = await self._build(
            overlay_objects(listing.objects, self.additions),
            (*listing.notes, *self.addition_notes),
        )
        return replace(command_input, cluster=changed, before=plain)

    def input_of(
        self, builder: StateBuilder, *, problems: Mapping[str, str], notes: tuple[str, ...]
    ) -> ClusterInput:
        """Return the problem of a state of this cluster that has its catalogues."""
        return input_of_state(builder, self._context(), problems=problems, notes=notes)

    async def _build(self, objects: list[LocatedObject], notes: tuple[str, ...]) -> ClusterInput:
        return await build_cluster(
            objects, self.catalogues, self._context(), is_lenient=True, notes=notes
        )

    def _context(self) -> PlanningContext:
        return context_of(
            self.settings,
            now=self.clock.now(),
            options=self.options,
            labels=self.labels,
            groups=self.groups,
        )


class SourceOptions(Protocol):
    """The options of a command that select a cluster and the way to plan for it."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose objects are added to the cluster."""
        ...

    @property
    def instance_types_file(self) -> Path | None:
        """The catalogue that replaces those of the providers."""
        ...

    @property
    def with_decisions(self) -> bool:
        """Whether to read the Events of the controller too."""
        ...

    def plugins_and_settings(self) -> tuple[Plugins, Settings]:
        """Load the plug-ins and the settings that `karpenter run` would use."""
        ...

    def adjusted(self, settings: Settings) -> Settings:
        """Return the settings with those that the options of the command replace."""
        ...


@asynccontextmanager
async def open_cluster(
    source: SourceOptions, *, may_watch: bool = False
) -> AsyncGenerator[LiveCluster]:
    """Connect to the cluster of a source with the settings that `karpenter run` would use.

    Raises:
        BadInputError: a file or an object in it cannot be used.
        SettingsError: options that exclude each other, or no cluster is found.
    """
    from karpenter_core.cli.catalogues import CatalogueSource, max_instance_types, open_providers
    from karpenter_core.cli.manifests import read_files
    from karpenter_core.cli.object_reader import ObjectDecoder
    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.operator.kind_groups import kind_groups
    from karpenter_core.operator.solve_options import solve_options

    log_to_stderr()
    manifests = read_files(source.files)
    if manifests.snapshot is not None:
        raise SettingsError(f"{manifests.snapshot.where} is a snapshot: add --offline")
    plugins, settings = source.plugins_and_settings()
    settings = source.adjusted(settings)
    clock = SystemClock()
    with_file = source.instance_types_file is not None
    opening = open_providers(
        plugins, settings=settings, instance_types_file=source.instance_types_file
    )
    async with opening as providers:
        labels, models = providers.label_classes(), providers.node_class_models()
        groups = kind_groups(settings)
        reader = ObjectDecoder(models, labels, groups=groups)
        additions = tuple(reader.read_all(manifests.entries))
        api_groups = frozenset(group for group, _ in models)
        async with connected(
            settings, clock, node_class_groups=api_groups, may_watch=may_watch
        ) as apis:
            yield LiveCluster(
                apis=apis,
                clock=clock,
                settings=settings,
                codecs=reader.codecs,
                catalogues=CatalogueSource(providers, with_file=with_file),
                groups=groups,
                labels=labels,
                options=solve_options(settings, max_instance_types=max_instance_types(providers)),
                additions=additions,
                addition_notes=(*manifests.notes, *reader.notes()),
                has_files=bool(source.files),
                with_decisions=source.with_decisions,
            )
