"""The options of the process: one table makes the flags, the help, the docs and the parsing.

Names, variables and defaults are Karpenter's where Karpenter has the option. A flag beats its
environment variable, which beats the default. Text that cannot be read stops the start with a
message that names the flag or variable, the value, and what is allowed. The one exception is
Karpenter's own rule for its own options (`falls_back`): an unreadable number, truth value or duration
in a variable leaves the default in force; `Settings.warnings` says so.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address
from math import isfinite
from typing import TYPE_CHECKING, Final

from karpenter_core.api.names import parse_labels
from karpenter_core.errors import BadInputError, SettingsError
from karpenter_core.lifecycle.node.health_rules import HealthRule, parse_health_rules
from karpenter_core.lifecycle.node.repair import DEFAULT_LIMIT, UnhealthyLimit
from karpenter_core.operator.option_values import (
    FALSE_TEXTS,
    TRUE_TEXTS,
    Given,
    Option,
    Value,
    read_option,
    value_text,
)
from karpenter_core.operator.scheduler_config import parse_scheduler_config
from karpenter_core.provider.contract import FeatureGates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.records import TopologySpread
    from karpenter_core.provider.contract import SettingSpec

__all__ = [
    "OPTIONS",
    "FeatureGates",
    "Option",
    "Settings",
    "Value",
    "flag_name",
    "gate_warnings",
    "load_settings",
    "markdown_table",
    "options_by_plugin",
    "parse_feature_gates",
    "selected_plugins",
    "value_text",
]

DEFAULT_CPU_REQUESTS: Final = 1000  # upstream default, in milli-cores
DEFAULT_JOURNAL_BYTES: Final = 64 * 2**20
_CURRENCY: Final = re.compile(r"[A-Z]{3}")  # ISO 4217
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*"
)
_LAST_PORT: Final = 65535
_SHORTEST_TIMEOUT: Final = timedelta(seconds=1)


_GATE_FIELDS: Final = {
    "NodeRepair": "node_repair",
    "ReservedCapacity": "reserved_capacity",
    "SpotToSpotConsolidation": "spot_to_spot_consolidation",
    "NodeOverlay": "node_overlay",
    "StaticCapacity": "static_capacity",
    "CapacityBuffer": "capacity_buffer",
}
NOT_BUILT: Final = frozenset({"NodeOverlay", "StaticCapacity", "CapacityBuffer"})
"""Gates of Karpenter that are known here and change nothing yet."""
DEFAULT_GATES: Final = ",".join(
    f"{gate}={str(getattr(FeatureGates(), name)).lower()}" for gate, name in _GATE_FIELDS.items()
)


OPTIONS: Final = (
    Option(
        flag="kubeconfig",
        env="KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster that holds NodePools and NodeClaims; "
        "empty = in-cluster credentials, else ~/.kube/config.",
    ),
    Option(
        flag="context",
        env="KUBE_CONTEXT",
        default="",
        help="Context within the kubeconfig; empty = its current one.",
    ),
    Option(
        flag="workload-kubeconfig",
        env="WORKLOAD_KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster whose pods wait and whose nodes are launched, "
        "when it is another one.",
    ),
    Option(
        flag="cluster-name",
        env="CLUSTER_NAME",
        default="",
        help="Name of the cluster whose nodes are launched, by which providers tell its machines "
        "from another cluster's; one that tags machines refuses to start without it.",
    ),
    Option(
        flag="providers",
        env="PROVIDERS",
        default="",
        help="Providers to load, comma separated; empty = every installed one.",
    ),
    Option(
        flag="cache-folder",
        env="CACHE_FOLDER",
        default="",
        help="Where catalogues and prices are kept between starts; empty = ~/.cache/karpenter.",
    ),
    Option(
        flag="karpenter-service",
        env="KARPENTER_SERVICE",
        default="",
        help="Accepted for existing charts; has no effect.",
        falls_back=True,
        without_effect="nothing here needs the name of the Service",
    ),
    Option(
        flag="bind-address",
        env="BIND_ADDRESS",
        default="",
        help="Address that the metrics and probe servers bind to; empty = every interface.",
    ),
    Option(
        flag="metrics-port",
        env="METRICS_PORT",
        default=8080,
        help="Port of /metrics.",
        minimum=0,
        maximum=_LAST_PORT,
        falls_back=True,
    ),
    Option(
        flag="health-probe-port",
        env="HEALTH_PROBE_PORT",
        default=8081,
        help="Port of /healthz and /readyz.",
        minimum=0,
        maximum=_LAST_PORT,
        falls_back=True,
    ),
    Option(
        flag="decision-journal",
        env="DECISION_JOURNAL",
        default="",
        help="File that every decision is appended to as a line of JSON; empty = the last thousand "
        "are kept in memory alone (/debug/decisions on the metrics port).",
    ),
    Option(
        flag="decision-journal-max-bytes",
        env="DECISION_JOURNAL_MAX_BYTES",
        default=DEFAULT_JOURNAL_BYTES,
        help="Size at which that file is moved to FILE.1, in place of an older one, and begun anew.",
        minimum=1,
    ),
    Option(
        flag="kube-client-qps",
        env="KUBE_CLIENT_QPS",
        default=200,
        help="Requests per second to the API server, smoothed.",
        minimum=1,
        falls_back=True,
    ),
    Option(
        flag="kube-client-burst",
        env="KUBE_CLIENT_BURST",
        default=300,
        help="Requests that may go to the API server at once.",
        minimum=1,
        falls_back=True,
    ),
    Option(
        flag="enable-profiling",
        env="ENABLE_PROFILING",
        default=False,
        help="Serve /debug/pprof on the metrics port.",
        falls_back=True,
    ),
    Option(
        flag="disable-controller-warmup",
        env="DISABLE_CONTROLLER_WARMUP",
        default=True,
        help="Accepted for existing charts; has no effect: a standby always watches.",
        falls_back=True,
        without_effect="a standby always watches, so that it can lead at once",
    ),
    Option(
        flag="disable-leader-election",
        env="DISABLE_LEADER_ELECTION",
        default=False,
        help="Lead at once, without a Lease; only for a single replica.",
        falls_back=True,
    ),
    Option(
        flag="disable-cluster-state-observability",
        env="DISABLE_CLUSTER_STATE_OBSERVABILITY",
        default=False,
        help="Leave out the metrics per node, NodePool and pod.",
        falls_back=True,
    ),
    Option(
        flag="leader-election-name",
        env="LEADER_ELECTION_NAME",
        default="karpenter-leader-election",
        help="Name of the Lease.",
        falls_back=True,
    ),
    Option(
        flag="leader-election-namespace",
        env="LEADER_ELECTION_NAMESPACE",
        default="",
        help="Namespace of the Lease; empty = the process' own, else kube-system.",
        falls_back=True,
    ),
    Option(
        flag="leader-election-labels",
        env="LEADER_ELECTION_LABELS",
        default="",
        help="Labels of the Lease (key=value,...); labels that others have set stay.",
    ),
    Option(
        flag="leader-election-kubeconfig",
        env="LEADER_ELECTION_KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster that keeps the Lease, when it is another one.",
    ),
    Option(
        flag="memory-limit",
        env="MEMORY_LIMIT",
        default=-1,
        help="Memory limit of the container in bytes: above 90 % of it, unused memory is collected "
        "and given back to the system; 0 or less = no limit.",
        falls_back=True,
    ),
    Option(
        flag="cpu-requests",
        env="CPU_REQUESTS",
        default=DEFAULT_CPU_REQUESTS,
        help="CPU requests of the container in milli-cores; scales how much is done at once.",
        falls_back=True,
    ),
    Option(
        flag="log-level",
        env="LOG_LEVEL",
        default="info",
        help="How much is logged.",
        choices=("", "debug", "info", "error"),
        falls_back=True,
    ),
    Option(
        flag="log-format",
        env="LOG_FORMAT",
        default="auto",
        help="Form of log lines; auto = console on a terminal, else JSON.",
        choices=("auto", "json", "console"),
    ),
    Option(
        flag="log-output-paths",
        env="LOG_OUTPUT_PATHS",
        default="stdout",
        help="Where log lines go: stdout, stderr or files, comma separated.",
        falls_back=True,
    ),
    Option(
        flag="log-error-output-paths",
        env="LOG_ERROR_OUTPUT_PATHS",
        default="stderr",
        help="Where failures of logging itself go: stdout, stderr or files, comma separated.",
        falls_back=True,
    ),
    Option(
        flag="batch-max-duration",
        env="BATCH_MAX_DURATION",
        default=timedelta(seconds=10),
        help="Longest time pods are gathered before a scheduling pass.",
        minimum=timedelta(),
        falls_back=True,
    ),
    Option(
        flag="batch-idle-duration",
        env="BATCH_IDLE_DURATION",
        default=timedelta(seconds=1),
        help="Time without a new pending pod after which a scheduling pass begins.",
        minimum=timedelta(),
        falls_back=True,
    ),
    Option(
        flag="preference-policy",
        env="PREFERENCE_POLICY",
        default="Respect",
        help="Whether preferences of pods are tried before they are given up.",
        choices=("Respect", "Ignore"),
        falls_back=True,
    ),
    Option(
        flag="min-values-policy",
        env="MIN_VALUES_POLICY",
        default="Strict",
        help="Whether minValues of a NodePool may be relaxed when they cannot be met.",
        choices=("Strict", "BestEffort"),
        falls_back=True,
    ),
    Option(
        flag="packing",
        env="PACKING",
        default="value",
        help="value = the cheapest valid plan, first-fit = the reference's order.",
        choices=("value", "first-fit"),
    ),
    Option(
        flag="currency",
        env="CURRENCY",
        default="USD",
        help="Currency that prices are compared and reported in, by its ISO 4217 code.",
    ),
    Option(
        flag="exchange-rates",
        env="EXCHANGE_RATES",
        default="",
        help="What one unit of another currency is worth, such as CNY=0.14,EUR=1.1. Without a rate "
        "nodes are not replaced to save money (condition PricesComparable of their NodePool).",
    ),
    Option(
        flag="node-fee",
        env="NODE_FEE",
        default=0.003,
        help="What a node costs per hour beside its price, in the currency above: keeps a plan from "
        "many small nodes where a few larger ones cost as much.",
        minimum=0,
    ),
    Option(
        flag="launch-timeout",
        env="LAUNCH_TIMEOUT",
        default=timedelta(minutes=5),
        help="How long a NodeClaim may stay without an instance before it is given up.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    Option(
        flag="registration-timeout",
        env="REGISTRATION_TIMEOUT",
        default=timedelta(minutes=15),
        help="How long the Node of an instance may stay away before its NodeClaim is given up; "
        "longer for machines that boot slowly.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    Option(
        flag="out-of-service-taint",
        env="OUT_OF_SERVICE_TAINT",
        default=False,
        help="Put node.kubernetes.io/out-of-service on a deleted node that is silent and whose "
        "instance is gone or going, so that its volumes move at once.",
    ),
    Option(
        flag="ignore-dra-requests",
        env="IGNORE_DRA_REQUESTS",
        default=True,
        help="Ignore pods that ask for devices through ResourceClaims. Must be true: such pods cannot "
        "be scheduled yet.",
        falls_back=True,
    ),
    Option(
        flag="max-nodes-total",
        env="MAX_NODES_TOTAL",
        default=0,
        help="Nodes that the cluster may have, whoever made them, NodeClaims under way included; "
        "0 = any number.",
        minimum=0,
    ),
    Option(
        flag="launches-per-minute",
        env="LAUNCHES_PER_MINUTE",
        default=0,
        help="NodeClaims that may be created for each NodePool within a minute; more wait for their "
        "turn; 0 = any number.",
        minimum=0,
    ),
    Option(
        flag="pause-disruption",
        env="PAUSE_DISRUPTION",
        default=False,
        help="Disrupt nothing of our own accord; the annotation karpenter.sh/pause-disruption does "
        "so for one NodePool, without a restart.",
    ),
    Option(
        flag="repair-unhealthy-limit",
        env="REPAIR_UNHEALTHY_LIMIT",
        default=str(DEFAULT_LIMIT),
        help="Nodes of a NodePool that may be broken while node repair still replaces them: a share "
        "or a number; 0 = repair nothing.",
    ),
    Option(
        flag="repair-conditions",
        env="REPAIR_CONDITIONS",
        default="",
        help="For the gate NodeRepair: conditions of broken nodes beside those of the provider, or "
        "instead of the same one, and how long each may last, such as "
        "GPUFault=True:10m,Ready=Unknown:1h,KernelDeadlock=True:never.",
    ),
    Option(
        flag="act-on-rebalance",
        env="ACT_ON_REBALANCE",
        default=False,
        help="Replace nodes that the cloud recommends to leave, instead of only noting it.",
    ),
    Option(
        flag="feature-gates",
        env="FEATURE_GATES",
        default=DEFAULT_GATES,
        help="Optional features, A=true,B=false; gates left out keep their default.",
        falls_back=True,
    ),
    Option(
        flag="scheduler-config",
        env="SCHEDULER_CONFIG",
        default="",
        help="Default topology spread of the cluster's scheduler, as YAML or JSON. With it, Services "
        "and the controllers of pods are followed too.",
        falls_back=True,
    ),
)


def _no_values() -> dict[str, Value]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options with their values; fields are named after the flags."""

    kubeconfig: str = ""
    context: str = ""
    workload_kubeconfig: str = ""
    cluster_name: str = ""
    providers: tuple[str, ...] = ()
    cache_folder: str = ""
    karpenter_service: str = ""
    bind_address: str = ""
    metrics_port: int = 8080
    health_probe_port: int = 8081
    decision_journal: str = ""
    decision_journal_max_bytes: int = DEFAULT_JOURNAL_BYTES
    kube_client_qps: int = 200
    kube_client_burst: int = 300
    enable_profiling: bool = False
    disable_controller_warmup: bool = True
    disable_leader_election: bool = False
    disable_cluster_state_observability: bool = False
    leader_election_name: str = "karpenter-leader-election"
    leader_election_namespace: str = ""
    leader_election_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    leader_election_kubeconfig: str = ""
    memory_limit: int = -1
    cpu_requests: int = DEFAULT_CPU_REQUESTS
    log_level: str = "info"
    log_format: str = "auto"
    log_output_paths: tuple[str, ...] = ("stdout",)
    log_error_output_paths: tuple[str, ...] = ("stderr",)
    batch_max_duration: timedelta = timedelta(seconds=10)
    batch_idle_duration: timedelta = timedelta(seconds=1)
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    packing: str = "value"
    currency: str = "USD"
    exchange_rates: Mapping[str, float] = field(default_factory=dict[str, float])
    node_fee: float = 0.003
    launch_timeout: timedelta = timedelta(minutes=5)
    registration_timeout: timedelta = timedelta(minutes=15)
    out_of_service_taint: bool = False
    ignore_dra_requests: bool = True
    max_nodes_total: int = 0
    launches_per_minute: int = 0
    pause_disruption: bool = False
    repair_unhealthy_limit: UnhealthyLimit = DEFAULT_LIMIT
    repair_conditions: tuple[HealthRule, ...] = ()
    act_on_rebalance: bool = False
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    scheduler_config: tuple[TopologySpread, ...] = ()
    plugins: Mapping[str, Value] = field(default_factory=_no_values)
    """Values of the plug-ins' own options, by flag.

    One that plug-ins share, with a default of each, is there only if it was given.
    """
    warnings: tuple[str, ...] = ()
    """What is not as the options ask for: values replaced by defaults, gates that change nothing."""

    def of_plugin(self, specs: Iterable[SettingSpec]) -> dict[str, Value]:
        """Return the values of a plug-in's own options, by flag: as given, else its own defaults."""
        return {flag_name(spec): self.plugins.get(flag_name(spec), spec.default) for spec in specs}


