"""Defines the hooks as typed values: request, result, and way of calling.

For pluggy a hook name is a string. The host uses the constants of this module instead, so that the
type checker knows the arguments and the result of a call. Results of plug-ins have no static types:
`Hook.read` converts a result to the type that the hook promises, or raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import AsyncGeneratorType, GeneratorType, NoneType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypedDict, TypeVar, cast, final

from karpenter_core.api.prices import Price
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    FencedError,
    KarpenterError,
    PluginError,
    SettingsError,
)
from karpenter_core.provider.contract import (
    Conversion,
    DriftFinding,
    Finding,
    Instance,
    InstanceListing,
    Interruption,
    LabelClasses,
    LaunchedInstance,
    NodeClassHash,
    NodeClassResolution,
    PeriodicTask,
    ProviderInfo,
    RegistrationGate,
    RegistrationRefusal,
    SettingSpec,
    TerminationStatus,
)
from karpenter_core.provider.value_text import value_text
from karpenter_core.scheduling.instance_types import InstanceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import typer

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import (
        CatalogueOffering,
        Decision,
        DriftOutcome,
        FetchOutcome,
        LaunchOutcome,
        LaunchRequest,
        ProviderContext,
        TerminateOutcome,
    )
    from karpenter_core.state.snapshot import StateNode

__all__ = ["HOOKS", "Hook"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Request = TypeVar("Request", bound="Mapping[str, object]")
Result = TypeVar("Result")


# -- answers -----------------------------------------------------------------------------------


class AnswerType(Protocol[T_co]):
    """Result type of a hook."""

    def read(self, answer: object, *, count: int | None, where: str) -> T_co:
        """Return an answer if it is what the hook promises; `where` begins the error.

        Raises:
            CloudProviderError: it is not.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class SingleAnswer(Generic[T]):
    """One value of a type."""

    type: type[T]

    def read(self, answer: object, *, count: int | None, where: str) -> T:
        """Return the value."""
        del count
        if not isinstance(answer, self.type):
            raise CloudProviderError(
                f"{where} must return {self.type.__name__}, not {value_text(answer)}"
            )
        return answer


@final
@dataclass(frozen=True, slots=True)
class AlternativeAnswer(Generic[T]):
    """One value of one of some types."""

    types: tuple[type[T], ...]

    def read(self, answer: object, *, count: int | None, where: str) -> T:
        """Return the value."""
        del count
        if not isinstance(answer, self.types):
            names = " or ".join(each.__name__ for each in self.types)
            raise CloudProviderError(f"{where} must return {names}, not {value_text(answer)}")
        return answer


@final
@dataclass(frozen=True, slots=True)
class PluralAnswer(Generic[T]):
    """A list of values of some types; of `count` values where that is known."""

    types: tuple[type[T], ...]

    def read(self, answer: object, *, count: int | None, where: str) -> tuple[T, ...]:
        """Return the values."""
        if not isinstance(answer, list | tuple):
            raise CloudProviderError(f"{where} must return a list, not {value_text(answer)}")
        items = cast("Sequence[object]", answer)
        if count is not None and len(items) != count:
            raise CloudProviderError(f"{where} returned {len(items)} outcomes for {count} items")
        return tuple(self._item(item, where) for item in items)

    def _item(self, item: object, where: str) -> T:
        if not isinstance(item, self.types):
            type_names = " or ".join(t.__name__ for t in self.types)
            raise CloudProviderError(
                f"{where} must return {type_names} for each item, not {value_text(item)}"
            )
        return item


@final
@dataclass(frozen=True, slots=True)
class OptionalAnswer(Generic[T]):
    """Another answer, or None."""

    answer: AnswerType[T]

    def read(self, answer: object, *, count: int | None, where: str) -> T | None:
        """Return None, or what the other answer is."""
        return None if answer is None else self.answer.read(answer, count=count, where=where)


