"""The options of the process: one table makes the flags, the help, the docs and the parsing.

Names, variables and defaults are Karpenter's where Karpenter has the option. A flag beats its
environment variable, which beats the default. A number, truth value or duration in the environment
that cannot be read falls back to the default, as upstream does; the same mistake in a flag, or an
unknown choice anywhere, stops the start and names the flag or variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.durations import format_duration, parse_duration
from karpenter_core.errors import BadInputError, SettingsError
from karpenter_core.lifecycle.health_rules import HealthRule, parse_health_rules
from karpenter_core.lifecycle.repair import DEFAULT_LIMIT, UnhealthyLimit
from karpenter_core.operator.scheduler_config import parse_scheduler_config
from karpenter_core.provider.contract import FeatureGates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.api.records import TopologySpread
    from karpenter_core.provider.contract import SettingSpec

__all__ = [
    "OPTIONS",
    "FeatureGates",
    "Option",
    "Settings",
    "Value",
    "flag_name",
    "load_settings",
    "markdown_table",
    "options_by_plugin",
    "parse_feature_gates",
    "selected_plugins",
]

Value: TypeAlias = str | float | bool | timedelta

DEFAULT_CPU_REQUESTS: Final = 1000  # upstream default, in milli-cores
DEFAULT_JOURNAL_BYTES: Final = 64 * 2**20
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


_GATE_FIELDS: Final = {
    "NodeRepair": "node_repair",
    "ReservedCapacity": "reserved_capacity",
    "SpotToSpotConsolidation": "spot_to_spot_consolidation",
    "NodeOverlay": "node_overlay",
    "StaticCapacity": "static_capacity",
    "CapacityBuffer": "capacity_buffer",
}
DEFAULT_GATES: Final = ",".join(
    f"{gate}={str(getattr(FeatureGates(), name)).lower()}" for gate, name in _GATE_FIELDS.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option; the type of `default` decides how text is read."""

    flag: str
    env: str
    default: Value
    help: str
    choices: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Name of the field of `Settings`."""
        return self.flag.replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default the way a user would write it."""
        return value_text(self.default)


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
        help="Name of the Service in front of the process; kept for existing charts.",
    ),
    Option(
        flag="bind-address",
        env="BIND_ADDRESS",
        default="",
        help="Address that the metrics and probe servers bind to; empty = every interface.",
    ),
    Option(flag="metrics-port", env="METRICS_PORT", default=8080, help="Port of /metrics."),
    Option(
        flag="health-probe-port",
        env="HEALTH_PROBE_PORT",
        default=8081,
        help="Port of /healthz and /readyz.",
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
    ),
    Option(
        flag="kube-client-qps",
        env="KUBE_CLIENT_QPS",
        default=200,
        help="Requests per second to the API server, smoothed.",
    ),
    Option(
        flag="kube-client-burst",
        env="KUBE_CLIENT_BURST",
        default=300,
        help="Requests that may go to the API server at once.",
    ),
    Option(
        flag="enable-profiling",
        env="ENABLE_PROFILING",
        default=False,
        help="Serve /debug/pprof on the metrics port.",
    ),
    Option(
        flag="disable-controller-warmup",
        env="DISABLE_CONTROLLER_WARMUP",
        default=True,
        help="Kept for existing charts: a standby watches in any case, so that it is warm.",
    ),
    Option(
        flag="disable-leader-election",
        env="DISABLE_LEADER_ELECTION",
        default=False,
        help="Lead at once, without a Lease; only for a single replica.",
    ),
    Option(
        flag="disable-cluster-state-observability",
        env="DISABLE_CLUSTER_STATE_OBSERVABILITY",
        default=False,
        help="Leave out the metrics per node, NodePool and pod.",
    ),
    Option(
        flag="leader-election-name",
        env="LEADER_ELECTION_NAME",
        default="karpenter-leader-election",
        help="Name of the Lease.",
    ),
    Option(
        flag="leader-election-namespace",
        env="LEADER_ELECTION_NAMESPACE",
        default="",
        help="Namespace of the Lease; empty = the process' own, else kube-system.",
    ),
    Option(
        flag="memory-limit",
        env="MEMORY_LIMIT",
        default=-1,
        help="Kept for existing charts: memory is bounded by what the cluster holds.",
    ),
    Option(
        flag="cpu-requests",
        env="CPU_REQUESTS",
        default=DEFAULT_CPU_REQUESTS,
        help="CPU requests of the container in milli-cores; scales how much is done at once.",
    ),
    Option(
        flag="log-level",
        env="LOG_LEVEL",
        default="info",
        help="How much is logged.",
        choices=("", "debug", "info", "error"),
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
    ),
    Option(
        flag="log-error-output-paths",
        env="LOG_ERROR_OUTPUT_PATHS",
        default="stderr",
        help="Where failures of logging itself go: stdout, stderr or files, comma separated.",
    ),
    Option(
        flag="batch-max-duration",
        env="BATCH_MAX_DURATION",
        default=timedelta(seconds=10),
        help="Longest time pods are gathered before a scheduling pass.",
    ),
    Option(
        flag="batch-idle-duration",
        env="BATCH_IDLE_DURATION",
        default=timedelta(seconds=1),
        help="Time without a new pending pod after which a scheduling pass begins.",
    ),
    Option(
        flag="preference-policy",
        env="PREFERENCE_POLICY",
        default="Respect",
        help="Whether preferences of pods are tried before they are given up.",
        choices=("Respect", "Ignore"),
    ),
    Option(
        flag="min-values-policy",
        env="MIN_VALUES_POLICY",
        default="Strict",
        help="Whether minValues of a NodePool may be relaxed when they cannot be met.",
        choices=("Strict", "BestEffort"),
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
        help="Currency that prices are compared and reported in.",
    ),
    Option(
        flag="exchange-rates",
        env="EXCHANGE_RATES",
        default="",
        help="What one unit of another currency is worth, such as CNY=0.14,EUR=1.1.",
    ),
    Option(
        flag="node-fee",
        env="NODE_FEE",
        default="0.003",
        help="What a node costs per hour beside its price, in the currency above: keeps a plan from "
        "many small nodes where a few larger ones cost as much.",
    ),
    Option(
        flag="launch-timeout",
        env="LAUNCH_TIMEOUT",
        default=timedelta(minutes=5),
        help="How long a NodeClaim may stay without an instance before it is given up.",
    ),
    Option(
        flag="registration-timeout",
        env="REGISTRATION_TIMEOUT",
        default=timedelta(minutes=15),
        help="How long the Node of an instance may stay away before its NodeClaim is given up; "
        "longer for machines that boot slowly.",
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
        help="Ignore pods that ask for devices through ResourceClaims.",
    ),
    Option(
        flag="max-nodes-total",
        env="MAX_NODES_TOTAL",
        default=0,
        help="Nodes that the cluster may have, whoever made them, NodeClaims under way included; "
        "0 = any number.",
    ),
    Option(
        flag="launches-per-minute",
        env="LAUNCHES_PER_MINUTE",
        default=0,
        help="NodeClaims that may be created for each NodePool within a minute; more wait for their "
        "turn; 0 = any number.",
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
    ),
    Option(
        flag="scheduler-config",
        env="SCHEDULER_CONFIG",
        default="",
        help="Default topology spread of the cluster's scheduler, as YAML or JSON. With it, Services "
        "and the controllers of pods are followed too.",
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
        SettingsError: an unknown or malformed flag, or a value that is no choice.
    """
    specs = tuple(plugin_options)
    core = {option.flag: option for option in OPTIONS}
    extra = _plugin_table(specs, core)
    flags = _read_flags(arguments, core | extra)
    given = {
        flag: _given(option, flags.get(flag), environment.get(option.env))
        for flag, option in (core | extra).items()
    }
    shaped: dict[str, object] = {
        option.field: _or_default(given[flag], option) for flag, option in core.items()
    }
    _shape(shaped)
    plugins = {
        flag: _or_default(given[flag], option)
        for flag, option in extra.items()
        if given[flag] is not None or len(_defaults(flag, specs)) == 1
    }
    known = {item.name for item in fields(Settings)}
    return Settings(plugins=plugins, **{k: v for k, v in shaped.items() if k in known})  # pyright: ignore[reportArgumentType] - the table and the fields are compared by a test


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
    """Read `A=true,B=false`; unknown gates are ignored, missing ones keep their default.

    Raises:
        SettingsError: a value is neither true nor false.
    """
    chosen: dict[str, bool] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not name and not separator:
            continue
        if name not in _GATE_FIELDS:
            continue
        if value in _TRUE:
            chosen[_GATE_FIELDS[name]] = True
        elif value in _FALSE:
            chosen[_GATE_FIELDS[name]] = False
        else:
            message = f'feature-gates: {name} must be true or false, not "{value}"'
            raise SettingsError(message)
    return FeatureGates(**chosen)


def value_text(value: Value) -> str:
    """Write a value the way a user would."""
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _plugin_table(specs: Iterable[SettingSpec], core: Mapping[str, Option]) -> dict[str, Option]:
    table: dict[str, Option] = {}
    variables = {option.env: option.flag for option in core.values()}
    for spec in specs:
        flag = flag_name(spec)
        known = table.get(flag)
        if known and (known.env, type(known.default)) == (spec.env, type(spec.default)):
            continue  # plug-ins may share an option, each with its own default and meaning
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


def _or_default(given: Value | None, option: Option) -> Value:
    return option.default if given is None else given


def _given(option: Option, flag: str | None, variable: str | None) -> Value | None:
    """Read an option as it was given; None when it was not, or its variable cannot be read."""
    if flag is not None:
        try:
            value = _read_flag(option.default, flag)
        except ValueError as error:
            message = f'invalid value "{flag}" for --{option.flag}: {error}'
            raise SettingsError(message) from error
        return _checked(option, value, source=f"--{option.flag}")
    if variable is None:
        return None
    try:
        value = _read_variable(option.default, variable)
    except ValueError:
        return None
    return _checked(option, value, source=option.env)


def _read_flag(default: Value, text: str) -> Value:
    if isinstance(default, bool):
        if text not in {"true", "false"}:
            message = "must be true or false"
            raise ValueError(message)
        return text == "true"
    return _read_scalar(default, text)


def _read_variable(default: Value, text: str) -> Value:
    if isinstance(default, bool):
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        message = "no truth value"
        raise ValueError(message)
    return _read_scalar(default, text)


def _read_scalar(default: str | float | timedelta, text: str) -> Value:
    if isinstance(default, int | float):
        return type(default)(text)
    if isinstance(default, timedelta):
        return parse_duration(text)
    return text


def _checked(option: Option, value: Value, *, source: str) -> Value:
    if option.choices and value not in option.choices:
        wanted = ", ".join(f'"{choice}"' for choice in option.choices if choice)
        message = f'{source} must be one of {wanted}, not "{value}"'
        raise SettingsError(message)
    return value


def _shape(values: dict[str, object]) -> None:
    """Turn texts that stand for something into what they stand for, in place."""
    for name in ("providers", "log_output_paths", "log_error_output_paths"):
        values[name] = _parts(str(values[name]))
    values["feature_gates"] = parse_feature_gates(str(values["feature_gates"]))
    values["scheduler_config"] = parse_scheduler_config(str(values["scheduler_config"]))
    values["exchange_rates"] = _parse_rates(str(values["exchange_rates"]))
    values["node_fee"] = _parse_fee(str(values["node_fee"]))
    shapes: dict[str, Callable[[str], object]] = {
        "repair-unhealthy-limit": UnhealthyLimit.parse,
        "repair-conditions": parse_health_rules,
    }
    for flag, parse in shapes.items():
        name = flag.replace("-", "_")
        try:
            values[name] = parse(str(values[name]))
        except BadInputError as error:
            raise SettingsError(f"{flag}: {error}") from error
    for name in ("max_nodes_total", "launches_per_minute"):
        _check_not_negative(name.replace("_", "-"), values[name])
    size = values["decision_journal_max_bytes"]
    if isinstance(size, int) and size <= 0:
        raise SettingsError(f"decision-journal-max-bytes: {size} is no size")
    values["log_level"] = values["log_level"] or "info"
    cpu = values["cpu_requests"]
    if isinstance(cpu, int) and cpu <= 0:
        values["cpu_requests"] = DEFAULT_CPU_REQUESTS


def _parts(text: str) -> tuple[str, ...]:
    """Read a comma separated list."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _parse_fee(text: str) -> float:
    try:
        fee = float(text)
    except ValueError as error:
        message = f'node-fee: "{text}" is not a number'
        raise SettingsError(message) from error
    if not fee >= 0 or fee == float("inf"):
        message = f'node-fee: "{text}" is not a number of zero or more'
        raise SettingsError(message)
    return fee


def _check_not_negative(flag: str, value: object) -> None:
    if isinstance(value, int) and value < 0:
        raise SettingsError(f"{flag}: {value} is less than 0; 0 means any number")


def _parse_rates(text: str) -> dict[str, float]:
    rates: dict[str, float] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        currency, _, rate = (piece.strip() for piece in part.partition("="))
        try:
            rates[currency] = float(rate)
        except ValueError as error:
            message = f'exchange-rates: "{part.strip()}" is not CURRENCY=NUMBER'
            raise SettingsError(message) from error
        if not currency or not rates[currency] > 0:
            message = f'exchange-rates: "{part.strip()}" is not CURRENCY=NUMBER above zero'
            raise SettingsError(message)
    return rates


def markdown_table(options: Iterable[Option] = OPTIONS) -> str:
    """Return the options as the table of the reference documentation."""
    lines = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for option in options:
        choices = " \\| ".join(f"`{choice}`" for choice in option.choices if choice)
        meaning = f"{option.help} One of {choices}." if choices else option.help
        default = f"`{option.default_text}`" if option.default_text else ""
        lines.append(f"| `--{option.flag}` | `{option.env}` | {default} | {meaning} |")
    return "\n".join(lines)
