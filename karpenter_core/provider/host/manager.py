"""Finds and loads the plug-ins; refuses invalid ones at start.

Plug-ins come from entry points of the group `karpenter` and from the caller (built-ins, tests). All
errors that can be found without running a plug-in are found here: hooks that do not exist,
arguments that do not exist, a forgotten `@hookimpl`, a wrong contract version, missing mandatory
hooks, and two plug-ins with the same kind, name or setting. Each message names both sides: the
plug-in and its distribution.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar, final

import pluggy

from karpenter_core.api.durations import format_duration
from karpenter_core.errors import CloudProviderError, PluginError
from karpenter_core.provider import hookspecs
from karpenter_core.provider.contract import CONTRACT_VERSION, POLLING_BOUNDS, READ_BOUNDS
from karpenter_core.provider.host.declared_values import info_problem, setting_problem
from karpenter_core.provider.host.hooks import (
    ADD_COMMANDS,
    ADD_SETTINGS,
    HOOKS,
    PROVIDER_INFO,
    CommandArguments,
    NoArguments,
)
from karpenter_core.provider.host.node_class_check import resource_problem
from karpenter_core.provider.kit.one_by_one import item_call_mode
from karpenter_core.provider.kit.spelling import did_you_mean, hook_problems
from karpenter_core.provider.markers import PROJECT
from karpenter_core.provider.value_text import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import typer

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.contract import ProviderInfo, SettingSpec
    from karpenter_core.provider.host.hooks import Hook
    from karpenter_core.provider.kit.one_by_one import ItemCallMode

__all__ = ["MANDATORY_HOOKS", "LoadedProvider", "Plugins", "load_plugins"]

Request = TypeVar("Request", bound="Mapping[str, object]")
Result = TypeVar("Result")

MANDATORY_HOOKS: Final = tuple(hook.name for hook in HOOKS if hook.mandatory)
"""Mandatory hooks of a provider."""

_WITHOUT_KIND: Final = frozenset(hook.name for hook in HOOKS if hook.open or hook.any_plugin)
"""Hooks that a plug-in may implement without being a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PluginSource:
    """A plug-in and where it came from."""

    name: str
    origin: str
    plugin: object

    def __str__(self) -> str:
        return f'plug-in "{self.name}" ({self.origin})'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProvider:
    """A plug-in that owns NodeClass kinds."""

    name: str
    info: ProviderInfo
    origin: str
    """The distribution and version it came with."""
    plugin: object

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """Group and kind of each NodeClass it serves."""
        return tuple((m.resource.group, m.resource.kind) for m in self.info.node_classes)