@final
class ReasonAnswer:
    """A text that is not empty, or None: False or an empty text could mean either."""

    def read(self, answer: object, *, count: int | None, where: str) -> str | None:
        """Return the text."""
        del count
        if answer is None or (isinstance(answer, str) and answer):
            return answer
        raise CloudProviderError(f"{where} must return a reason or None, not {value_text(answer)}")


@final
class NoAnswer:
    """Nothing; what is returned all the same is ignored, except a generator: nothing of it ran."""

    def read(self, answer: object, *, count: int | None, where: str) -> None:
        """Return None."""
        del count
        if isinstance(answer, GeneratorType | AsyncGeneratorType):
            raise CloudProviderError(f"{where} must not yield: nothing of it ran")


# -- hooks -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Hook(Generic[Request, Result]):
    """One hook of `provider.hookspecs`: `Request` are its arguments, `Result` is its answer."""

    name: str
    answer: AnswerType[Result]
    items: Callable[[Request], Sequence[object]] | None = None
    """The argument with the items, where the hook answers with one outcome for each of them."""
    mandatory: bool = False
    """Every provider implements it."""
    fenced: bool = False
    """It may change something in a cloud: it is called only while this process leads."""
    observed: bool = False
    """An observer may call it although it is fenced, if its provider declares `ProviderInfo.observes`."""
    open: bool = False
    """It is asked of every plug-in at once, so pluggy gives a list of answers."""
    any_plugin: bool = False
    """A plug-in that is no provider may implement it too, as it may all that are `open`."""
    may_raise: tuple[type[KarpenterError], ...] = (CloudProviderError, FencedError)
    """Errors that keep their type. Others, such as those about the input of a user or from the API server, would
    be taken for errors of the core itself."""
    measured_as: str = ""
    """The method under which its calls are measured; empty where they are not."""

    def single(self, returned: object) -> object:
        """Return the answer of the one plug-in that was asked; a coroutine if the hook is one."""
        if not self.open:
            return returned
        return next(iter(cast("list[object]", returned)), None)  # empty where it answered None

    def at(self, plugin: str) -> str:
        """Name plug-in and hook, as errors of an answer begin."""
        return f'plug-in "{plugin}": {self.name}'

    def read(self, answer: object, *, request: Request, where: str) -> Result:
        """Return what a plug-in answered if it is what the hook promises; `where` names the plug-in.

        Raises:
            CloudProviderError: it is not.
        """
        count = len(self.items(request)) if self.items is not None else None
        return self.answer.read(answer, count=count, where=f"{where}: {self.name}")


# -- arguments ---------------------------------------------------------------------------------


class NoArguments(TypedDict):
    """A hook that is called without any."""


class StartArguments(TypedDict):
    """Of `karpenter_start`."""

    context: ProviderContext


class NodeClassArguments(TypedDict):
    """Of the hooks about one NodeClass."""

    node_class: NodeClass


class InstanceTypesArguments(TypedDict):
    """Of `karpenter_list_instance_types`."""

    node_pool: NodePool
    node_class: NodeClass


class LaunchArguments(TypedDict):
    """Of `karpenter_launch_instances`."""

    requests: Sequence[LaunchRequest]


class ProviderIdArguments(TypedDict):
    """Of the hooks about instances."""

    provider_ids: Sequence[str]


class RegisteringNodeArguments(TypedDict):
    """Of the hooks about a claim and its Node."""

    node_claim: NodeClaim
    node: NodeView


class DriftArguments(TypedDict):
    """Of `karpenter_detect_drift`."""

    node_claims: Sequence[NodeClaim]
    node_class: NodeClass


class InterruptionIdArguments(TypedDict):
    """Of `karpenter_acknowledge_interruptions`."""

    ids: Sequence[str]


class NodeArguments(TypedDict):
    """Of `karpenter_read_interruptions`."""

    node: NodeView


class CommandArguments(TypedDict):
    """Of `karpenter_add_commands`."""

    app: typer.Typer


class OfferingArguments(TypedDict):
    """Of the hooks about a whole catalogue."""

    offerings: Sequence[CatalogueOffering]


