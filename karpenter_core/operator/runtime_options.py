"""Options of the process: clusters, servers, journal, lease, memory, logs."""

from __future__ import annotations

from typing import Final

from karpenter_core.operator.option_shapes import DEFAULT_CPU_REQUESTS
from karpenter_core.operator.option_values import ProcessOption

__all__ = ["DEFAULT_JOURNAL_BYTES", "RUNTIME_OPTIONS"]

_LAST_PORT: Final = 65535
DEFAULT_JOURNAL_BYTES: Final = 64 * 2**20
RUNTIME_OPTIONS: Final = (
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
)
