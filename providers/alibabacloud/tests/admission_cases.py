"""ECSNodeClasses that an API server with our CRD must accept or refuse, as data.

Acceptance cases 1-11 and 13-16. One table for the schema validator and for API servers alike.
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
    """Return an ECSNodeClass that is accepted, but for these fields; None takes one away."""
    fields: Json = {
        "vSwitchSelectorTerms": [{"tags": {"team": "web"}}],
        "securityGroupSelectorTerms": [{"tags": {"team": "web"}}],
        "imageSelectorTerms": [{"alias": "ContainerOS"}],
    }
    return {
        "apiVersion": "karpenter.k8s.alibabacloud/v1alpha1",
        "kind": "ECSNodeClass",
        "metadata": {"name": name},
        "spec": {key: value for key, value in (fields | spec).items() if value is not None},
    }


V_SWITCHES = "spec.vSwitchSelectorTerms"
GROUPS = "spec.securityGroupSelectorTerms"
IMAGES = "spec.imageSelectorTerms"
RESERVATIONS = "spec.capacityReservationSelectorTerms"
KUBELET = "spec.kubeletConfiguration"
TAGS = "spec.tags"


def v_switches(*terms: Json) -> Json:
    return node_class(vSwitchSelectorTerms=list(terms))


def groups(*terms: Json) -> Json:
    return node_class(securityGroupSelectorTerms=list(terms))


def images(*terms: Json) -> Json:
    return node_class(imageSelectorTerms=list(terms))


def kubelet(**fields: Any) -> Json:
    return node_class(kubeletConfiguration=fields)


def system_disk(**fields: Any) -> Json:
    return node_class(systemDisk=fields)


def data_disk(**fields: Any) -> Json:
    return node_class(dataDisks=[fields])


def numbered(prefix: str, count: int) -> list[Json]:
    return [{"id": f"{prefix}-{number}"} for number in range(count)]


PUBLISHED = node_class(
    "published",
    vSwitchSelectionPolicy="balanced",
    vSwitchSelectorTerms=[{"tags": {"karpenter.sh/discovery": "prod"}}],
    securityGroupSelectorTerms=[{"tags": {"karpenter.sh/discovery": "prod"}}],
    imageSelectorTerms=[{"alias": "AlibabaCloudLinux3"}],
    kubeletConfiguration={"maxPods": 50, "clusterDNS": ["192.168.0.10"], "cpuCFSQuota": True},
    systemDisk={"categories": ["cloud_essd"], "size": 20, "performanceLevel": "PL1"},
    tags={"owner": "web"},
    resourceGroupId="rg-acfmv",
)
"""Every field of the form that articles about this API show."""

CASES: tuple[Case, ...] = (
    Case(0, "published form", PUBLISHED, None),
    # Terms
    Case(1, "31 vSwitch terms", v_switches(*numbered("vsw", 31)), V_SWITCHES),
    Case(1, "30 vSwitch terms", v_switches(*numbered("vsw", 30)), None),
    Case(1, "31 group terms", groups(*numbered("sg", 31)), GROUPS),
    Case(1, "30 group terms", groups(*numbered("sg", 30)), None),
    Case(1, "31 image terms", images(*numbered("m", 31)), IMAGES),
    Case(1, "30 image terms", images(*numbered("m", 30)), None),
    Case(
        1,
        "31 reservation terms",
        node_class(capacityReservationSelectorTerms=numbered("crp", 31)),
        RESERVATIONS,
    ),
    *(
        Case(2, f"vSwitch by {'+'.join(term) or 'nothing'}", v_switches(term), field)
        for term, field in (
            ({"tags": {"a": "b"}}, None),
            ({"tags": {"a": "*"}}, None),
            ({"tags": {"a": ""}}, None),
            ({"id": "vsw-1"}, None),
            ({"name": "web"}, None),
            ({"name": "web", "tags": {"a": "b"}}, None),
            ({"zoneId": "cn-hangzhou-b", "tags": {"a": "b"}}, None),
            ({"zoneId": "cn-hangzhou-b"}, f"{V_SWITCHES}[0]"),
            ({"id": "vsw-1", "tags": {"a": "b"}}, f"{V_SWITCHES}[0]"),
            ({"id": "vsw-1", "name": "web"}, f"{V_SWITCHES}[0]"),
            ({"id": "vsw-1", "zoneId": "cn-hangzhou-b"}, f"{V_SWITCHES}[0]"),
            ({}, f"{V_SWITCHES}[0]"),
            ({"tags": {"": "b"}}, f"{V_SWITCHES}[0].tags"),
            ({"tags": {f"t{n}": "x" for n in range(20)}}, None),
            ({"tags": {f"t{n}": "x" for n in range(21)}}, f"{V_SWITCHES}[0].tags"),
        )
    ),
    Case(
        2,
        "bad last vSwitch term",
        v_switches({"id": "vsw-1"}, {"id": "vsw-2", "tags": {"a": "b"}}),
        f"{V_SWITCHES}[1]",
    ),
    Case(
        2,
        "bad first vSwitch term",
        v_switches({"id": "vsw-1", "tags": {"a": "b"}}, {"id": "vsw-2"}),
        f"{V_SWITCHES}[0]",
    ),
    *(
        Case(2, f"vSwitch id {text}", v_switches({"id": text}), f"{V_SWITCHES}[0].id")
        for text in ("vpc-1", "vsw-", "xvsw-1", "vsw-1x!", "vsw-A")
    ),
    *(
        Case(3, f"group by {'+'.join(term) or 'nothing'}", groups(term), field)
        for term, field in (
            ({"tags": {"a": "b"}}, None),
            ({"name": "web"}, None),
            ({"id": "sg-1"}, None),
            ({"name": "web", "tags": {"a": "b"}}, f"{GROUPS}[0]"),
            ({"id": "sg-1", "name": "web"}, f"{GROUPS}[0]"),
            ({"id": "sg-1", "tags": {"a": "b"}}, f"{GROUPS}[0]"),
            ({}, f"{GROUPS}[0]"),
        )
    ),
    Case(
        3,
        "bad last group term",
        groups({"id": "sg-1"}, {"name": "web", "tags": {"a": "b"}}),
        f"{GROUPS}[1]",
    ),
    *(
        Case(3, f"group id {text}", groups({"id": text}), f"{GROUPS}[0].id")
        for text in ("web", "xsg-1", "sg-1 ")
    ),
    *(
        Case(4, f"{name} of no terms", node_class(**{name: []}), f"spec.{name}")
        for name in ("vSwitchSelectorTerms", "securityGroupSelectorTerms", "imageSelectorTerms")
    ),
    *(
        Case(4, f"{name} absent", node_class(**{name: None}), f"spec.{name}")
        for name in ("vSwitchSelectorTerms", "securityGroupSelectorTerms", "imageSelectorTerms")
    ),
    Case(5, "two aliases", images({"alias": "ContainerOS"}, {"alias": "ContainerOS"}), IMAGES),
    Case(5, "alias and id", images({"alias": "ContainerOS"}, {"id": "m-1"}), IMAGES),
    Case(5, "two ids", images({"id": "m-1"}, {"id": "aliyun_3_x64_20G_alibase.vhd"}), None),
    *(
        Case(5, f"image by {'+'.join(term) or 'nothing'}", images(term), field)
        for term, field in (
            ({"id": "m-1", "alias": "ContainerOS"}, f"{IMAGES}[0]"),
            ({"id": "m-1", "name": "web"}, f"{IMAGES}[0]"),
            ({"id": "m-1", "ownerAlias": "self"}, f"{IMAGES}[0]"),
            ({"alias": "ContainerOS", "tags": {"a": "b"}}, f"{IMAGES}[0]"),
            ({"alias": "ContainerOS", "ownerAlias": "system"}, f"{IMAGES}[0]"),
            ({"ownerAlias": "self"}, f"{IMAGES}[0]"),
            ({}, f"{IMAGES}[0]"),
            ({"id": ""}, f"{IMAGES}[0].id"),
            ({"name": "web", "ownerAlias": "amazon"}, f"{IMAGES}[0].ownerAlias"),
            ({"name": "web"}, None),
            ({"name": "web", "tags": {"a": "b"}, "ownerAlias": "self"}, None),
            ({"imageFamily": "acs:web"}, None),
            ({"tags": {"a": "b"}, "ownerAlias": "others"}, None),
        )
    ),
    *(
        Case(6, f"alias {text}", images({"alias": text}), None)
        for text in (
            "ContainerOS",
            "ContainerOS@latest",
            "AlibabaCloudLinux3",
            "AlibabaCloudLinux3@20250117",
            "AlibabaCloudLinux4@latest",
            "AlibabaCloudLinux3ContainerOptimized@20250117",
            "Ubuntu",
        )
    ),
    *(
        Case(6, f"alias {text!r}", images({"alias": text}), f"{IMAGES}[0].alias")
        for text in (
            *("Debian", "A@b@c", "ContainerOS@b@c", "ContainerOS@", "@latest", ""),
            *("containeros", "xContainerOS", "ContainerOS2", "ContainerOS@" + "1" * 53),
        )
    ),
    Case(7, "policy balanced", node_class(vSwitchSelectionPolicy="balanced"), None),
    Case(7, "policy cheapest", node_class(vSwitchSelectionPolicy="cheapest"), None),
    Case(
        7,
        "policy random",
        node_class(vSwitchSelectionPolicy="random"),
        "spec.vSwitchSelectionPolicy",
    ),
    # Login
    Case(8, "inherited", node_class(passwordInherit=True), None),
    Case(8, "password", node_class(password="Abcdef12"), None),
    Case(
        8, "password, not inherited", node_class(password="Abcdef12", passwordInherit=False), None
    ),
    Case(8, "both", node_class(password="Abcdef12", passwordInherit=True), "spec"),
    *(
        Case(9, f"password of {length}", node_class(password="a" * length), field)
        for length, field in (
            (7, "spec.password"),
            (8, None),
            (30, None),
            (31, "spec.password"),
        )
    ),
    Case(9, "every sign", node_class(password="a1~!@#$%^&*()_+-=[]{}|\\:;\"'"), None),
    Case(9, "further signs", node_class(password="a1<>,.?/Z"), None),
    Case(9, "password with a space", node_class(password="Abcdef 12"), "spec.password"),
    *(
        Case(9, f"key pair of {len(text)}", node_class(keyPairName=text), field)
        for text, field in (
            ("a", "spec.keyPairName"),
            ("ab", None),
            ("1b", "spec.keyPairName"),
            ("a" * 128, None),
            ("a" * 129, "spec.keyPairName"),
        )
    ),
    # Disks
    *(
        Case(10, f"size {text}", system_disk(volumeSize=text), None)
        for text in (
            *("20Gi", "59000Gi", "58Ti", "64000G", "64T", "18Ti", "19Ti", "28Ti", "49Ti"),
            *("21Gi", "99Gi", "100Gi", "9999Gi", "10000Gi", "22G", "1Ti", "1T"),
        )
    ),
    *(
        Case(10, f"size {text!r}", system_disk(volumeSize=text), "spec.systemDisk.volumeSize")
        for text in (
            *("Ti", "T", "Gi", "0Gi", "59001Gi", "59Ti", "64001G", "65T", "100Mi", "020Gi"),
            *("19Gi", "1Gi", "21G", "20.5Gi", "100", "-20Gi", "", " 20Gi", "20Gi\n", "0Ti"),
        )
    ),
    *(
        Case(10, f"data of {text}", data_disk(volumeSize=text), None)
        for text in ("1Gi", "10Gi", "20Gi", "59000Gi", "1G", "64000G", "18Ti", "64T")
    ),
    *(
        Case(10, f"data of {text!r}", data_disk(volumeSize=text), "spec.dataDisks[0].volumeSize")
        for text in ("Ti", "T", "0Gi", "59001Gi", "59Ti", "65T", "100Mi", "")
    ),
    Case(11, "system disk of 19", system_disk(size=19), "spec.systemDisk.size"),
    Case(11, "system disk of 20", system_disk(size=20), None),
    Case(11, "system disk of both", system_disk(size=40, volumeSize="60Gi"), None),
    *(
        Case(0, name, obj, field)
        for name, obj, field in (
            ("category", system_disk(categories=["cloud_essd", "cloud_ssd"]), None),
            (
                "unknown category",
                system_disk(categories=["cloud_essd", "floppy"]),
                "spec.systemDisk.categories[1]",
            ),
            ("level", system_disk(performanceLevel="PL3"), None),
            (
                "unknown level",
                system_disk(performanceLevel="PL4"),
                "spec.systemDisk.performanceLevel",
            ),
            (
                "encrypted system disk",
                system_disk(
                    encrypted=True, kmsKeyId="k-1", provisionedIops=0, burstingEnabled=True
                ),
                None,
            ),
            (
                "too many operations",
                system_disk(provisionedIops=50_001),
                "spec.systemDisk.provisionedIops",
            ),
            (
                "full data disk",
                data_disk(
                    device="/dev/xvdb",
                    performanceLevel="PL1",
                    encrypted=True,
                    kmsKeyId="k-1",
                    snapshotId="s-1",
                    deleteWithInstance=False,
                ),
                None,
            ),
            ("bare data disk", data_disk(), None),
            ("16 data disks", node_class(dataDisks=[{}] * 16), None),
            ("17 data disks", node_class(dataDisks=[{}] * 17), "spec.dataDisks"),
            ("data category", node_class(dataDiskCategories=["cloud_auto"]), None),
            (
                "unknown data category",
                node_class(dataDiskCategories=["floppy"]),
                "spec.dataDiskCategories[0]",
            ),
        )
    ),
    # Tags
    *(
        Case(13, f"tag {key!r}", node_class(tags={"team": "web", key: "x"}), TAGS)
        for key in (
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.alibabacloud/ecsnodeclass",
            "karpenter.k8s.alibabacloud/nodeclaims",
            "karpenter.k8s.alibabacloud/nodeclaims-1",
            "kubernetes.io/cluster/x",
            "kubernetes.io/cluster",
            "ecs:ecs-cluster-id",
            "ecs:ecs-cluster-name",
            "acs:foo",
            "aliyun-foo",
            "a-http://b",
            "https://b",
            "",
            "k" * 129,
        )
    ),
    *(
        Case(13, f"tag value {value!r}", node_class(tags={"team": value}), field)
        for value, field in (
            ("acs:foo", TAGS),
            ("aliyun", TAGS),
            ("see http://b", TAGS),
            ("see https://b", TAGS),
            ("v" * 129, f"{TAGS}.team"),
            ("v" * 128, None),
            ("", None),
            ("http", None),
            ("not-acs:foo", None),
        )
    ),
    Case(13, "tag Name", node_class(tags={"Name": "web", "k" * 128: "x"}), None),
    Case(16, "14 tags", node_class(tags={f"t{n}": "x" for n in range(14)}), TAGS),
    Case(16, "13 tags", node_class(tags={f"t{n}": "x" for n in range(13)}), None),
    # Kubelet
    Case(
        14,
        "soft threshold without period",
        kubelet(evictionSoft={"memory.available": "1Gi"}),
        KUBELET,
    ),
    Case(
        14,
        "soft threshold with another's period",
        kubelet(
            evictionSoft={"memory.available": "1Gi"},
            evictionSoftGracePeriod={"pid.available": "1m"},
        ),
        KUBELET,
    ),
    Case(
        14,
        "period without soft threshold",
        kubelet(evictionSoftGracePeriod={"memory.available": "1m"}),
        KUBELET,
    ),
    Case(
        14,
        "soft threshold with period",
        kubelet(
            evictionSoft={"memory.available": "5%", "nodefs.available": "1Gi"},
            evictionSoftGracePeriod={"memory.available": "1m30s", "nodefs.available": "0"},
        ),
        None,
    ),
    *(
        Case(
            14,
            f"images {high}/{low}",
            kubelet(imageGCHighThresholdPercent=high, imageGCLowThresholdPercent=low),
            field,
        )
        for high, low, field in (
            (80, 80, KUBELET),
            (80, 81, KUBELET),
            (81, 80, None),
            (101, 80, f"{KUBELET}.imageGCHighThresholdPercent"),
            (80, -1, f"{KUBELET}.imageGCLowThresholdPercent"),
        )
    ),
    Case(14, "images high alone", kubelet(imageGCHighThresholdPercent=80), None),
    *(
        Case(15, f"{field} {key} {value}", kubelet(**{field: {key: value}}), refused)
        for field in ("kubeReserved", "systemReserved")
        for key, value, refused in (
            ("cpu", "100m", None),
            ("memory", "1.5Gi", None),
            ("ephemeral-storage", "1e9", None),
            ("pid", "1000", None),
            ("cpu", "-1", f"{KUBELET}.{field}"),
            ("cpu", "much", f"{KUBELET}.{field}.cpu"),
            ("cpu", "", f"{KUBELET}.{field}.cpu"),
            ("gpu", "1", f"{KUBELET}.{field}"),
        )
    ),
    *(
        Case(15, f"{field} {key}", kubelet(evictionHard={key: value}), refused)
        for field, key, value, refused in (
            ("evictionHard", "memory.available", "5%", None),
            ("evictionHard", "nodefs.inodesFree", "12.25%", None),
            ("evictionHard", "imagefs.available", "100%", None),
            ("evictionHard", "cpu.available", "5%", f"{KUBELET}.evictionHard"),
            ("evictionHard", "pid.available", "%", f"{KUBELET}.evictionHard.pid.available"),
        )
    ),
    *(
        Case(15, f"{field} {number}", kubelet(**{field: number}), refused)
        for field, number, refused in (
            ("maxPods", 0, None),
            ("maxPods", -1, f"{KUBELET}.maxPods"),
            ("podsPerCore", 0, None),
            ("podsPerCore", -1, f"{KUBELET}.podsPerCore"),
            ("evictionMaxPodGracePeriod", 60, None),
        )
    ),
    # Fields that the reference does not have
    *(
        Case(0, f"spot {key} {value}", node_class(spot={key: value}), refused)
        for key, value, refused in (
            ("priceLimit", 0.123, None),
            ("priceLimit", 1, None),
            ("priceLimit", 1.5, None),
            ("priceLimit", 0.29, None),
            ("priceLimit", 1.005, None),
            ("priceLimit", 99999.999, None),
            ("priceLimit", 0.001, None),
            ("priceLimit", 0.0006, "spec.spot.priceLimit"),
            ("priceLimit", 100_000.5, "spec.spot.priceLimit"),
            ("priceLimit", 0.1234, "spec.spot.priceLimit"),
            ("priceLimit", 0, "spec.spot.priceLimit"),
            ("priceLimit", -1, "spec.spot.priceLimit"),
            ("durationHours", 0, None),
            ("durationHours", 1, None),
            ("durationHours", 2, "spec.spot.durationHours"),
            ("allocationStrategy", "diversified", None),
            ("allocationStrategy", "random", "spec.spot.allocationStrategy"),
            ("interruptionBehavior", "terminate", None),
            ("interruptionBehavior", "stop", "spec.spot.interruptionBehavior"),
        )
    ),
    *(
        Case(0, f"metadata {key} {value}", node_class(metadataOptions={key: value}), refused)
        for key, value, refused in (
            ("httpTokens", "required", None),
            ("httpTokens", "maybe", "spec.metadataOptions.httpTokens"),
            ("httpEndpoint", "disabled", None),
            ("httpEndpoint", "maybe", "spec.metadataOptions.httpEndpoint"),
            ("httpPutResponseHopLimit", 64, None),
            ("httpPutResponseHopLimit", 0, "spec.metadataOptions.httpPutResponseHopLimit"),
        )
    ),
    *(
        Case(0, f"{key} {value}", node_class(**{key: value}), refused)
        for key, value, refused in (
            ("resourceGroupId", "rg-acfm1", None),
            ("resourceGroupId", "acfm1", "spec.resourceGroupId"),
            ("ramRoleName", "KubernetesWorkerRole-1", None),
            ("ramRoleName", "a b", "spec.ramRoleName"),
            ("deploymentSetId", "ds-bp1", None),
            ("deploymentSetId", "bp1", "spec.deploymentSetId"),
            ("nodePoolId", "np1b2c3", None),
            ("nodePoolId", "../x", "spec.nodePoolId"),
            ("internetMaxBandwidthOut", 100, None),
            ("internetMaxBandwidthOut", 101, "spec.internetMaxBandwidthOut"),
            ("internetChargeType", "PayByTraffic", "spec"),
            ("formatDataDisk", True, None),
            ("userData", "echo hello", None),
        )
    ),
    Case(
        0,
        "paid by traffic",
        node_class(internetMaxBandwidthOut=10, internetChargeType="PayByTraffic"),
        None,
    ),
    *(
        Case(0, f"reservation {name}", node_class(capacityReservationSelectorTerms=[term]), field)
        for name, term, field in (
            ("by id", {"id": "crp-bp1"}, None),
            ("by id of an assurance", {"id": "eap-bp1"}, None),
            ("by name and tags", {"name": "web", "tags": {"a": "b"}}, None),
            ("by id and name", {"id": "crp-bp1", "name": "web"}, f"{RESERVATIONS}[0]"),
            ("by nothing", {}, f"{RESERVATIONS}[0]"),
            ("of another kind", {"id": "cr-1"}, f"{RESERVATIONS}[0].id"),
        )
    ),
)