class CandidateArguments(TypedDict):
    """Of `karpenter_veto_candidate`."""

    candidate: StateNode


class DecisionArguments(TypedDict):
    """Of `karpenter_observe_decision`."""

    decision: Decision


# -- the table, in the order of hookspecs --------------------------------------------------------

PROVIDER_INFO: Final[Hook[NoArguments, ProviderInfo]] = Hook(
    name="karpenter_provider_info", answer=SingleAnswer(ProviderInfo), mandatory=True
)
START: Final[Hook[StartArguments, None]] = Hook(
    name="karpenter_start",
    answer=NoAnswer(),
    any_plugin=True,
    may_raise=(CloudProviderError, FencedError, SettingsError, BadInputError, PluginError),
)
STOP: Final[Hook[NoArguments, None]] = Hook(
    name="karpenter_stop", answer=NoAnswer(), any_plugin=True
)
CLASSIFY_LABELS: Final[Hook[NoArguments, LabelClasses]] = Hook(
    name="karpenter_classify_labels", answer=SingleAnswer(LabelClasses)
)
RESOLVE_NODE_CLASS: Final[Hook[NodeClassArguments, NodeClassResolution]] = Hook(
    name="karpenter_resolve_node_class",
    answer=SingleAnswer(NodeClassResolution),
    fenced=True,
    observed=True,
)
HASH_NODE_CLASS: Final[Hook[NodeClassArguments, NodeClassHash]] = Hook(
    name="karpenter_hash_node_class", answer=SingleAnswer(NodeClassHash)
)
FINALIZE_NODE_CLASS: Final[Hook[NodeClassArguments, None]] = Hook(
    name="karpenter_finalize_node_class", answer=NoAnswer(), fenced=True
)
LIST_INSTANCE_TYPES: Final[Hook[InstanceTypesArguments, tuple[InstanceType, ...]]] = Hook(
    name="karpenter_list_instance_types",
    answer=PluralAnswer((InstanceType,)),
    mandatory=True,
    measured_as="GetInstanceTypes",
)
LAUNCH_INSTANCES: Final[Hook[LaunchArguments, tuple[LaunchOutcome, ...]]] = Hook(
    name="karpenter_launch_instances",
    answer=PluralAnswer((LaunchedInstance, CloudProviderError)),
    items=lambda request: request["requests"],
    mandatory=True,
    fenced=True,
    measured_as="Create",
)
FETCH_INSTANCES: Final[Hook[ProviderIdArguments, tuple[FetchOutcome, ...]]] = Hook(
    name="karpenter_fetch_instances",
    answer=PluralAnswer((Instance, CloudProviderError)),
    items=lambda request: request["provider_ids"],
    mandatory=True,
    measured_as="Get",
)
LIST_INSTANCES: Final[Hook[NoArguments, InstanceListing]] = Hook(
    name="karpenter_list_instances",
    answer=SingleAnswer(InstanceListing),
    mandatory=True,
    measured_as="List",
)
GATE_REGISTRATION: Final[
    Hook[RegisteringNodeArguments, RegistrationGate | RegistrationRefusal | None]
] = Hook(
    name="karpenter_gate_registration",
    answer=OptionalAnswer(AlternativeAnswer((RegistrationGate, RegistrationRefusal))),
)
SYNC_INSTANCE: Final[Hook[RegisteringNodeArguments, None]] = Hook(
    name="karpenter_sync_instance", answer=NoAnswer(), fenced=True
)
DETECT_DRIFT: Final[Hook[DriftArguments, tuple[DriftOutcome, ...]]] = Hook(
    name="karpenter_detect_drift",
    answer=PluralAnswer((DriftFinding, CloudProviderError, NoneType)),
    items=lambda request: request["node_claims"],
    measured_as="IsDrifted",
)
POLL_INTERRUPTIONS: Final[Hook[NoArguments, tuple[Interruption, ...] | None]] = Hook(
    name="karpenter_poll_interruptions", answer=OptionalAnswer(PluralAnswer((Interruption,)))
)
ACKNOWLEDGE_INTERRUPTIONS: Final[Hook[InterruptionIdArguments, None]] = Hook(
    name="karpenter_acknowledge_interruptions", answer=NoAnswer(), fenced=True
)
READ_INTERRUPTIONS: Final[Hook[NodeArguments, tuple[Interruption, ...] | None]] = Hook(
    name="karpenter_read_interruptions", answer=OptionalAnswer(PluralAnswer((Interruption,)))
)
TERMINATE_INSTANCES: Final[Hook[ProviderIdArguments, tuple[TerminateOutcome, ...]]] = Hook(
    name="karpenter_terminate_instances",
    answer=PluralAnswer((TerminationStatus, CloudProviderError)),
    items=lambda request: request["provider_ids"],
    mandatory=True,
    fenced=True,
    measured_as="Delete",
)
DECLARE_TASKS: Final[Hook[NoArguments, tuple[PeriodicTask, ...]]] = Hook(
    name="karpenter_declare_tasks", answer=PluralAnswer((PeriodicTask,)), any_plugin=True
)
CHECK: Final[Hook[NoArguments, tuple[Finding, ...]]] = Hook(
    name="karpenter_check", answer=PluralAnswer((Finding,)), any_plugin=True
)
ADD_SETTINGS: Final[Hook[NoArguments, tuple[SettingSpec, ...] | None]] = Hook(
    name="karpenter_add_settings",
    answer=OptionalAnswer(PluralAnswer((SettingSpec,))),
    open=True,
)
ADD_COMMANDS: Final[Hook[CommandArguments, None]] = Hook(
    name="karpenter_add_commands", answer=NoAnswer(), open=True
)
DECLARE_CONVERSIONS: Final[Hook[NoArguments, tuple[Conversion, ...] | None]] = Hook(
    name="karpenter_declare_conversions",
    answer=OptionalAnswer(PluralAnswer((Conversion,))),
    open=True,
)
ADJUST_PRICES: Final[Hook[OfferingArguments, tuple[Price | None, ...] | None]] = Hook(
    name="karpenter_adjust_prices",
    answer=OptionalAnswer(PluralAnswer((Price, NoneType))),
    items=lambda request: request["offerings"],
    open=True,
)
RATE_RISK: Final[Hook[OfferingArguments, tuple[float | None, ...] | None]] = Hook(
    name="karpenter_rate_risk",
    answer=OptionalAnswer(PluralAnswer((float, int, NoneType))),
    items=lambda request: request["offerings"],
    open=True,
)
VETO_CANDIDATE: Final[Hook[CandidateArguments, str | None]] = Hook(
    name="karpenter_veto_candidate", answer=ReasonAnswer(), open=True
)
OBSERVE_DECISION: Final[Hook[DecisionArguments, None]] = Hook(
    name="karpenter_observe_decision", answer=NoAnswer(), open=True
)

HOOKS: Final = (
    PROVIDER_INFO,
    START,
    STOP,
    CLASSIFY_LABELS,
    RESOLVE_NODE_CLASS,
    HASH_NODE_CLASS,
    FINALIZE_NODE_CLASS,
    LIST_INSTANCE_TYPES,
    LAUNCH_INSTANCES,
    FETCH_INSTANCES,
    LIST_INSTANCES,
    GATE_REGISTRATION,
    SYNC_INSTANCE,
    DETECT_DRIFT,
    POLL_INTERRUPTIONS,
    ACKNOWLEDGE_INTERRUPTIONS,
    READ_INTERRUPTIONS,
    TERMINATE_INSTANCES,
    DECLARE_TASKS,
    CHECK,
    ADD_SETTINGS,
    ADD_COMMANDS,
    DECLARE_CONVERSIONS,
    ADJUST_PRICES,
    RATE_RISK,
    VETO_CANDIDATE,
    OBSERVE_DECISION,
)
"""Every hook, in the order of `provider.hookspecs`."""