def load_settings(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    plugin_options: Iterable[SettingSpec] = (),
) -> Settings:
    """Read the options from flags and environment.

    Raises:
        SettingsError: an unknown flag, or values that cannot be used; all of them are named.
    """
    specs = tuple(plugin_options)
    core = {option.flag: option for option in OPTIONS}
    extra = _plugin_table(specs, core)
    flags = _read_flags(arguments, core | extra)
    problems: list[str] = []
    warnings: list[str] = []
    values: dict[str, object] = {}
    for flag, option in (core | extra).items():
        given = _given(option, flags.get(flag), environment.get(option.env))
        is_shared = len(_defaults(flag, specs)) > 1
        default_text = "" if is_shared else option.default_text
        value: Value | None = None
        try:
            if given is not None:
                value = read_option(option, given, warnings.append, default=default_text)
            if value is not None or not is_shared:
                value = option.default if value is None else value
                values[flag] = _shaped(option, value, given, warnings)
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("; ".join(problems))
    return Settings(
        plugins={flag: values[flag] for flag in extra if flag in values},  # pyright: ignore[reportArgumentType] - values of plug-ins are not shaped
        warnings=tuple(warnings),
        **{option.field: values[flag] for flag, option in core.items()},  # pyright: ignore[reportArgumentType] - the table and the fields are compared by a test
    )


