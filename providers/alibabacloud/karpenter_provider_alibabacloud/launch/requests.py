"""Builds the requests of launch calls, and their client tokens.

Pure functions of values. One call serves all claims with equal requests
(`docs/design/alibabacloud.md`, "One provisioning group for equal launches"): few calls a second may
change something, and instances are many.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import RESERVED, SPOT
from karpenter_provider_alibabacloud.labels import PROVISIONING_GROUP_TAG
from karpenter_provider_alibabacloud.launch.configuration import (
    group_configuration,
    run_parameters,
    without_empty,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.kit.recent_launches import ClaimRef
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.launch.targets import LaunchTarget

__all__ = [
    "CREATE_GROUP",
    "RUN_INSTANCES",
    "LaunchCallSpec",
    "client_token",
    "group_request",
    "needs_run_instances",
    "run_request",
    "spot_strategy",
]

CREATE_GROUP: Final = "CreateAutoProvisioningGroup"
RUN_INSTANCES: Final = "RunInstances"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCallSpec:
    """The instances that a call requests."""

    node_class: ECSNodeClass
    capacity_type: str
    targets: tuple[LaunchTarget, ...]
    """Targets to choose from, the best first; RunInstances takes the first alone."""
    amount: int
    user_data: str
    """In base64."""
    tags: Mapping[str, str]
    """Of the instances."""
    has_own_prices: bool
    """Prices are not those of ECS: the order of the pairs decides."""
    category: str
    """Of the system disk, for RunInstances."""


def needs_run_instances(node_class: ECSNodeClass) -> bool:
    """Whether a NodeClass asks for what a provisioning group cannot carry."""
    options = node_class.spec.metadata_options
    return options is not None and bool(
        options.http_tokens or options.http_endpoint or options.http_put_response_hop_limit
    )


def spot_strategy(node_class: ECSNodeClass) -> str:
    """Return the allocation strategy of spot instances."""
    spot = node_class.spec.spot
    return "lowest-price" if spot is None else spot.allocation_strategy


def group_request(wanted: LaunchCallSpec, *, region: str) -> dict[str, object]:
    """Return the parameters of CreateAutoProvisioningGroup, but for its token."""
    spec, targets = wanted.node_class.spec, wanted.targets
    is_spot = wanted.capacity_type == SPOT
    amount = str(wanted.amount)
    request: dict[str, object] = {
        "RegionId": region,
        "AutoProvisioningGroupType": "instant",
        "TotalTargetCapacity": amount,
        "SpotTargetCapacity": amount if is_spot else "0",
        "PayAsYouGoTargetCapacity": "0" if is_spot else amount,
        "SpotAllocationStrategy": spot_strategy(wanted.node_class),
        "PayAsYouGoAllocationStrategy": (
            "prioritized" if wanted.has_own_prices else "lowest-price"
        ),
        "ExcessCapacityTerminationPolicy": "termination",
        "LaunchTemplateConfig": _configs(wanted),
        "LaunchConfiguration": group_configuration(
            wanted.node_class,
            image_id=targets[0].image_id,
            user_data=wanted.user_data,
            tags=wanted.tags,
            capacity_type=wanted.capacity_type,
        ),
        "SystemDiskConfig": [{"DiskCategory": name} for name in spec.system_disk_categories],
        "Tag": [{"Key": PROVISIONING_GROUP_TAG, "Value": "true"}],
    }
    if is_spot:
        request["SpotInstanceInterruptionBehavior"] = "terminate"
    if spec.data_disks:
        request["DataDiskConfig"] = [
            {"DiskCategory": name} for name in spec.effective_data_disk_categories
        ]
    if wanted.capacity_type == RESERVED:
        request["ResourcePoolOptions"] = {
            "Strategy": "PrivatePoolOnly",
            "PrivatePoolIds": sorted({target.reservation_id for target in targets}),
        }
    return request


def _configs(wanted: LaunchCallSpec) -> list[dict[str, object]]:
    spot = wanted.node_class.spec.spot
    limit = spot.price_limit if spot is not None and wanted.capacity_type == SPOT else None
    has_images = len({target.image_id for target in wanted.targets}) > 1
    return [
        without_empty(
            {
                "InstanceType": target.instance_type.name,
                "VSwitchId": target.vswitch.id,
                "WeightedCapacity": 1,
                "ImageId": target.image_id if has_images else "",
                "MaxPrice": limit,
                "Priority": number if wanted.has_own_prices else None,
            }
        )
        for number, target in enumerate(wanted.targets)
    ]


def run_request(wanted: LaunchCallSpec, *, region: str) -> dict[str, object]:
    """Return the parameters of RunInstances, but for its token."""
    target, spot = wanted.targets[0], wanted.node_class.spec.spot
    is_spot = wanted.capacity_type == SPOT
    limit = spot.price_limit if spot is not None and is_spot else None
    strategy = "NoSpot" if not is_spot else "SpotAsPriceGo" if limit is None else _LIMITED
    return {
        "RegionId": region,
        "InstanceType": target.instance_type.name,
        "ImageId": target.image_id,
        "VSwitchId": target.vswitch.id,
        "Amount": wanted.amount,
        "MinAmount": 1,
        "InstanceChargeType": "PostPaid",
        "SpotStrategy": strategy,
        **without_empty({"SpotPriceLimit": limit}),
        # Without a word, ECS would take instances of open private pools for on-demand ones.
        "PrivatePoolOptions": (
            {"MatchCriteria": "Target", "Id": target.reservation_id}
            if wanted.capacity_type == RESERVED
            else {"MatchCriteria": "None"}
        ),
        **run_parameters(
            wanted.node_class,
            category=wanted.category,
            user_data=wanted.user_data,
            tags=wanted.tags,
            capacity_type=wanted.capacity_type,
        ),
    }


_LIMITED: Final = "SpotWithPriceLimit"


def client_token(
    request: Mapping[str, object], claims: Iterable[ClaimRef], attempts: Mapping[str, int]
) -> str:
    """Return the idempotency token of a call: a digest of what it asks, and for whom.

    User data is left out: each process has a script of ACK's with another secret in it, and two
    processes that launch the same must not both succeed. `attempts` counts by UID the calls that
    brought a claim nothing: another one is a new call.
    """
    configuration = request.get("LaunchConfiguration")
    asked = {
        **request,
        "UserData": "",
        "LaunchConfiguration": (
            {**cast("Mapping[str, object]", configuration), "UserData": ""} if configuration else {}
        ),
    }
    whole = {
        "request": asked,
        "claims": sorted((claim.uid, attempts.get(claim.uid, 0)) for claim in claims),
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