@final
class Plugins:
    """The loaded plug-ins, and which of them is called for a hook."""

    __slots__ = ("_callers", "_names", "_pm", "_sources", "owners", "providers")

    def __init__(self, pm: pluggy.PluginManager, sources: Sequence[_PluginSource]) -> None:
        self._pm: Final = pm
        self._sources: Final = {source.name: source for source in sources}
        self._names: Final = tuple(source.name for source in sources)
        self._callers: Final[dict[tuple[str, str], Callable[..., object] | None]] = {}
        self.providers: Final = self._read_infos()
        self.owners: Final = self._assign_owners()

    @property
    def names(self) -> tuple[str, ...]:
        """Every loaded plug-in, in the order they are asked."""
        return self._names

    def origin(self, name: str) -> str:
        """Return the distribution and version a plug-in came with."""
        return self._sources[name].origin

    def caller(self, hook: str, name: str) -> Callable[..., object] | None:
        """Return the hook as it reaches one plug-in only; None when that does not implement it."""
        key = (hook, name)
        if key not in self._callers:
            chosen = self._sources[name].plugin
            implementers = [i.plugin for i in getattr(self._pm.hook, hook).get_hookimpls()]
            others = [plugin for plugin in implementers if plugin is not chosen]
            self._callers[key] = (
                self._pm.subset_hook_caller(hook, others) if chosen in implementers else None
            )
        return self._callers[key]

    def item_call_mode(self, hook: str, name: str) -> ItemCallMode | None:
        """Return how a plug-in's hook is called for one item; None when it takes many at once."""
        chosen = self._sources[name].plugin
        for implementation in getattr(self._pm.hook, hook).get_hookimpls():
            if implementation.plugin is chosen:
                return item_call_mode(implementation.function)
        return None

    def implementers(self, hook: str) -> tuple[str, ...]:
        """Return the names of the plug-ins that implement a hook, in the order they are asked."""
        return tuple(name for name in self._names if self.caller(hook, name) is not None)

    def add_commands(self, app: typer.Typer) -> None:
        """Let every plug-in add its commands to the program.

        Raises:
            PluginError: a plug-in could not.
        """
        for name in self.implementers(ADD_COMMANDS.name):
            self._ask(ADD_COMMANDS, name, CommandArguments(app=app))

    def node_class_models(self) -> Mapping[tuple[str, str], type[NodeClass]]:
        """Return the model of each NodeClass kind, by group and kind."""
        return {
            (model.resource.group, model.resource.kind): model
            for provider in self.providers.values()
            for model in provider.info.node_classes
        }

    def settings(self) -> Mapping[str, tuple[SettingSpec, ...]]:
        """Return the settings of each plug-in.

        Plug-ins may share one, under the same flag and variable and of the same type; each has
        its own default and meaning.

        Raises:
            PluginError: two plug-ins declare a flag or variable differently.
        """
        result: dict[str, tuple[SettingSpec, ...]] = {}
        owner_by_word: dict[str, tuple[str, SettingSpec]] = {}
        for name in self.implementers(ADD_SETTINGS.name):
            result[name] = self._ask(ADD_SETTINGS, name, NoArguments()) or ()
            for spec in result[name]:
                if problem := setting_problem(spec):
                    raise PluginError(f"{self._sources[name]}: {problem}")
                for word in (spec.flag, spec.env):
                    other, declared = owner_by_word.setdefault(word, (name, spec))
                    if _setting_shape(declared) != _setting_shape(spec):
                        raise PluginError(
                            f'setting "{word}" is declared by {self._sources[other]} '
                            f"and, differently, by {self._sources[name]}"
                        )
        return result

    def _ask(self, hook: Hook[Request, Result], name: str, request: Request) -> Result:
        """Call a hook of one plug-in while loading."""
        caller = self.caller(hook.name, name)
        if caller is None:
            raise PluginError(f"{self._sources[name]} does not implement {hook.name}")
        try:
            answer = hook.single(caller(**request))
        except KeyboardInterrupt:  # the user's: this runs in the main thread
            raise
        except BaseException as error:
            raise PluginError(
                f"{self._sources[name]}: {hook.name} failed: {error_text(error)}"
            ) from error
        try:
            return hook.read(answer, request=request, where=str(self._sources[name]))
        except CloudProviderError as error:
            raise PluginError(str(error)) from error

    def _read_infos(self) -> Mapping[str, LoadedProvider]:
        providers: dict[str, LoadedProvider] = {}
        for name, source in self._sources.items():
            if self.caller(PROVIDER_INFO.name, name) is None:
                self._check_open_only(source)
                continue
            info = self._ask(PROVIDER_INFO, name, NoArguments())
            _check_info(source, info)
            missing = [hook for hook in MANDATORY_HOOKS if self.caller(hook, name) is None]
            if missing:
                raise PluginError(f"{source} is a provider but lacks {', '.join(missing)}")
            providers[name] = LoadedProvider(
                name=name,
                info=info,
                origin=source.origin,
                plugin=source.plugin,
            )
        return providers

    def _check_open_only(self, source: _PluginSource) -> None:
        callers = self._pm.get_hookcallers(source.plugin) or []
        closed = sorted({c.name for c in callers} - _WITHOUT_KIND)
        if closed:
            raise PluginError(
                f"{source} implements {', '.join(closed)} but not karpenter_provider_info, "
                "so that it serves no NodeClass"
            )

    def _assign_owners(self) -> Mapping[tuple[str, str], str]:
        owners: dict[tuple[str, str], str] = {}
        for provider in self.providers.values():
            for group, kind in provider.kinds:
                first = owners.setdefault((group, kind), provider.name)
                if first != provider.name:
                    raise PluginError(
                        f"NodeClass kind {kind}.{group} is served by {self._sources[first]} "
                        f"and by {self._sources[provider.name]}; load only one of them"
                    )
        return owners


def load_plugins(
    *,
    selected: Iterable[str] | None = None,
    extra: Mapping[str, object] | None = None,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
) -> Plugins:
    """Load the installed plug-ins (all, or the `selected` names) and the `extra` ones.

    Raises:
        PluginError: a plug-in cannot be used, or two of them clash.
    """
    points = _entry_points() if entry_points is None else entry_points
    sources = [*_installed(points, selected)]
    for name, plugin in (extra or {}).items():
        sources.append(_PluginSource(name=name, origin="given by the program", plugin=plugin))
    _check_names(sources)

    manager = _HookManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    # pluggy asks the latest registered first; plug-ins are asked in the order of their names
    ordered = sorted(sources, key=lambda source: source.name)
    for source in reversed(ordered):
        _register(manager, source)
    return Plugins(manager, ordered)


def missing_plugin(name: str, *, installed: Iterable[str]) -> PluginError:
    """Return the error for a plug-in that is not installed, with the command that installs it.

    The command names a folder: no package index has these distributions.
    """
    names = ", ".join(sorted(installed)) or "none"
    requirements = importlib.metadata.requires("karpenter-core") or ()
    is_shipped = any(
        each.partition(";")[0].strip() == f"karpenter-provider-{name}" for each in requirements
    )
    command = f"; in a checkout of karpenter-core: pip install ./providers/{name}"
    remedy = command if is_shipped else ""
    return PluginError(f'plug-in "{name}" is not installed (installed: {names}){remedy}')


