"""The dashboard of the controller's performance."""

from __future__ import annotations

from typing import Final

from charts.dashboards.parts import DashboardPage, Panel, Query, Row

__all__ = ["PERFORMANCE"]


def _quantiles(metric: str, *, by: str = "", selector: str = "$S") -> tuple[Query, ...]:
    """Return the median and the 99th percentile of a histogram."""
    labels = f"{by}, le" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) "
            f"(rate({metric}_bucket{{{selector}}}[$__rate_interval])))",
            f"{legend}p{int(quantile * 100)}",
        )
        for quantile in (0.5, 0.99)
    )


_OF_KARPENTER: Final = "and on (cluster, job, instance) karpenter_build_info{$S}"

_PODS: Final = Row(
    title="Pods",
    panels=(
        Panel(
            title="Pending pods without a node",
            description="Pods that the last pass could not place, and those it ignored as invalid.",
            queries=(
                Query("sum(max by (cluster, controller) (karpenter_scheduler_unschedulable_pods_count{$S}))", "unschedulable"),
                Query("sum(max by (cluster) (karpenter_scheduler_ignored_pods_count{$S}))", "ignored"),
            ),
        ),
        Panel(
            title="Time to the first decision",
            description="From the first observation of a pending pod until a pass has decided about it.",
            queries=_quantiles("karpenter_pods_scheduling_decision_duration_seconds"),
            unit="s",
        ),
        Panel(
            title="Time from plan to binding",
            description="From the plan that places a pod until the pod is bound: launch, boot and "
            "registration of its node.",
            queries=_quantiles("karpenter_pods_provisioning_bound_duration_seconds"),
            unit="s",
        ),
        Panel(
            title="Startup of pods",
            description="From the creation of pods until they are Ready, in the last ten minutes.",
            queries=(
                Query(
                    'max by (quantile) (karpenter_pods_startup_duration_seconds{$S,quantile=~"0.5|0.9|0.99"})',
                    "quantile {{quantile}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Longest waits",
            description="The pod that has waited longest: for a decision, for its planned node, and to be "
            "bound at all.",
            queries=(
                Query("max(karpenter_pods_provisioning_scheduling_undecided_time_seconds{$S})", "for a decision"),
                Query("max(karpenter_pods_provisioning_unbound_time_seconds{$S})", "for the planned node"),
                Query("max(karpenter_pods_unbound_time_seconds{$S})", "to be bound"),
            ),
            unit="s",
        ),
        Panel(
            title="Pending pods by zone",
            description="Pending pods of the last pass by the only zone that is possible for them.",
            queries=(
                Query(
                    "sum by (zone) (max by (cluster, controller, zone) (karpenter_scheduler_pending_pods_by_effective_zone_count{$S}))",
                    "{{zone}}",
                ),
            ),
            kind="stacked",
        ),
    ),
)  # fmt: skip

_PASSES: Final = Row(
    title="Passes and NodeClaims",
    panels=(
        Panel(
            title="Duration of scheduling passes",
            description="Time in which a pass computes its plan.",
            queries=_quantiles("karpenter_scheduler_scheduling_duration_seconds", by="controller"),
            unit="s",
        ),
        Panel(
            title="Decisions",
            description="Entries of the decision journal per second.",
            queries=(
                Query(
                    "sum by (kind, method) (rate(karpenter_decisions_total{$S}[$__rate_interval]))",
                    "{{kind}} {{method}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="NodeClaims created",
            description="By reason: provisioned, or a disruption that replaces nodes.",
            queries=(
                Query(
                    "sum by (nodepool, reason) (increase(karpenter_nodeclaims_created_total{$P}[$__rate_interval]))",
                    "{{nodepool}} {{reason}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Stages of NodeClaims",
            description="Median time until the condition became True: Launched, Registered, Initialized.",
            queries=(
                Query(
                    "histogram_quantile(0.5, sum by (type, le) (rate("
                    "operator_nodeclaim_status_condition_transition_seconds_bucket{$S,"
                    'type=~"Launched|Registered|Initialized",status=~"Unknown|False"}[$__rate_interval])))',
                    "{{type}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="NodeClaims that are not ready",
            description="By the condition that is missing.",
            queries=(
                Query(
                    "count by (type) (max by (cluster, name, type) (operator_nodeclaim_status_condition_count{$S,"
                    'type=~"Launched|Registered|Initialized",status!="True"}))',
                    "not {{type}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            title="Failing passes and reconciles",
            description="Failed passes in a row, and failed reconciles per second.",
            queries=(
                Query("max by (controller) (karpenter_pass_failures{$S}) > 0", "{{controller}} passes"),
                Query(
                    "sum by (controller) (rate(karpenter_reconcile_errors_total{$S}[$__rate_interval]))",
                    "{{controller}} reconciles",
                ),
            ),
        ),
    ),
)  # fmt: skip

_API_SERVER: Final = Row(
    title="API server",
    panels=(
        Panel(
            title="Requests",
            description="Requests to the API server by method and status code.",
            queries=(
                Query(
                    f"sum by (method, code) (rate(client_go_request_total{{$S}}[$__rate_interval]) {_OF_KARPENTER})",
                    "{{method}} {{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Latency of requests",
            description="99th percentile by verb.",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (verb, le) (rate("
                    f"client_go_request_duration_seconds_bucket{{$S}}[$__rate_interval]) {_OF_KARPENTER}))",
                    "{{verb}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Writes",
            description="Writes by verb and outcome.",
            queries=(
                Query(
                    "sum by (verb, outcome) (rate(karpenter_core_writes_total{$S}[$__rate_interval]))",
                    "{{verb}} {{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Age of watches",
            description="Time since a kind was last heard of; above 90 s decisions wait.",
            queries=(
                Query("max by (instance, kind) (karpenter_core_informer_age_seconds{$S} < Inf)", "{{instance}} {{kind}}"),
            ),
            unit="s",
        ),
        Panel(
            title="Renewals of the Lease",
            description="Longest interval between two renewals of the leader; 10 s cost the lease.",
            queries=(
                Query(
                    "histogram_quantile(1, sum by (instance, le) (rate("
                    "karpenter_core_lease_renewal_interval_seconds_bucket{$S}[$__rate_interval])))",
                    "{{instance}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Leader",
            description="1 for the leader, 0 for standbys.",
            queries=(
                Query(f"max by (instance) (leader_election_master_status{{$S}} {_OF_KARPENTER})", "{{instance}}"),
            ),
        ),
    ),
)  # fmt: skip

_PROCESS: Final = Row(
    title="Process",
    panels=(
        Panel(
            title="Memory",
            description="Resident memory of each controller, and its limit.",
            queries=(
                Query(f"max by (instance) (process_resident_memory_bytes{{$S}} {_OF_KARPENTER})", "{{instance}}"),
                Query("max by (instance) (karpenter_core_memory_limit_bytes{$S} > 0)", "{{instance}} limit"),
            ),
            unit="bytes",
        ),
        Panel(
            title="CPU",
            description="CPU time per second of each controller.",
            queries=(
                Query(
                    f"max by (instance) (rate(process_cpu_seconds_total{{$S}}[$__rate_interval]) {_OF_KARPENTER})",
                    "{{instance}}",
                ),
            ),
            unit="short",
        ),
        Panel(
            title="Pauses of the garbage collector",
            description="Share of time in which Python's collector stops the process.",
            queries=(
                Query(
                    "sum by (instance) (rate(karpenter_core_gc_pause_seconds_sum{$S}[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
        ),
    ),
)  # fmt: skip

PERFORMANCE: Final = DashboardPage(
    name="performance",
    title="Karpenter / Performance",
    description="How long pods wait, how fast the controller decides, and how it talks to the API server.",
    rows=(_PODS, _PASSES, _API_SERVER, _PROCESS),
)