def options_by_plugin(
    specs: Mapping[str, Sequence[SettingSpec]],
) -> Mapping[str, tuple[Option, ...]]:
    """Return the options of each plug-in, with its own defaults.

    Raises:
        SettingsError: a plug-in's option clashes with another one.
    """
    core = {option.flag: option for option in OPTIONS}
    _plugin_table((spec for each in specs.values() for spec in each), core)
    return {name: tuple(_plugin_table(each, core).values()) for name, each in specs.items()}


def flag_name(spec: SettingSpec) -> str:
    """Return a plug-in's flag without dashes in front."""
    return spec.flag.lstrip("-")


def selected_plugins(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the plug-ins to load, read before their own options can be; None = every one."""
    option = next(item for item in OPTIONS if item.flag == "providers")
    text = environment.get(option.env, "")
    for index, argument in enumerate(arguments):
        name, separator, value = argument.lstrip("-").partition("=")
        if name != option.flag:
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        text = value if separator else following
    return _parts(text) or None


def parse_feature_gates(text: str) -> FeatureGates:
    """Read `A=true,B=false`; unknown gates change nothing, missing ones keep their default.

    Raises:
        SettingsError: a value is neither true nor false.
    """
    chosen: dict[str, bool] = {}
    for name, value in _gates_of(text):
        if name not in _GATE_FIELDS:
            continue
        if value not in TRUE_TEXTS | FALSE_TEXTS:
            message = f'feature-gates: {name} must be true or false, not "{value}"'
            raise SettingsError(message)
        chosen[_GATE_FIELDS[name]] = value in TRUE_TEXTS
    return FeatureGates(**chosen)


def gate_warnings(text: str) -> tuple[str, ...]:
    """Return what of `A=true,B=false` changes nothing: gates not built yet, and unknown names."""
    warnings: list[str] = []
    for name, value in _gates_of(text):
        if name not in _GATE_FIELDS:
            near = difflib.get_close_matches(name, _GATE_FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "it changes nothing"
            warnings.append(f'there is no gate "{name}"; {hint}')
        elif name in NOT_BUILT and value in TRUE_TEXTS:
            warnings.append(f"{name} is not built yet; the gate is known and changes nothing")
    return tuple(warnings)


def _gates_of(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if name or separator:
            yield name, value


def _plugin_table(specs: Iterable[SettingSpec], core: Mapping[str, Option]) -> dict[str, Option]:
    table: dict[str, Option] = {}
    variables = {option.env: option.flag for option in core.values()}
    for spec in specs:
        flag = flag_name(spec)
        known = table.get(flag)
        if known and (known.env, type(known.default)) == (spec.env, type(spec.default)):
            # Plug-ins may share an option, each with its own default and meaning.
            table[flag] = replace(known, falls_back=known.falls_back and spec.falls_back)
            continue
        if known or flag in core:
            message = f"option --{flag} is declared twice"
            raise SettingsError(message)
        if spec.env in variables:
            message = (
                f"variable {spec.env} is declared twice, by --{variables[spec.env]} and by --{flag}"
            )
            raise SettingsError(message)
        variables[spec.env] = flag
        table[flag] = Option(
            flag=flag,
            env=spec.env,
            default=spec.default,
            help=spec.help,
            falls_back=spec.falls_back,
        )
    return table


def _read_flags(arguments: Sequence[str], table: Mapping[str, Option]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument in {"-", "--"}:
            message = f'unexpected argument "{argument}"'
            raise SettingsError(message)
        name, separator, value = argument.lstrip("-").partition("=")
        option = table.get(name)
        if option is None:
            message = f"unknown option --{name}"
            raise SettingsError(message)
        if not separator:
            if isinstance(option.default, bool):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                message = f"option --{name} needs a value"
                raise SettingsError(message)
        given[name] = value
    return given


def _defaults(flag: str, specs: Iterable[SettingSpec]) -> set[Value]:
    return {spec.default for spec in specs if flag_name(spec) == flag}


def _given(option: Option, flag: str | None, variable: str | None) -> Given | None:
    """Return the text that counts: the flag's, else the variable's; None when neither is there."""
    if flag is not None:
        return Given(flag, f"--{option.flag}", by_flag=True)
    return None if variable is None else Given(variable, option.env, by_flag=False)


def _shaped(option: Option, value: Value, given: Given | None, warnings: list[str]) -> object:
    """Turn the text of an option into what it stands for.

    Raises:
        SettingsError: the text does not have the form that the option needs.
    """
    source = option.flag if given is None else given.source
    match option.flag:
        case "feature-gates":
            warnings += [f"{source}: {each}" for each in gate_warnings(str(value))]
            return parse_feature_gates(str(value))
        case "scheduler-config":
            return parse_scheduler_config(str(value))
        case "ignore-dra-requests" if value is False:
            raise SettingsError(
                f"{source}: must be true, not false: pods that ask for devices through "
                "ResourceClaims cannot be scheduled yet"
            )
        case "cpu-requests" if isinstance(value, int) and value <= 0:
            warnings.append(f"{source}: {value} is not above zero; {DEFAULT_CPU_REQUESTS} is used")
            return DEFAULT_CPU_REQUESTS
        case "log-level":
            return value or "info"
        case flag if flag in _SHAPES:
            try:
                return _SHAPES[flag](str(value))
            except BadInputError as error:
                raise SettingsError(f"{source}: {error}") from error
        case _:
            return value


def _parts(text: str) -> tuple[str, ...]:
    """Read a comma separated list."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _parse_rates(text: str) -> dict[str, float]:
    rates: dict[str, float] = {}
    for part in _parts(text):
        currency, _, rate = (piece.strip() for piece in part.partition("="))
        try:
            amount = float(rate)
        except ValueError:
            amount = 0.0
        if not _CURRENCY.fullmatch(currency) or not isfinite(amount) or amount <= 0:
            raise BadInputError(f'"{part}" is not CURRENCY=NUMBER above zero, as CNY=0.14 is')
        if currency in rates:
            raise BadInputError(f'"{currency}" has two rates')
        rates[currency] = amount
    return rates


def _parse_currency(text: str) -> str:
    if not _CURRENCY.fullmatch(text):
        raise BadInputError(
            f'must be the three capital letters of a currency, such as USD, not "{text}"'
        )
    return text


def _parse_address(text: str) -> str:
    try:
        ip_address(text or "::")
    except ValueError as error:
        if not _HOST_NAME.fullmatch(text):
            raise BadInputError(f'must be an IP address or a host name, not "{text}"') from error
    return text


def _parse_object_name(text: str) -> str:
    if not _OBJECT_NAME.fullmatch(text):
        raise BadInputError(f'must be a name of a Kubernetes object, not "{text}"')
    return text


def _parse_namespace(text: str) -> str:
    if text and not _NAMESPACE.fullmatch(text):
        raise BadInputError(f'must be the name of a namespace, not "{text}"')
    return text


_SHAPES: Final[Mapping[str, Callable[[str], object]]] = {
    "providers": _parts,
    "log-output-paths": _parts,
    "log-error-output-paths": _parts,
    "bind-address": _parse_address,
    "currency": _parse_currency,
    "exchange-rates": _parse_rates,
    "leader-election-name": _parse_object_name,
    "leader-election-namespace": _parse_namespace,
    "repair-unhealthy-limit": UnhealthyLimit.parse,
    "repair-conditions": parse_health_rules,
    "leader-election-labels": parse_labels,
}
"""How texts that stand for something are read, by flag."""


def markdown_table(options: Iterable[Option] = OPTIONS) -> str:
    """Return the options as the table of the reference documentation."""
    lines = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for option in options:
        choices = " \\| ".join(f"`{choice}`" for choice in option.choices if choice)
        meaning = f"{option.help} One of {choices}." if choices else option.help
        default = f"`{option.default_text}`" if option.default_text else ""
        lines.append(f"| `--{option.flag}` | `{option.env}` | {default} | {meaning} |")
    return "\n".join(lines)
