"""The options of the process with their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.lifecycle.node.repair import DEFAULT_LIMIT, UnhealthyLimit
from karpenter_core.operator.option_shapes import DEFAULT_CPU_REQUESTS
from karpenter_core.operator.option_values import Value
from karpenter_core.operator.options import flag_name
from karpenter_core.operator.runtime_options import DEFAULT_JOURNAL_BYTES
from karpenter_core.provider.contract import FeatureGates
from karpenter_core.state.expendable_pods import NO_CUTOFF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.records import TopologySpread
    from karpenter_core.lifecycle.node.health_rules import HealthRule
    from karpenter_core.provider.contract import SettingSpec

__all__ = ["Settings"]


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
    metrics_bind_address: str = ""
    health_probe_bind_address: str = ""
    metrics_port: int = 8080
    metrics_tls_cert_file: str = ""
    metrics_tls_key_file: str = ""
    metrics_token_auth: bool = False
    health_probe_port: int = 8081
    dashboard_port: int = 0
    dashboard_bind_address: str = "127.0.0.1"
    decision_journal: str = ""
    decision_journal_max_bytes: int = DEFAULT_JOURNAL_BYTES
    otlp_traces_endpoint: str = ""
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
    node_fee: float = 0.01
    launch_timeout: timedelta = timedelta(minutes=5)
    registration_timeout: timedelta = timedelta(minutes=15)
    initialization_timeout: timedelta = timedelta()
    out_of_service_taint: bool = False
    surge_moves: bool = False
    ignore_dra_requests: bool = True
    max_nodes_total: int = 0
    launches_per_minute: int = 0
    provisioning_requests: bool = False
    capacity_quotas: bool = False
    vpa_predictions: bool = False
    priority_cutoff: int = NO_CUTOFF
    pause_disruption: bool = False
    repair_unhealthy_limit: UnhealthyLimit = DEFAULT_LIMIT
    repair_conditions: tuple[HealthRule, ...] = ()
    observe: bool = False
    observe_nodes: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    act_on_rebalance: bool = False
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    commitments: tuple[Commitment, ...] = ()
    scheduler_config: tuple[TopologySpread, ...] = ()
    # Tokens are among them, so no text of the settings has them.
    plugins: Mapping[str, Value] = field(default_factory=_no_values, repr=False)
    """Values of the plug-ins' own options, by flag.

    One that plug-ins share, with a default of each, is there only if it was given.
    """
    warnings: tuple[str, ...] = ()
    """The options that have no effect: values replaced by defaults, gates that change nothing."""

    def of_plugin(self, specs: Iterable[SettingSpec]) -> dict[str, Value]:
        """Return the values of a plug-in's own options, by flag: as given, else its own defaults."""
        return {flag_name(spec): self.plugins.get(flag_name(spec), spec.default) for spec in specs}
