"""AKSNodeClasses that an API server with our CRD must accept or refuse, as data.

Acceptance cases 1-14. One table for the schema validator and for API servers alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]


class Case(NamedTuple):
    """An object to create; `field` is where it is refused, None when it is accepted.

    The number is that of the acceptance case; 0 where a rule has none.
    """

    number: int
    name: str
    object: Json
    field: str | None


def node_class(name: str = "web", /, **spec: Any) -> Json:
    """Return an AKSNodeClass with these fields."""
    return {
        "apiVersion": "karpenter.azure.com/v1beta1",
        "kind": "AKSNodeClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def without_spec(name: str = "web") -> Json:
    return {key: value for key, value in node_class(name).items() if key != "spec"}


def kubelet(**fields: Any) -> Json:
    return node_class(kubelet=fields)


def sysctls(**fields: Any) -> Json:
    return node_class(linuxOSConfig={"sysctls": fields})


def trusted_launch(**fields: Any) -> Json:
    return {"trustedLaunch": fields}


def zone(name: str, **fields: Any) -> Json:
    """Return the configuration of a DNS zone; None takes a field away."""
    whole = {
        "zone": name,
        "queryLogging": "Error",
        "protocol": "PreferUDP",
        "forwardDestination": "ClusterCoreDNS" if name.endswith("cluster.local") else "VnetDNS",
        "forwardPolicy": "Sequential",
        "maxConcurrent": 1000,
        "cacheDuration": "1h",
        "serveStaleDuration": "1h",
        "serveStale": "Immediate",
    } | fields
    return {key: value for key, value in whole.items() if value is not None}


ZONES = (zone("."), zone("cluster.local"))


def local_dns(
    mode: str = "Required", *, vnet: tuple[Json, ...] = ZONES, kube: tuple[Json, ...] = ZONES
) -> Json:
    return node_class(
        localDNS={"mode": mode, "vnetDNSOverrides": list(vnet), "kubeDNSOverrides": list(kube)}
    )


SUBNET = (
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/shop_(blue).rg"
    "/providers/Microsoft.Network/virtualNetworks/shop/subnets/nodes"
)
DISK = "spec.osDiskSizeGB"
TAGS = "spec.tags"
KUBELET = "spec.kubelet"
SYSCTLS = "spec.linuxOSConfig.sysctls"
PORTS = f"{SYSCTLS}.netIPv4IPLocalPortRange"
VNET_ZONES = "spec.localDNS.vnetDNSOverrides"
KUBE_ZONES = "spec.localDNS.kubeDNSOverrides"

WHOLE = node_class(
    "whole",
    vnetSubnetID=SUBNET,
    osDiskSizeGB=256,
    imageFamily="Ubuntu2204",
    fipsMode="Disabled",
    tags={"team": "web", "cost/center": "42"},
    kubelet={
        "cpuManagerPolicy": "static",
        "cpuCFSQuota": False,
        "cpuCFSQuotaPeriod": "50ms",
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "topologyManagerPolicy": "best-effort",
        "allowedUnsafeSysctls": ["kernel.msg*", "net.core.somaxconn"],
        "containerLogMaxSize": "100Mi",
        "containerLogMaxFiles": 3,
        "podPidsLimit": 4096,
        "failSwapOn": False,
    },
    maxPods=110,
    security={
        "encryptionAtHost": True,
        "trustedLaunch": {"vtpm": True, "secureBoot": True},
    },
    localDNS={
        "mode": "Preferred",
        "vnetDNSOverrides": [*ZONES, zone("db.example.com")],
        "kubeDNSOverrides": list(ZONES),
    },
    gpu={"mode": "None"},
    artifactStreaming={"enabled": True},
    linuxOSConfig={
        "swapFileSize": "1500Mi",
        "transparentHugePageDefrag": "defer+madvise",
        "transparentHugePageEnabled": "madvise",
        "sysctls": {
            "fsAioMaxNr": 65536,
            "netCoreRmemDefault": 212992,
            "netCoreRmemMax": 4194304,
            "netIPv4IPLocalPortRange": "32768 60999",
            "netIPv4NeighDefaultGcThresh1": 4096,
            "netIPv4TCPTwReuse": True,
            "vmMaxMapCount": 262144,
        },
    },
)
"""Every field of the spec."""

_BOUNDS = {
    "fsAioMaxNr": (65536, 6553500),
    "fsFileMax": (8192, 12000500),
    "fsInotifyMaxUserWatches": (781250, 2097152),
    "fsNrOpen": (8192, 20000500),
    "kernelThreadsMax": (20, 513785),
    "netCoreNetdevMaxBacklog": (1000, 3240000),
    "netCoreOptmemMax": (20480, 4194304),
    "netCoreRmemDefault": (212992, 134217728),
    "netCoreRmemMax": (212992, 134217728),
    "netCoreSomaxconn": (4096, 3240000),
    "netCoreWmemDefault": (212992, 134217728),
    "netCoreWmemMax": (212992, 134217728),
    "netIPv4NeighDefaultGcThresh1": (128, 80000),
    "netIPv4NeighDefaultGcThresh2": (512, 90000),
    "netIPv4NeighDefaultGcThresh3": (1024, 100000),
    "netIPv4TCPFinTimeout": (5, 120),
    "netIPv4TCPKeepaliveIntvl": (10, 90),
    "netIPv4TCPKeepaliveProbes": (1, 15),
    "netIPv4TCPKeepaliveTime": (30, 432000),
    "netIPv4TCPMaxSynBacklog": (128, 3240000),
    "netIPv4TCPMaxTwBuckets": (8000, 1440000),
    "netNetfilterNfConntrackBuckets": (65536, 524288),
    "netNetfilterNfConntrackMax": (131072, 2097152),
    "vmMaxMapCount": (65530, 262144),
    "vmSwappiness": (0, 100),
    "vmVfsCachePressure": (0, 100),
}
"""Smallest and largest value of each kernel parameter that is a number (API reference)."""

FIPS: Json = {"fipsMode": "FIPS"}

CASES: tuple[Case, ...] = (
    Case(0, "every field", WHOLE, None),
    Case(1, "empty spec", node_class(), None),
    Case(1, "no spec", without_spec(), None),
    # Disk, image, pods
    Case(2, "29 GB", node_class(osDiskSizeGB=29), DISK),
    Case(2, "30 GB", node_class(osDiskSizeGB=30), None),
    Case(2, "2048 GB", node_class(osDiskSizeGB=2048), None),
    Case(2, "2049 GB", node_class(osDiskSizeGB=2049), DISK),
    *(
        Case(3, f"family {family}", node_class(imageFamily=family), field)
        for family, field in (
            ("Ubuntu", None),
            ("Ubuntu2204", None),
            ("Ubuntu2404", None),
            ("AzureLinux", None),
            ("AzureLinux3", "spec.imageFamily"),
            ("ubuntu", "spec.imageFamily"),
            ("", "spec.imageFamily"),
        )
    ),
    Case(4, "9 pods", node_class(maxPods=9), "spec.maxPods"),
    Case(4, "10 pods", node_class(maxPods=10), None),
    Case(4, "250 pods", node_class(maxPods=250), None),
    Case(4, "251 pods", node_class(maxPods=251), "spec.maxPods"),
    # FIPS
    Case(5, "FIPS of Ubuntu2404", node_class(**FIPS, imageFamily="Ubuntu2404"), "spec"),
    Case(5, "FIPS of the default family", node_class(**FIPS), None),
    Case(5, "FIPS of AzureLinux", node_class(**FIPS, imageFamily="AzureLinux"), None),
    Case(5, "no FIPS", node_class(fipsMode="Disabled", imageFamily="Ubuntu2404"), None),
    Case(5, "unknown FIPS mode", node_class(fipsMode="fips"), "spec.fipsMode"),
    Case(6, "FIPS of Ubuntu2204", node_class(**FIPS, imageFamily="Ubuntu2204"), "spec"),
    *(
        Case(
            6,
            f"FIPS of {family} with {launch}",
            node_class(**FIPS, imageFamily=family, security=trusted_launch(**launch)),
            field,
        )
        for family, launch, field in (
            ("Ubuntu2204", {"vtpm": True}, None),
            ("Ubuntu2204", {"secureBoot": True}, None),
            ("Ubuntu2204", {"vtpm": False, "secureBoot": False}, "spec"),
            ("Ubuntu2204", {}, "spec"),
            ("Ubuntu", {"vtpm": True}, None),
            ("Ubuntu2404", {"vtpm": True}, "spec"),
            ("AzureLinux", {"vtpm": True}, "spec"),
            ("AzureLinux", {"vtpm": False}, None),
        )
    ),
    # Swap and kubelet
    Case(7, "swap alone", node_class(linuxOSConfig={"swapFileSize": "2Gi"}), "spec"),
    *(
        Case(
            7,
            f"swap {size} with {settings}",
            node_class(linuxOSConfig={"swapFileSize": size}, kubelet=settings),
            field,
        )
        for size, settings, field in (
            ("1500Mi", {"failSwapOn": False}, None),
            ("2Gi", {}, "spec"),
            ("2Gi", {"failSwapOn": True}, "spec"),
            ("2 Gi", {"failSwapOn": False}, "spec.linuxOSConfig.swapFileSize"),
        )
    ),
    Case(
        8,
        "image collection 80/80",
        kubelet(imageGCHighThresholdPercent=80, imageGCLowThresholdPercent=80),
        KUBELET,
    ),
    Case(
        8,
        "image collection 85/80",
        kubelet(imageGCHighThresholdPercent=85, imageGCLowThresholdPercent=80),
        None,
    ),
    Case(8, "image collection from 80", kubelet(imageGCHighThresholdPercent=80), None),
    Case(8, "image collection to 80", kubelet(imageGCLowThresholdPercent=80), None),
    Case(
        8,
        "image collection from 101",
        kubelet(imageGCHighThresholdPercent=101),
        f"{KUBELET}.imageGCHighThresholdPercent",
    ),
    Case(9, "1 log file", kubelet(containerLogMaxFiles=1), f"{KUBELET}.containerLogMaxFiles"),
    Case(9, "2 log files", kubelet(containerLogMaxFiles=2), None),
    *(
        Case(9, f"log of {size}", kubelet(containerLogMaxSize=size), field)
        for size, field in (
            ("50MB", f"{KUBELET}.containerLogMaxSize"),
            ("50", f"{KUBELET}.containerLogMaxSize"),
            ("50Mi", None),
            ("1Gi", None),
            ("50K", None),
        )
    ),
    *(
        Case(0, f"quota period {period}", kubelet(cpuCFSQuotaPeriod=period), field)
        for period, field in (
            ("1ms", None),
            ("0.5s", None),
            ("1s", None),
            ("500us", f"{KUBELET}.cpuCFSQuotaPeriod"),
            ("1001ms", f"{KUBELET}.cpuCFSQuotaPeriod"),
            ("100", f"{KUBELET}.cpuCFSQuotaPeriod"),
            ("", f"{KUBELET}.cpuCFSQuotaPeriod"),
        )
    ),
    Case(0, "CPU policy", kubelet(cpuManagerPolicy="dynamic"), f"{KUBELET}.cpuManagerPolicy"),
    Case(0, "NUMA", kubelet(topologyManagerPolicy="all"), f"{KUBELET}.topologyManagerPolicy"),
    # Kernel parameters
    *(
        Case(10, f"ports {ports!r}", sysctls(netIPv4IPLocalPortRange=ports), field)
        for ports, field in (
            ("32768 60999", None),
            ("1024 65535", None),
            ("60999 60999", None),
            ("1023 60000", PORTS),
            ("61000 65000", PORTS),
            ("1024 32767", PORTS),
            ("1024 65536", PORTS),
            ("50000 40000", PORTS),
            ("1024-60999", PORTS),
            ("1024 60999 1", PORTS),
        )
    ),
    *(
        Case(11, f"thresholds {values}", sysctls(**values), field)
        for values, field in (
            (
                {"netIPv4NeighDefaultGcThresh1": 5000, "netIPv4NeighDefaultGcThresh2": 4096},
                SYSCTLS,
            ),
            ({"netIPv4NeighDefaultGcThresh1": 5000}, None),
            (
                {"netIPv4NeighDefaultGcThresh1": 4096, "netIPv4NeighDefaultGcThresh2": 4096},
                None,
            ),
            (
                {"netIPv4NeighDefaultGcThresh2": 5000, "netIPv4NeighDefaultGcThresh3": 4096},
                SYSCTLS,
            ),
            ({"netCoreRmemDefault": 300000, "netCoreRmemMax": 212992}, SYSCTLS),
            ({"netCoreWmemDefault": 300000, "netCoreWmemMax": 212992}, SYSCTLS),
            ({"netCoreWmemDefault": 300000}, None),
        )
    ),
    *(
        Case(0, f"{name} of {value}", sysctls(**{name: value}), field)
        for name, (least, most) in _BOUNDS.items()
        for value, field in (
            (least - 1, f"{SYSCTLS}.{name}"),
            (least, None),
            (most, None),
            (most + 1, f"{SYSCTLS}.{name}"),
        )
    ),
    # LocalDNS
    *(Case(0, f"LocalDNS {mode}", local_dns(mode), None) for mode in ("Preferred", "Disabled")),
    Case(0, "LocalDNS without a mode", local_dns(""), "spec.localDNS.mode"),
    Case(12, "kube zones without the cluster's", local_dns(kube=(zone("."),)), KUBE_ZONES),
    Case(12, "kube zones without the root", local_dns(kube=(zone("cluster.local"),)), KUBE_ZONES),
    Case(12, "vnet zones without the cluster's", local_dns(vnet=(zone("."),)), VNET_ZONES),
    Case(12, "no zones", local_dns(kube=()), KUBE_ZONES),
    Case(
        13,
        "verified stale answers over TCP",
        local_dns(kube=(zone(".", serveStale="Verify", protocol="ForceTCP"), ZONES[1])),
        f"{KUBE_ZONES}[0]",
    ),
    Case(
        13,
        "verified stale answers over UDP",
        local_dns(kube=(zone(".", serveStale="Verify"), ZONES[1])),
        None,
    ),
    Case(
        13,
        "the cluster's zone to the network",
        local_dns(kube=(ZONES[0], zone("cluster.local", forwardDestination="VnetDNS"))),
        f"{KUBE_ZONES}[1]",
    ),
    Case(
        13,
        "a zone of the cluster's to the network",
        local_dns(kube=(*ZONES, zone("a.cluster.local", forwardDestination="VnetDNS"))),
        f"{KUBE_ZONES}[2]",
    ),
    Case(
        13,
        "the root of the network to the cluster",
        local_dns(vnet=(zone(".", forwardDestination="ClusterCoreDNS"), ZONES[1])),
        VNET_ZONES,
    ),
    Case(
        13,
        "the root of pods to the cluster",
        local_dns(kube=(zone(".", forwardDestination="ClusterCoreDNS"), ZONES[1])),
        None,
    ),
    Case(
        13,
        "a foreign zone of the network to the cluster",
        local_dns(vnet=(*ZONES, zone("example.com", forwardDestination="ClusterCoreDNS"))),
        VNET_ZONES,
    ),
    *(
        Case(0, f"zone {name[:20]!r}", local_dns(kube=(*ZONES, zone(name))), field)
        for name, field in (
            ("example.com.", None),
            ("_tcp.example.com", f"{KUBE_ZONES}[2].zone"),
            ("a_b.example.com", None),
            ("-a.example.com", f"{KUBE_ZONES}[2].zone"),
            (f"{'a' * 64}.com", f"{KUBE_ZONES}[2].zone"),
            (f"{'a' * 63}.com", None),
            ("", f"{KUBE_ZONES}[2].zone"),
        )
    ),
    Case(0, "a zone twice", local_dns(kube=(*ZONES, zone("."))), f"{KUBE_ZONES}[2]"),
    *(
        Case(
            0,
            f"zone without {field}",
            local_dns(kube=(zone(".", **{field: None}), ZONES[1])),
            f"{KUBE_ZONES}[0].{field}",
        )
        for field in zone(".")
        if field != "zone"
    ),
    Case(
        0,
        "negative queries",
        local_dns(kube=(zone(".", maxConcurrent=-1), ZONES[1])),
        f"{KUBE_ZONES}[0].maxConcurrent",
    ),
    Case(
        0,
        "cached for 1 day",
        local_dns(kube=(zone(".", cacheDuration="1d"), ZONES[1])),
        f"{KUBE_ZONES}[0].cacheDuration",
    ),
    # Tags
    *(
        Case(14, f"tag {key[:10]!r}: {value[:10]!r}", node_class(tags={key: value}), field)
        for key, value, field in (
            ("team", "web", None),
            ("cost/center", "", None),
            ("a<b", "x", TAGS),
            ("a>b", "x", TAGS),
            ("a%b", "x", TAGS),
            ("a&b", "x", TAGS),
            ("a?b", "x", TAGS),
            ("a\\b", "x", TAGS),
            ("k" * 512, "x", None),
            ("k" * 513, "x", TAGS),
            ("k", "v" * 256, None),
            ("k", "v" * 257, TAGS),
            ("k", "<&?", None),
        )
    ),
    # The rest
    *(
        Case(0, f"subnet {subnet[-20:]!r}", node_class(vnetSubnetID=subnet), field)
        for subnet, field in (
            (SUBNET, None),
            (SUBNET.lower(), None),
            (SUBNET.upper(), None),
            (f"{SUBNET}/", "spec.vnetSubnetID"),
            (SUBNET.removeprefix("/"), "spec.vnetSubnetID"),
            (SUBNET.replace("shop_(blue).rg", "shop."), "spec.vnetSubnetID"),
            (SUBNET.replace("Network/", "Compute/"), "spec.vnetSubnetID"),
            ("nodes", "spec.vnetSubnetID"),
        )
    ),
    Case(0, "GPU drivers", node_class(gpu={"mode": "Driver"}), None),
    Case(0, "GPUs without a mode", node_class(gpu={}), None),
    Case(0, "unknown GPU mode", node_class(gpu={"mode": "Off"}), "spec.gpu.mode"),
    Case(0, "empty objects", node_class(security={}, linuxOSConfig={}, kubelet={}), None),
    Case(
        0,
        "huge pages",
        node_class(linuxOSConfig={"transparentHugePageEnabled": "defer"}),
        "spec.linuxOSConfig.transparentHugePageEnabled",
    ),
)