@cache
def _entry_points() -> importlib.metadata.EntryPoints:
    """Return the entry points of the installed plug-ins; reading them opens every distribution."""
    return importlib.metadata.entry_points(group=PROJECT)


def _installed(
    entry_points: Iterable[importlib.metadata.EntryPoint], selected: Iterable[str] | None
) -> Iterable[_PluginSource]:
    points = sorted(entry_points, key=lambda point: (point.name, _origin(point)))
    if selected is not None:
        selected_names = set(selected)
        unknown = sorted(selected_names - {point.name for point in points})
        if unknown:
            raise missing_plugin(unknown[0], installed={point.name for point in points})
        points = [point for point in points if point.name in selected_names]
    for point in points:
        yield _PluginSource(name=point.name, origin=_origin(point), plugin=_load(point))


def _load(point: importlib.metadata.EntryPoint) -> object:
    """Import a plug-in; a class is made into an object, so that each process has its own."""
    try:
        plugin = point.load()
        return plugin() if inspect.isclass(plugin) else plugin
    except KeyboardInterrupt:  # the user's: this runs in the main thread
        raise
    except BaseException as error:
        raise PluginError(
            f'plug-in "{point.name}" ({_origin(point)}) cannot be loaded '
            f"from {point.value}: {error_text(error)}"
        ) from error


def _origin(point: importlib.metadata.EntryPoint) -> str:
    return _name_and_version(point.dist) if point.dist else "unknown distribution"


@cache
def _name_and_version(distribution: importlib.metadata.Distribution) -> str:
    return f"{distribution.name} {distribution.version}"


def _check_names(sources: Iterable[_PluginSource]) -> None:
    source_by_name: dict[str, _PluginSource] = {}
    for source in sources:
        first = source_by_name.setdefault(source.name, source)
        if first is not source:
            raise PluginError(
                f'two plug-ins are named "{source.name}": {first.origin} and {source.origin}'
            )


@final
class _HookManager(pluggy.PluginManager):
    """Looks for hooks among public names alone: the look-up of each name takes 0.1 ms."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a hook, or None for what is none."""
        return None if name.startswith("_") else super().parse_hookimpl_opts(plugin, name)


def _register(manager: pluggy.PluginManager, source: _PluginSource) -> None:
    for problem in hook_problems(source.plugin):
        raise PluginError(f"{source}: {problem}")
    try:
        manager.register(source.plugin, name=source.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{source}: {_one_line(str(error))}") from error
    except ValueError as error:  # the same object under two names
        raise PluginError(f"{source} is the same object as another plug-in") from error


def _setting_shape(spec: SettingSpec) -> tuple[str, str, type]:
    """Return what plug-ins that share a setting agree in."""
    return spec.flag, spec.env, type(spec.default)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_info(source: _PluginSource, info: ProviderInfo) -> None:
    if info.contract_version != CONTRACT_VERSION:
        raise PluginError(
            f"{source} was written for contract version {info.contract_version}, "
            f"karpenter-core {_core_version()} supports version {CONTRACT_VERSION}"
        )
    if info.name != source.name:
        raise PluginError(
            f'{source} returns the name "{info.name}"; the entry point must have the same name'
        )
    if not info.node_classes:
        raise PluginError(f"{source} serves no NodeClass kind")
    if problem := info_problem(info):
        raise PluginError(f"{source}: {problem}")
    for model in info.node_classes:
        if problem := resource_problem(model.resource):
            raise PluginError(f"{source}: {model.__name__}: {problem}")
    for name, (shortest, longest) in POLLING_BOUNDS.items():
        _check_period(
            f"{source}: polling_periods.{name}",
            getattr(info.polling_periods, name, None),
            shortest,
            longest,
        )
    for read in info.reads:
        _check_period(f"{source}: period of the read {read}", read.period, *READ_BOUNDS)
    hook_names = {hook.name for hook in HOOKS}
    for hook in sorted(set(info.batch_limits) - hook_names):
        meant = did_you_mean(hook, hook_names)
        raise PluginError(f'{source}: batch_limits name the unknown hook "{hook}"{meant}')


def _check_period(field: str, period: object, shortest: timedelta, longest: timedelta) -> None:
    if not isinstance(period, timedelta):
        raise PluginError(f"{field} must be a timedelta, not {period!r}")
    if not shortest <= period <= longest:
        raise PluginError(
            f"{field} is {format_duration(period)}; it must be from "
            f"{format_duration(shortest)} to {format_duration(longest)}"
        )


def _core_version() -> str:
    return importlib.metadata.version("karpenter-core")
