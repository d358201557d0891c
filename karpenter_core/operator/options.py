"""The table of the options of the process: it makes the flags, the help, the docs and the parsing.

Names, variables and defaults are Karpenter's where Karpenter has the option. `settings` holds their
values; `settings_loader` reads them; `option_shapes` turns them into what they stand for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.lifecycle.node.repair import DEFAULT_LIMIT
from karpenter_core.operator.option_shapes import DEFAULT_CPU_REQUESTS, DEFAULT_GATES
from karpenter_core.operator.option_values import ProcessOption
from karpenter_core.state.expendable_pods import NO_CUTOFF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.contract import SettingSpec

__all__ = ["DEFAULT_JOURNAL_BYTES", "OPTIONS", "flag_name", "options_table"]

_SHORTEST_TIMEOUT: Final = timedelta(seconds=1)
_LAST_PORT: Final = 65535
DEFAULT_JOURNAL_BYTES: Final = 64 * 2**20
OPTIONS: Final = (
    ProcessOption(
        flag="kubeconfig",
        env="KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster that holds NodePools and NodeClaims; "
        "empty = in-cluster credentials, else ~/.kube/config.",
    ),
    ProcessOption(
        flag="context",
        env="KUBE_CONTEXT",
        default="",
        help="Context within the kubeconfig; empty = its current one.",
    ),
    ProcessOption(
        flag="workload-kubeconfig",
        env="WORKLOAD_KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster that runs the pods and gets the nodes, "
        "if it is not the cluster of --kubeconfig.",
    ),
    ProcessOption(
        flag="cluster-name",
        env="CLUSTER_NAME",
        default="",
        help="Name of the cluster that gets the nodes; providers tag its instances with it. Required "
        "by providers that tag instances.",
    ),
    ProcessOption(
        flag="providers",
        env="PROVIDERS",
        default="",
        help="Providers to load, comma separated; empty = every installed one.",
    ),
    ProcessOption(
        flag="cache-folder",
        env="CACHE_FOLDER",
        default="",
        help="Folder that keeps catalogues and prices between starts; empty = ~/.cache/karpenter.",
    ),
    ProcessOption(
        flag="karpenter-service",
        env="KARPENTER_SERVICE",
        default="",
        help="Accepted for existing charts; has no effect.",
        falls_back=True,
        without_effect="the name of the Service is not needed",
    ),
    ProcessOption(
        flag="bind-address",
        env="BIND_ADDRESS",
        default="",
        help="Address that the metrics and probe servers bind to; empty = every interface.",
    ),
    ProcessOption(
        flag="metrics-bind-address",
        env="METRICS_BIND_ADDRESS",
        default="",
        help="Address that the metrics server binds to; empty = that of --bind-address.",
    ),
    ProcessOption(
        flag="health-probe-bind-address",
        env="HEALTH_PROBE_BIND_ADDRESS",
        default="",
        help="Address that the probe server binds to; empty = that of --bind-address.",
    ),
    ProcessOption(
        flag="metrics-port",
        env="METRICS_PORT",
        default=8080,
        help="Port of /metrics.",
        minimum=0,
        maximum=_LAST_PORT,
        falls_back=True,
    ),
    ProcessOption(
        flag="metrics-tls-cert-file",
        env="METRICS_TLS_CERT_FILE",
        default="",
        help="PEM file with the certificate of the metrics port, followed by its intermediate "
        "certificates; empty = without TLS. Renewed files are used at once.",
    ),
    ProcessOption(
        flag="metrics-tls-key-file",
        env="METRICS_TLS_KEY_FILE",
        default="",
        help="PEM file of the key of --metrics-tls-cert-file.",
    ),
    ProcessOption(
        flag="metrics-token-auth",
        env="METRICS_TOKEN_AUTH",
        default=False,
        help="Require a bearer token on the metrics port, whose user is permitted by RBAC to `get` the "
        "path (nonResourceURLs). Needs the TLS files and the permission to create TokenReviews and "
        "SubjectAccessReviews.",
    ),
    ProcessOption(
        flag="health-probe-port",
        env="HEALTH_PROBE_PORT",
        default=8081,
        help="Port of /healthz and /readyz.",
        minimum=0,
        maximum=_LAST_PORT,
        falls_back=True,
    ),
    ProcessOption(
        flag="dashboard-port",
        env="DASHBOARD_PORT",
        default=0,
        help="Port of the dashboard, a read-only web page; 0 = no dashboard. The TLS files and "
        "the tokens of the metrics port protect it too.",
        minimum=0,
        maximum=_LAST_PORT,
    ),
    ProcessOption(
        flag="dashboard-bind-address",
        env="DASHBOARD_BIND_ADDRESS",
        default="127.0.0.1",
        help="Address that the dashboard binds to; kubectl port-forward reaches 127.0.0.1. "
        "0.0.0.0 = every interface.",
    ),
    ProcessOption(
        flag="decision-journal",
        env="DECISION_JOURNAL",
        default="",
        help="File that every decision is appended to as a line of JSON; empty = the last 1,000 "
        "decisions are kept in memory only (/debug/decisions on the metrics port).",
    ),
    ProcessOption(
        flag="decision-journal-max-bytes",
        env="DECISION_JOURNAL_MAX_BYTES",
        default=DEFAULT_JOURNAL_BYTES,
        help="Size in bytes at which the file of --decision-journal is moved to FILE.1, replacing an "
        "older one.",
        minimum=1,
    ),
    ProcessOption(
        flag="otlp-traces-endpoint",
        env="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        default="",
        help="URL to which traces of passes are sent by OTLP over HTTP, such as "
        "http://collector:4318/v1/traces; empty = no traces. Needs the extra `otel`.",
    ),
    ProcessOption(
        flag="kube-client-qps",
        env="KUBE_CLIENT_QPS",
        default=200,
        help="Average limit of requests per second to the API server.",
        minimum=1,
        falls_back=True,
    ),
    ProcessOption(
        flag="kube-client-burst",
        env="KUBE_CLIENT_BURST",
        default=300,
        help="Requests that may exceed --kube-client-qps in a burst.",
        minimum=1,
        falls_back=True,
    ),
    ProcessOption(
        flag="enable-profiling",
        env="ENABLE_PROFILING",
        default=False,
        help="Serve /debug/pprof on the metrics port.",
        falls_back=True,
    ),
    ProcessOption(
        flag="disable-controller-warmup",
        env="DISABLE_CONTROLLER_WARMUP",
        default=True,
        help="Accepted for existing charts; has no effect: a standby always watches.",
        falls_back=True,
        without_effect="a standby always watches, so that it can lead at once",
    ),
    ProcessOption(
        flag="disable-leader-election",
        env="DISABLE_LEADER_ELECTION",
        default=False,
        help="Become the leader at once, without a Lease; only for a single replica.",
        falls_back=True,
    ),
    ProcessOption(
        flag="disable-cluster-state-observability",
        env="DISABLE_CLUSTER_STATE_OBSERVABILITY",
        default=False,
        help="Export no metrics of single nodes, NodePools and pods.",
        falls_back=True,
    ),
    ProcessOption(
        flag="leader-election-name",
        env="LEADER_ELECTION_NAME",
        default="karpenter-leader-election",
        help="Name of the Lease.",
        falls_back=True,
    ),
    ProcessOption(
        flag="leader-election-namespace",
        env="LEADER_ELECTION_NAMESPACE",
        default="",
        help="Namespace of the Lease; empty = the process' own, else kube-system.",
        falls_back=True,
    ),
    ProcessOption(
        flag="leader-election-labels",
        env="LEADER_ELECTION_LABELS",
        default="",
        help="Labels of the Lease (key=value,...); other labels of the Lease are kept.",
    ),
    ProcessOption(
        flag="leader-election-kubeconfig",
        env="LEADER_ELECTION_KUBECONFIG",
        default="",
        help="Kubeconfig of the cluster that holds the Lease, if it is not the cluster of "
        "--kubeconfig.",
    ),
    ProcessOption(
        flag="memory-limit",
        env="MEMORY_LIMIT",
        default=-1,
        help="Memory limit of the container in bytes: above 90 % of it, unused memory is freed "
        "and returned to the system; 0 or less = no limit.",
        falls_back=True,
    ),
    ProcessOption(
        flag="cpu-requests",
        env="CPU_REQUESTS",
        default=DEFAULT_CPU_REQUESTS,
        help="CPU requests of the container in milli-cores; more CPU allows more concurrent work.",
        falls_back=True,
    ),
    ProcessOption(
        flag="log-level",
        env="LOG_LEVEL",
        default="info",
        help="Lowest level of log lines that are written.",
        choices=("", "debug", "info", "error"),
        falls_back=True,
    ),
    ProcessOption(
        flag="log-format",
        env="LOG_FORMAT",
        default="auto",
        help="Format of log lines; auto = console on a terminal, else JSON.",
        choices=("auto", "json", "console"),
    ),
    ProcessOption(
        flag="log-output-paths",
        env="LOG_OUTPUT_PATHS",
        default="stdout",
        help="Destinations of log lines: stdout, stderr or files, comma separated.",
        falls_back=True,
    ),
    ProcessOption(
        flag="log-error-output-paths",
        env="LOG_ERROR_OUTPUT_PATHS",
        default="stderr",
        help="Destinations of errors of the logging itself: stdout, stderr or files, comma separated.",
        falls_back=True,
    ),
    ProcessOption(
        flag="batch-max-duration",
        env="BATCH_MAX_DURATION",
        default=timedelta(seconds=10),
        help="Longest time that pending pods are collected before a scheduling pass.",
        minimum=timedelta(),
        falls_back=True,
    ),
    ProcessOption(
        flag="batch-idle-duration",
        env="BATCH_IDLE_DURATION",
        default=timedelta(seconds=1),
        help="Time without a new pending pod after which a scheduling pass begins.",
        minimum=timedelta(),
        falls_back=True,
    ),
    ProcessOption(
        flag="preference-policy",
        env="PREFERENCE_POLICY",
        default="Respect",
        help="Respect = preferences of pods are met where possible, Ignore = they are not considered.",
        choices=("Respect", "Ignore"),
        falls_back=True,
    ),
    ProcessOption(
        flag="min-values-policy",
        env="MIN_VALUES_POLICY",
        default="Strict",
        help="Strict = minValues of a NodePool must be met, BestEffort = they are relaxed where they "
        "cannot be met.",
        choices=("Strict", "BestEffort"),
        falls_back=True,
    ),
    ProcessOption(
        flag="packing",
        env="PACKING",
        default="value",
        help="value = the cheapest valid plan, first-fit = the plan in Karpenter's order.",
        choices=("value", "first-fit"),
    ),
    ProcessOption(
        flag="currency",
        env="CURRENCY",
        default="USD",
        help="Currency that prices are compared and reported in, by its ISO 4217 code.",
    ),
    ProcessOption(
        flag="exchange-rates",
        env="EXCHANGE_RATES",
        default="",
        help="Value of one unit of other currencies, such as CNY=0.14,EUR=1.1. Nodes priced in a "
        "currency without a rate are not consolidated to save money (condition PricesComparable of "
        "their NodePool).",
    ),
    ProcessOption(
        flag="node-fee",
        env="NODE_FEE",
        default=0.01,
        help="Cost per hour that plans add to the price of each node, in the currency of --currency, "
        "so that a few large nodes are preferred to many small ones of the same price.",
        minimum=0,
    ),
    ProcessOption(
        flag="launch-timeout",
        env="LAUNCH_TIMEOUT",
        default=timedelta(minutes=5),
        help="Time after which a NodeClaim without an instance is deleted.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    ProcessOption(
        flag="registration-timeout",
        env="REGISTRATION_TIMEOUT",
        default=timedelta(minutes=15),
        help="Time after which a NodeClaim whose instance has not registered a Node, or whose Node is gone, is deleted; "
        "raise it for instances that boot slowly.",
        minimum=_SHORTEST_TIMEOUT,
    ),
    ProcessOption(
        flag="out-of-service-taint",
        env="OUT_OF_SERVICE_TAINT",
        default=False,
        help="Add the taint node.kubernetes.io/out-of-service to a deleted node that no longer "
        "reports and whose instance is terminating or gone, so that its volumes detach at once.",
    ),
    ProcessOption(
        flag="surge-moves",
        env="SURGE_MOVES",
        default=False,
        help="Before a drain evicts the only pod of a Deployment, restart the Deployment's rollout, so "
        "that another pod is ready first; for pods with the annotation karpenter.sh/surge-move. Needs "
        "the permission to get and patch Deployments.",
    ),
    ProcessOption(
        flag="ignore-dra-requests",
        env="IGNORE_DRA_REQUESTS",
        default=True,
        help="Ignore pods that request devices through ResourceClaims (Dynamic Resource Allocation). "
        "With false, plans allocate devices for these pods; the API server must serve "
        "resource.k8s.io/v1 (Kubernetes 1.34).",
        falls_back=True,
    ),
    ProcessOption(
        flag="max-nodes-total",
        env="MAX_NODES_TOTAL",
        default=0,
        help="Limit of nodes in the cluster, including NodeClaims without a Node and nodes that the "
        "controller did not launch; 0 = no limit.",
        minimum=0,
    ),
    ProcessOption(
        flag="launches-per-minute",
        env="LAUNCHES_PER_MINUTE",
        default=0,
        help="Limit of NodeClaims that are created for a NodePool in a minute; further ones wait; "
        "0 = no limit.",
        minimum=0,
    ),
    ProcessOption(
        flag="provisioning-requests",
        env="PROVISIONING_REQUESTS",
        default=False,
        help="Serve ProvisioningRequests of autoscaling.x-k8s.io, with which Kueue and other queues "
        "request capacity for all pods of a job at once.",
    ),
    ProcessOption(
        flag="capacity-quotas",
        env="CAPACITY_QUOTAS",
        default=False,
        help="Enforce CapacityQuotas of autoscaling.x-k8s.io: limits of resources, nodes and price for all "
        "nodes with certain labels.",
    ),
    ProcessOption(
        flag="vpa-predictions",
        env="VPA_PREDICTIONS",
        default=False,
        help="Plan moves of pods with the requests that their VerticalPodAutoscaler will set when they "
        "are created again, instead of their current requests.",
    ),
    ProcessOption(
        flag="priority-cutoff",
        env="PRIORITY_CUTOFF",
        default=NO_CUTOFF,
        help="Lowest priority of pods for which nodes are launched; pods below it use only free "
        "capacity, and no node is kept for them. The default is the lowest possible priority.",
        minimum=NO_CUTOFF,
    ),
    ProcessOption(
        flag="pause-disruption",
        env="PAUSE_DISRUPTION",
        default=False,
        help="Pause emptiness, drift, consolidation, expiration and node repair; the annotation "
        "karpenter.sh/pause-disruption pauses them for one NodePool, without a restart.",
    ),
    ProcessOption(
        flag="repair-unhealthy-limit",
        env="REPAIR_UNHEALTHY_LIMIT",
        default=str(DEFAULT_LIMIT),
        help="Number or percentage of unhealthy nodes of a NodePool above which node repair replaces "
        "none of them; 0 = repair nothing.",
    ),
    ProcessOption(
        flag="repair-conditions",
        env="REPAIR_CONDITIONS",
        default="",
        help="Conditions that make a node unhealthy (feature gate NodeRepair), each with the time that it "
        "is tolerated, such as GPUFault=True:10m,Ready=Unknown:1h,KernelDeadlock=True:never. They add to "
        "the conditions of the provider and override equal ones.",
    ),
    ProcessOption(
        flag="observe",
        env="OBSERVE",
        default=False,
        help="Change nothing, in the cluster or in a cloud: plan, record decisions, and compare the "
        "price of the cluster with that of a fresh plan. Needs only read permissions.",
    ),
    ProcessOption(
        flag="observe-nodes",
        env="OBSERVE_NODES",
        default="",
        help="Labels of nodes without a NodePool that --observe also compares, such as the nodes of a "
        "node group (key, or key=value, comma separated).",
    ),
    ProcessOption(
        flag="act-on-rebalance",
        env="ACT_ON_REBALANCE",
        default=False,
        help="Replace nodes for which the cloud recommends rebalancing; by default the recommendation "
        "is only reported.",
    ),
    ProcessOption(
        flag="feature-gates",
        env="FEATURE_GATES",
        default=DEFAULT_GATES,
        help="Optional features, such as A=true,B=false; omitted gates keep their default.",
        falls_back=True,
    ),
    ProcessOption(
        flag="commitments",
        env="COMMITMENTS",
        default="",
        help="Capacity that is paid for in advance, as a list in YAML or JSON: up to the given amount of "
        "a resource, the selected on-demand instance types cost less.",
        falls_back=True,
    ),
    ProcessOption(
        flag="scheduler-config",
        env="SCHEDULER_CONFIG",
        default="",
        help="Default topology spread constraints of the cluster's scheduler, as YAML or JSON. If "
        "set, the controller also watches Services and the controllers of pods.",
        falls_back=True,
    ),
)


def flag_name(spec: SettingSpec) -> str:
    """Return a plug-in's flag without dashes in front."""
    return spec.flag.lstrip("-")


def options_table(options: Iterable[ProcessOption] = OPTIONS) -> str:
    """Return the options as the table of the reference documentation."""
    lines = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for option in options:
        choices = " \\| ".join(f"`{choice}`" for choice in option.choices if choice)
        meaning = f"{option.help} One of {choices}." if choices else option.help
        default = f"`{option.default_text}`" if option.default_text else ""
        lines.append(f"| `--{option.flag}` | `{option.env}` | {default} | {meaning} |")
    return "\n".join(lines)
