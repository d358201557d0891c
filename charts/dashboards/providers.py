"""The dashboard of the clouds and their APIs."""

from __future__ import annotations

from typing import Final

from charts.dashboards.parts import DashboardPage, Panel, Query, Row, Variable

__all__ = ["PROVIDERS"]

_C: Final = '$S,provider=~"$provider"'

_CALLS: Final = Row(
    title="Calls",
    panels=(
        Panel(
            title="Calls",
            description="Calls of the provider's methods per second.",
            queries=(
                Query(
                    "sum by (provider, method) (rate("
                    f"karpenter_cloudprovider_duration_seconds_count{{{_C}}}[$__rate_interval]))",
                    "{{provider}} {{method}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Errors",
            description="Failed calls per second by typed error.",
            queries=(
                Query(
                    "sum by (provider, method, error) (rate("
                    f"karpenter_cloudprovider_errors_total{{{_C}}}[$__rate_interval]))",
                    "{{provider}} {{method}} {{error}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Duration of calls",
            description="95th percentile, including the wait for a batch.",
            queries=(
                Query(
                    "histogram_quantile(0.95, sum by (provider, method, le) (rate("
                    f"karpenter_cloudprovider_duration_seconds_bucket{{{_C}}}[$__rate_interval])))",
                    "{{provider}} {{method}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Overdue calls",
            description="Open calls that have exceeded their time limit; three make the process unready.",
            queries=(
                Query(
                    f"max by (provider) (karpenter_cloudprovider_overdue_calls{{{_C}}})",
                    "{{provider}}",
                ),
            ),
        ),
        Panel(
            title="Items in a batch",
            description="Mean number of items in one call to the cloud.",
            queries=(
                Query(
                    "sum by (batcher) (rate(karpenter_cloudprovider_batcher_batch_size_sum{$S}[$__rate_interval])) / "
                    "sum by (batcher) (rate(karpenter_cloudprovider_batcher_batch_size_count{$S}[$__rate_interval]))",
                    "{{batcher}}",
                ),
            ),
        ),
        Panel(
            title="Age of instance types",
            description="Time since the instance types of a NodePool were listed; after 30 minutes they are "
            "withdrawn.",
            queries=(
                Query(
                    "max by (nodepool) (time() - karpenter_catalogue_refresh_timestamp_seconds{$S})",
                    "{{nodepool}}",
                ),
            ),
            unit="s",
        ),
    ),
)

_OFFERINGS: Final = Row(
    title="Offerings",
    panels=(
        Panel(
            title="Available offerings",
            description="Combinations of instance type, zone and capacity type that can be launched.",
            queries=(
                Query(
                    "sum by (capacity_type, zone) (max by (instance_type, capacity_type, zone) ("
                    "karpenter_cloudprovider_instance_type_offering_available{$S}))",
                    "{{capacity_type}} {{zone}}",
                ),
            ),
        ),
        Panel(
            title="Sold-out offerings",
            description="Offerings that failed launches have marked as unavailable, or that are not sold.",
            queries=(
                Query(
                    "count by (capacity_type, zone) (max by (instance_type, capacity_type, zone) ("
                    "karpenter_cloudprovider_instance_type_offering_available{$S}) == 0)",
                    "{{capacity_type}} {{zone}}",
                ),
            ),
        ),
        Panel(
            title="Cheapest price per vCPU and hour",
            description="Over all available offerings, by capacity type.",
            queries=(
                Query(
                    "min by (capacity_type) ("
                    "max by (instance_type, capacity_type, zone) ("
                    "karpenter_cloudprovider_instance_type_offering_price_estimate{$S} "
                    "and karpenter_cloudprovider_instance_type_offering_available{$S} == 1) "
                    "/ on (instance_type) group_left () max by (instance_type) ("
                    "karpenter_cloudprovider_instance_type_cpu_cores{$S}))",
                    "{{capacity_type}}",
                ),
            ),
        ),
    ),
)

_AWS: Final = Row(
    title="AWS",
    panels=(
        Panel(
            title="Calls to AWS",
            description="By service, action and status code; 0 is no answer.",
            queries=(
                Query(
                    "sum by (service, action, status_code) (rate(aws_sdk_go_request_total{$S}[$__rate_interval]) "
                    "and on (cluster, job, instance) karpenter_build_info{$S})",
                    "{{service}} {{action}} {{status_code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Offerings in which launches failed",
            description="By reason and zone.",
            queries=(
                Query(
                    "sum by (reason, zone, capacity_type) (increase("
                    "karpenter_cloudprovider_instance_launch_failures_total{$S}[$__rate_interval]))",
                    "{{reason}} {{zone}} {{capacity_type}}",
                ),
            ),
        ),
        Panel(
            title="Size of user data",
            description="EC2 allows 16,384 bytes.",
            queries=(
                Query(
                    "max by (nodeclass) (karpenter_ec2nodeclasses_userdata_bytes{$S})",
                    "{{nodeclass}}",
                ),
            ),
            unit="bytes",
        ),
    ),
)

_ALIBABA_CLOUD: Final = Row(
    title="Alibaba Cloud",
    panels=(
        Panel(
            title="Calls to Alibaba Cloud",
            description="By action and code.",
            queries=(
                Query(
                    "sum by (action, code) (rate(karpenter_alibabacloud_api_requests_total{$S}[$__rate_interval]))",
                    "{{action}} {{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Pairs tried in a launch",
            description="Median number of pairs of instance type and vSwitch in one launch call.",
            queries=(
                Query(
                    "histogram_quantile(0.5, sum by (le) (rate("
                    "karpenter_alibabacloud_launch_pairs_tried_bucket{$S}[$__rate_interval])))",
                    "pairs",
                ),
            ),
        ),
        Panel(
            title="Free addresses of vSwitches",
            description="As VPC reports them.",
            queries=(
                Query(
                    "min by (vswitch, zone) (karpenter_alibabacloud_vswitch_available_ips{$S})",
                    "{{vswitch}} {{zone}}",
                ),
            ),
        ),
    ),
)

_AZURE: Final = Row(
    title="Azure",
    panels=(
        Panel(
            title="Calls to Azure",
            description="By action and code.",
            queries=(
                Query(
                    "sum by (action, code) (rate(karpenter_azure_api_requests_total{$S}[$__rate_interval]))",
                    "{{action}} {{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Virtual machines requested and failed",
            description="Failures by phase and error code.",
            queries=(
                Query(
                    "sum by (capacity_type) (increase(karpenter_instance_vm_create_start_total{$S}[$__rate_interval]))",
                    "requested {{capacity_type}}",
                ),
                Query(
                    "sum by (phase, error_code) (increase("
                    "karpenter_instance_vm_create_failure_total{$S}[$__rate_interval]))",
                    "failed {{phase}} {{error_code}}",
                ),
            ),
        ),
        Panel(
            title="Quotas: vCPUs left",
            description="The ten quotas with the fewest vCPUs left, of those that are not empty.",
            queries=(
                Query(
                    "bottomk(10, min by (quota) (karpenter_azure_quota_remaining_vcpus{$S}) > 0)",
                    "{{quota}}",
                ),
            ),
        ),
        Panel(
            title="Requests left",
            description="Requests that Azure still permits, by limit.",
            queries=(
                Query("min by (limit) (karpenter_azure_remaining_requests{$S})", "{{limit}}"),
            ),
        ),
        Panel(
            title="Marks of unavailable offerings",
            description="Single offerings, and shortages of a quota family or zone.",
            queries=(
                Query(
                    "sum by (scope, capacity_type) (karpenter_azure_unavailable_marks{$S})",
                    "{{scope}} {{capacity_type}}",
                ),
            ),
        ),
        Panel(
            title="Age of prices",
            description="No line while prices are those that were shipped.",
            queries=(
                Query(
                    "max by (capacity_type) (karpenter_azure_price_age_seconds{$S})",
                    "{{capacity_type}}",
                ),
            ),
            unit="s",
        ),
    ),
)

PROVIDERS: Final = DashboardPage(
    name="provider-health",
    title="Karpenter / Provider health",
    description="Calls to the clouds, their errors, offerings and quotas.",
    variables=(
        Variable(
            name="provider",
            label="Provider",
            values='label_values(karpenter_cloudprovider_duration_seconds_count{cluster=~"$cluster"}, '
            "provider)",
        ),
    ),
    has_pools=False,
    rows=(_CALLS, _OFFERINGS, _AWS, _ALIBABA_CLOUD, _AZURE),
)
