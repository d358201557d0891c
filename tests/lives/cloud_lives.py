"""Lives of clusters on the simulated clouds, through the real SDKs: what is sent to each cloud.

In `options` a cluster has a NodePool for each kind of NodeClass; in `troubles` calls fail and instances
end, and in `chaos` a seed decides what goes wrong.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final
from unittest.mock import patch
from uuid import UUID

from karpenter_core.kube.resources import DEPLOYMENTS, custom_kind
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_core.testing.provider_cluster import node_pool_manifest
from tests.clouds.chaos import Chaos
from tests.clouds.stages import STAGES
from tests.controllers.whole_controller import deployment
from tests.support.drawn_doings import do_one

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.clouds.stages import ChaosStage

__all__ = ["OPTIONS", "live_chaos", "live_options", "live_troubles"]

CAPACITY: Final = "karpenter.sh/capacity-type"
BOTH: Final = {CAPACITY: ["spot", "on-demand"]}
ON_DEMAND: Final = {CAPACITY: ["on-demand"]}
CHAOS_ACTIONS: Final = 12
PAUSES: Final = (2, 20, 60)

OPTIONS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "aws": {
        "plain": {},
        "disks": {
            "blockDeviceMappings": [
                {
                    "deviceName": "/dev/xvda",
                    "rootVolume": True,
                    "ebs": {
                        "volumeSize": "60Gi", "volumeType": "gp3", "iops": 4000, "throughput": 200,
                        "encrypted": True, "kmsKeyID": "alias/nodes", "deleteOnTermination": True,
                    },
                },
                {
                    "deviceName": "/dev/xvdb",
                    "ebs": {
                        "snapshotID": "snap-0123456789abcdef0", "volumeType": "gp2",
                        "volumeInitializationRate": 200,
                    },
                },
            ],
            "instanceStorePolicy": "RAID0",
        },
        "network": {
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "enabled",
                "httpPutResponseHopLimit": 2, "httpTokens": "optional",
            },
            "associatePublicIPAddress": True,
            "connectionTracking": {"tcpEstablishedTimeout": 100, "udpTimeout": 40},
            "detailedMonitoring": True,
            "ipPrefixCount": 2,
            "context": "context-1",
            "tags": {"team": "web", "cost/centre": "17"},
        },
        "script": {
            "userData": "#!/bin/bash\necho hello",
            "kubelet": {
                "maxPods": 20, "kubeReserved": {"cpu": "200m"}, "evictionHard": {"memory.available": "5%"},
                "clusterDNS": ["10.0.0.9"],
            },
        },
        "bottlerocket": {
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "userData": '[settings.kernel]\nlockdown = "integrity"',
            "enclaveOptions": {"enabled": False},
        },
    },
    "azure": {
        "plain": {},
        "disks": {"osDiskSizeGB": 200, "tags": {"team": "web", "cost/centre": "17"}},
        "kubelet": {
            "kubelet": {
                "cpuManagerPolicy": "static", "imageGCHighThresholdPercent": 80,
                "imageGCLowThresholdPercent": 60, "containerLogMaxSize": "20Mi",
                "containerLogMaxFiles": 4, "podPidsLimit": 500,
            },
            "maxPods": 60,
        },
        "secure": {
            "security": {"encryptionAtHost": True, "trustedLaunch": {"vtpm": True, "secureBoot": True}},
            "imageFamily": "Ubuntu2204",
        },
        "linux": {"imageFamily": "AzureLinux", "artifactStreaming": {"enabled": True}},
    },
    "alibabacloud": {
        "plain": {},
        "disks": {
            "systemDisk": {"categories": ["cloud_essd"], "volumeSize": "60Gi", "performanceLevel": "PL1"},
            "dataDisks": [{"volumeSize": "100Gi", "device": "/dev/xvdb"}],
            "dataDiskCategories": ["cloud_essd"],
            "formatDataDisk": True,
        },
        "network": {
            "metadataOptions": {
                "httpTokens": "required", "httpEndpoint": "enabled", "httpPutResponseHopLimit": 2,
            },
            "internetMaxBandwidthOut": 5,
            "internetChargeType": "PayByTraffic",
            "tags": {"team": "web"},
            "vSwitchSelectionPolicy": "balanced",
        },
        "script": {
            "userData": "#!/bin/bash\necho hello",
            "kubeletConfiguration": {"maxPods": 30, "kubeReserved": {"cpu": "200m"}},
            "keyPairName": "nodes",
        },
        "spot": {
            "spot": {"priceLimit": 0.5, "durationHours": 0, "allocationStrategy": "diversified"},
            "ramRoleName": "NodeRole",
        },
    },
}  # fmt: skip
"""Fields of NodeClasses, by cloud and name."""


class CloudLife(Chaos):
    """A cluster whose Nodes join as in chaos, with steps of its own."""

    async def _unfold(self) -> None:
        await self.steps()

    async def steps(self) -> None:
        """Live."""
        raise NotImplementedError

    def monotonic(self) -> float:
        """Return the time of the cluster, by which calls wait and take turns."""
        return self._clock.monotonic() if hasattr(self, "_clock") else 0.0

    def apply_pool(self, name: str, *, requirements: Any, fields: Mapping[str, Any]) -> None:
        """Create a NodePool with a NodeClass of its own, and pods for it."""
        node_class = self._stage.node_class()
        node_class["metadata"]["name"] = name
        node_class["spec"] = {**node_class["spec"], **json.loads(json.dumps(fields))}
        pool = node_pool_manifest(
            self._stage.model,
            name,
            node_class=name,
            requirements=requirements,
            disruption={
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "20s",
                "budgets": [{"nodes": "100%"}],
            },
        )
        pods = deployment(name, 1, nodeSelector={"karpenter.sh/nodepool": name})
        self._cluster.apply(node_class, pool, pods)

    def scale(self, name: str, replicas: int) -> None:
        """Set the number of pods of a pool."""
        self._harness.cluster.scale(DEPLOYMENTS, name, replicas)

    def ready_soon(self) -> None:
        """Let instances boot in seconds."""
        behaviour = self._cloud.shared.behaviour
        behaviour.pending_seconds, behaviour.boot_seconds = 2, 5
        behaviour.terminating_seconds = 5


@final
class _Options(CloudLife):
    """A NodePool for each NodeClass, which drifts and is deleted."""

    def __init__(self, stage: ChaosStage, options: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(stage, 0)
        self._options = options

    async def steps(self) -> None:
        """Launch, drift, scale to nothing, delete."""
        self.ready_soon()
        for name, fields in self._options.items():
            self.apply_pool(name, requirements=BOTH if name == "spot" else ON_DEMAND, fields=fields)
        await self._pass(100)
        kind = custom_kind(self._stage.model.resource)
        changed = {"spec": {"tags": {"edition": "2"}}}
        self._harness.cluster.patch(kind, "plain", changed)
        await self._pass(100)
        for name in self._options:
            self.scale(name, 0)
        await self._pass(100)
        for name in self._options:
            self._harness.cluster.delete(NODE_POOLS, name)
            self._harness.cluster.delete(kind, name)
        await self._pass(30)


@final
class _Troubles(CloudLife):
    """Everything fails once, one after another."""

    async def steps(self) -> None:
        """Sell out, refuse, lose, throttle, reclaim, terminate, restart."""
        cloud, stage = self._cloud, self._stage
        self.ready_soon()
        self.apply_pool("plain", requirements=BOTH, fields={})
        await self._pass(60)
        self._launch_foreign()
        spot = cloud.shared.capacity.sell_out(capacity_type="spot")
        self.scale("plain", 4)
        await self._pass(40)
        everything = cloud.shared.capacity.sell_out()
        self.scale("plain", 8)
        await self._pass(40)
        spot.end()
        everything.end()
        for call in (*stage.launches, *stage.terminations):
            cloud.lose_replies(call, times=1)
        self.scale("plain", 12)
        await self._pass(90)
        error = stage.throttled
        for call in (*stage.launches, *stage.writes, *stage.reads):
            cloud.fail(call, code=error.code, status=error.status, times=1)
        self.scale("plain", 16)
        await self._pass(60)
        for call in (*stage.launches, *stage.terminations, *stage.reads):
            cloud.fail(call, code="InternalError", status=500, times=1)
        self.scale("plain", 2)
        await self._pass(60)
        denied = [cloud.deny(call) for call in stage.launches]
        self.scale("plain", 9)
        await self._pass(30)
        for each in denied:
            each.end()
        await self._pass(60)
        for each in self._own()[:1]:
            cloud.terminate(cloud.provider_id(each))
        for each in [each for each in self._own() if each.capacity_type == "spot"][:1]:
            cloud.reclaim(cloud.provider_id(each), notice_seconds=30.0)
        self._disturb()
        await self._pass(70)
        await self._restart()
        await self._pass(20)
        self.scale("plain", 0)
        await self._pass(120)


@final
class _Drawn(CloudLife):
    """Chaos that is not waited for until it comes to rest."""

    async def steps(self) -> None:
        """Let this and that go wrong."""
        self._begin()
        calm = {self._cut_off, self._kill_in_launch}
        doings = {doing: n for doing, n in self._doings().items() if doing not in calm}
        for _ in range(CHAOS_ACTIONS):
            await self._pass(self._rng.choice(PAUSES))
            await do_one(self._rng, doings, self._tell)
        self._end_faults(due=float("inf"))
        await self._pass(100)


def live_options(cloud: str, folder: Path) -> None:
    """Have a NodePool for each kind of NodeClass of a cloud."""
    _live(_Options(STAGES[cloud](), OPTIONS[cloud]), folder)


def live_troubles(cloud: str, folder: Path) -> None:
    """Have everything fail once."""
    _live(_Troubles(STAGES[cloud](), 0), folder)


def live_chaos(cloud: str, seed: int, folder: Path) -> None:
    """Have a seed decide what fails."""
    _live(_Drawn(STAGES[cloud](), seed), folder)


def _live(life: CloudLife, folder: Path) -> None:
    from moto.moto_api._internal import mock_random

    from karpenter_provider_aws import parts
    from karpenter_provider_aws.api_calls import ApiCalls

    mock_random.seed(0)  # the ids of the parts of simulated AWS that moto plays
    numbers, limit = count(1), OperationLimits.__init__
    no_waits = {"sleep": lambda _seconds: None, "monotonic": life.monotonic}

    def limit_by_cluster(limits: OperationLimits, **options: Any) -> None:
        limit(limits, **{**options, "monotonic": life.monotonic})

    with (
        patch.object(parts, "uuid4", lambda: UUID(int=next(numbers))),
        patch.object(OperationLimits, "__init__", limit_by_cluster),
        patch.dict(CloudCaller.__init__.__kwdefaults__, no_waits),
        patch.dict(ApiCalls.__init__.__kwdefaults__, no_waits),
        life._stage.open(),
    ):
        life._stage.play(folder, life.unfold)
