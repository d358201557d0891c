"""EC2NodeClasses that an API server with our CRD must accept or refuse, as data.

Acceptance cases 1-18, and whatever the specs of the reference's CRD say of EC2NodeClass. One table for the
schema validator and for API servers alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]


class Case(NamedTuple):
    """An object to create; `field` is where it is refused, None when it is accepted."""

    number: int
    name: str
    object: Json
    field: str | None


class UpdateCase(NamedTuple):
    """An object to create and what to replace it with; nothing of it is immutable."""

    number: int
    name: str
    old: Json
    new: Json


def node_class(name: str = "web", /, **spec: Any) -> Json:
    """Return an EC2NodeClass that is accepted, but for these fields; None takes one away."""
    fields: Json = {
        "role": "web-nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"team": "web"}}],
        "securityGroupSelectorTerms": [{"tags": {"team": "web"}}],
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {key: value for key, value in (fields | spec).items() if value is not None},
    }


SUBNETS = "spec.subnetSelectorTerms"
GROUPS = "spec.securityGroupSelectorTerms"
RESERVATIONS = "spec.capacityReservationSelectorTerms"
IMAGES = "spec.amiSelectorTerms"
DEVICES = "spec.blockDeviceMappings"
INTERFACES = "spec.networkInterfaces"
PRIMARY = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


def interface(card: int, device: int, kind: str = "interface") -> Json:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def volume(**ebs: Any) -> Json:
    return node_class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": ebs}])


def alias(text: str, family: str | None = None) -> Json:
    return node_class(amiSelectorTerms=[{"alias": text}], amiFamily=family)


def images(*terms: Json, family: str | None = "AL2023") -> Json:
    return node_class(amiSelectorTerms=list(terms), amiFamily=family)


FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")
"""Those that have an alias, which is their name in lower case."""

LATER_TERMS: tuple[tuple[str, str, Json], ...] = (
    ("subnet", SUBNETS, {"subnetSelectorTerms": []}),
    ("group", GROUPS, {"securityGroupSelectorTerms": []}),
    ("reservation", RESERVATIONS, {"capacityReservationSelectorTerms": []}),
    ("image", IMAGES, {"amiSelectorTerms": [], "amiFamily": "AL2023"}),
)
"""Lists of terms, whose every term counts."""


def terms_of(fields: Json, *terms: Json) -> Json:
    """Return a NodeClass with these terms in its list of one kind."""
    return node_class(**{k: list(terms) if v == [] else v for k, v in fields.items()})


CASES: tuple[Case, ...] = (
    # Role and instance profile
    Case(1, "role only", node_class(), None),
    Case(1, "profile only", node_class(role=None, instanceProfile="web"), None),
    Case(1, "role and profile", node_class(instanceProfile="web"), "spec"),
    Case(1, "neither role nor profile", node_class(role=None), "spec"),
    Case(2, "empty role", node_class(role=""), "spec.role"),
    Case(2, "empty profile", node_class(role=None, instanceProfile=""), "spec.instanceProfile"),
    # Subnets
    Case(3, "no subnet term", node_class(subnetSelectorTerms=[]), SUBNETS),
    Case(3, "subnet terms absent", node_class(subnetSelectorTerms=None), SUBNETS),
    Case(
        3,
        "subnet terms null",
        {**node_class(), "spec": {**node_class()["spec"], "subnetSelectorTerms": None}},
        SUBNETS,
    ),
    Case(
        3,
        "31 subnet terms",
        node_class(subnetSelectorTerms=[{"id": f"subnet-{n}"} for n in range(31)]),
        SUBNETS,
    ),
    Case(
        3,
        "30 subnet terms",
        node_class(subnetSelectorTerms=[{"id": f"subnet-{n}"} for n in range(30)]),
        None,
    ),
    Case(
        4,
        "21 tags",
        node_class(subnetSelectorTerms=[{"tags": {f"t{n}": "x" for n in range(21)}}]),
        f"{SUBNETS}[0].tags",
    ),
    Case(
        4,
        "subnet id with tags",
        node_class(subnetSelectorTerms=[{"id": "subnet-1", "tags": {"a": "b"}}]),
        f"{SUBNETS}[0]",
    ),
    Case(
        4,
        "bad last subnet term",
        node_class(subnetSelectorTerms=[{"id": "subnet-1"}, {}]),
        f"{SUBNETS}[1]",
    ),
    Case(
        4,
        "bad last subnet term with id and tags",
        node_class(
            subnetSelectorTerms=[{"id": "subnet-1"}, {"id": "subnet-2", "tags": {"a": "b"}}]
        ),
        f"{SUBNETS}[1]",
    ),
    Case(
        4,
        "id that is no subnet's",
        node_class(subnetSelectorTerms=[{"id": "vpc-1"}]),
        f"{SUBNETS}[0].id",
    ),
    # Security groups
    *(
        Case(5, f"group by {'+'.join(term)}", node_class(securityGroupSelectorTerms=[term]), field)
        for term, field in (
            ({"tags": {"a": "b"}}, None),
            ({"name": "web"}, None),
            ({"id": "sg-1"}, None),
            ({"name": "web", "tags": {"a": "b"}}, f"{GROUPS}[0]"),
            ({"id": "sg-1", "name": "web"}, f"{GROUPS}[0]"),
            ({"id": "sg-1", "tags": {"a": "b"}}, f"{GROUPS}[0]"),
        )
    ),
    Case(5, "no group term", node_class(securityGroupSelectorTerms=[]), GROUPS),
    Case(
        5,
        "id that is no group's",
        node_class(securityGroupSelectorTerms=[{"id": "web"}]),
        f"{GROUPS}[0].id",
    ),
    # Capacity reservations
    *(
        Case(6, name, node_class(capacityReservationSelectorTerms=[term]), field)
        for name, term, field in (
            ("owner only", {"ownerID": "012345678901"}, f"{RESERVATIONS}[0]"),
            ("id and owner", {"id": "cr-1", "ownerID": "012345678901"}, f"{RESERVATIONS}[0]"),
            (
                "id and criteria",
                {"id": "cr-1", "instanceMatchCriteria": "open"},
                f"{RESERVATIONS}[0]",
            ),
            ("id and tags", {"id": "cr-1", "tags": {"a": "b"}}, f"{RESERVATIONS}[0]"),
            (
                "tags, owner and criteria",
                {
                    "tags": {"a": "b"},
                    "ownerID": "012345678901",
                    "instanceMatchCriteria": "targeted",
                },
                None,
            ),
            ("criteria only", {"instanceMatchCriteria": "open"}, None),
            (
                "unknown criteria",
                {"instanceMatchCriteria": "foo"},
                f"{RESERVATIONS}[0].instanceMatchCriteria",
            ),
            (
                "short owner",
                {"tags": {"a": "b"}, "ownerID": "01234567890"},
                f"{RESERVATIONS}[0].ownerID",
            ),
            ("other id", {"id": "xx-1"}, f"{RESERVATIONS}[0].id"),
            ("id", {"id": "cr-0abc"}, None),
        )
    ),
    Case(6, "no reservation terms", node_class(capacityReservationSelectorTerms=[]), None),
    Case(
        6,
        "31 reservation terms",
        node_class(capacityReservationSelectorTerms=[{"id": f"cr-{n}"} for n in range(31)]),
        RESERVATIONS,
    ),
    # Images
    Case(7, "alias and another", images({"alias": "al2023@latest"}, {"id": "ami-1"}), IMAGES),
    *(
        Case(7, f"image {one} and {other}", images({**term, **more}), f"{IMAGES}[0]")
        for one, term, others in (
            ("id", {"id": "ami-1"}, ("alias", "tags", "name", "owner")),
            ("alias", {"alias": "al2023@latest"}, ("tags", "name", "owner")),
        )
        for other, more in (
            ("alias", {"alias": "al2023@latest"}),
            ("tags", {"tags": {"a": "b"}}),
            ("name", {"name": "web-*"}),
            ("owner", {"owner": "123456789012"}),
        )
        if other in others
    ),
    Case(7, "image tags", images({"tags": {"a": "b"}}), None),
    Case(7, "image name", images({"name": "web-*"}), None),
    Case(7, "image id", images({"id": "ami-12345749"}), None),
    Case(7, "owner alone", images({"owner": "self"}), f"{IMAGES}[0]"),
    Case(7, "owner and tags", images({"owner": "self", "tags": {"a": "b"}}), None),
    Case(7, "owner and name", images({"owner": "self", "name": "web-*"}), None),
    Case(7, "parameter", images({"ssmParameter": "/web/image"}), None),
    Case(7, "two ids", images({"id": "ami-1"}, {"id": "ami-2"}), None),
    Case(7, "no image terms", images(), IMAGES),
    Case(7, "image terms absent", node_class(amiSelectorTerms=None, amiFamily="AL2"), IMAGES),
    *(
        Case(8, f"alias {text}", alias(text), None)
        for text in (
            "al2@latest",
            "al2@v20240625",
            "al2023@latest",
            "al2023@v20240625",
            "bottlerocket@1.10.0",
            "windows2019@latest",
            "windows2022@latest",
            "windows2025@latest",
        )
    ),
    *(
        Case(8, f"alias {text!r}", alias(text), f"{IMAGES}[0].alias")
        for text in (
            "@latest",
            "al2023",
            "al2023@",
            "al2023-latest",
            "ubuntu@latest",
            "AL2023@latest",
            "windows2019@v1.0.0",
            "windows2022@v1.0.0",
            "windows2025@v1.0.0",
            "al2023@" + "v" * 24,
        )
    ),
    Case(9, "neither family nor alias", images({"id": "ami-1"}, family=None), "spec"),
    Case(9, "unknown family", images({"id": "ami-1"}, family="Ubuntu"), "spec.amiFamily"),
    *(
        Case(9, f"family {family} of an image by id", images({"id": "ami-1"}, family=family), None)
        for family in (*FAMILIES, "Custom")
    ),
    *(
        Case(
            9,
            f"family {family} and alias {named.lower()}",
            alias(f"{named.lower()}@latest", family),
            None if family in (named, "Custom") else "spec",
        )
        for family in (*FAMILIES, "Custom")
        for named in FAMILIES
    ),
    # Terms of every kind
    *(
        Case(number, f"{kind} {what}", terms_of(fields, *terms), f"{place}[{index}].tags")
        for number, (kind, place, fields) in zip((4, 5, 6, 7), LATER_TERMS, strict=True)
        for what, terms, index in (
            ("tag without value", ({"tags": {"a": ""}},), 0),
            ("tag without key", ({"tags": {"": "b"}},), 0),
            (
                "bad last of four",
                (*({"tags": {"a": each}} for each in "bcd"), {"tags": {"": "e"}}),
                3,
            ),
        )
    ),
    *(
        Case(number, f"{kind} by tags", terms_of(fields, {"tags": {"a": "b", "*": "*"}}), None)
        for number, (kind, _, fields) in zip((4, 5, 6, 7), LATER_TERMS, strict=True)
    ),
    *(
        Case(number, f"{kind} by nothing", terms_of(fields, {}), f"{place}[0]")
        for number, (kind, place, fields) in zip((4, 5, 6, 7), LATER_TERMS, strict=True)
    ),
    Case(4, "subnet by id", node_class(subnetSelectorTerms=[{"id": "subnet-12345749"}]), None),
    Case(5, "group terms absent", node_class(securityGroupSelectorTerms=None), GROUPS),
    # Tags
    *(
        Case(10, f"tag {key!r}", node_class(tags={"team": "web", key: "x"}), "spec.tags")
        for key in (
            "kubernetes.io/cluster/x",
            "eks:eks-cluster-name",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
            "",
        )
    ),
    Case(10, "tag Name", node_class(tags={"Name": "web", "empty": ""}), None),
    Case(10, "no tags", node_class(tags={}), None),
    *(
        Case(10, f"tag {key}", node_class(tags={key: "x"}), None)
        for key in ("karpenter.sh/custom-key", "karpenter.sh/managed", "kubernetes.io/role/key")
    ),
    # Metadata options
    *(
        Case(
            11,
            f"metadata {key} {value}",
            node_class(metadataOptions={key: value}),
            None if good else f"spec.metadataOptions.{key}",
        )
        for key, value, good in (
            ("httpPutResponseHopLimit", -5, False),
            ("httpPutResponseHopLimit", 0, False),
            ("httpPutResponseHopLimit", 1, True),
            ("httpPutResponseHopLimit", 64, True),
            ("httpPutResponseHopLimit", 65, False),
            ("httpTokens", "maybe", False),
            ("httpTokens", "optional", True),
            ("httpEndpoint", "maybe", False),
            ("httpProtocolIPv6", "enabled", True),
            ("httpProtocolIPv6", "maybe", False),
        )
    ),
    Case(
        11,
        "all metadata options",
        node_class(
            metadataOptions={
                "httpEndpoint": "disabled",
                "httpProtocolIPv6": "enabled",
                "httpPutResponseHopLimit": 34,
                "httpTokens": "optional",
            }
        ),
        None,
    ),
    # Block devices
    Case(
        12,
        "two root volumes",
        node_class(
            blockDeviceMappings=[{"deviceName": f"/dev/sd{x}", "rootVolume": True} for x in "ab"]
        ),
        DEVICES,
    ),
    Case(
        12,
        "one root volume",
        node_class(
            blockDeviceMappings=[
                {"deviceName": "/dev/sda", "rootVolume": True},
                {"deviceName": "/dev/sdb", "rootVolume": False},
                {"deviceName": "/dev/sdc"},
            ]
        ),
        None,
    ),
    Case(12, "neither size nor snapshot", volume(encrypted=True), f"{DEVICES}[0].ebs"),
    Case(12, "snapshot", volume(snapshotID="snap-1"), None),
    Case(
        12,
        "51 mappings",
        node_class(blockDeviceMappings=[{"deviceName": f"/dev/{n}"} for n in range(51)]),
        DEVICES,
    ),
    *(
        Case(13, f"size {size}", volume(volumeSize=size), None)
        for size in (
            "1Gi",
            "59000Gi",
            "1G",
            "58G",
            "64000G",
            "1Ti",
            "18Ti",
            "58Ti",
            "1T",
            "45T",
            "64T",
        )
    ),
    *(
        Case(13, f"size {size!r}", volume(volumeSize=size), f"{DEVICES}[0].ebs.volumeSize")
        for size in (
            *("0Gi", "59001Gi", "64001G", "65T", "59Ti", "1Mi", "Ti", "T", "01Gi", "1.5Gi"),
            *("100", "-1Gi", "", " 1Gi", "1Gi\n", "0", "1m", "100T"),
        )
    ),
    Case(
        13,
        "unknown kind",
        volume(volumeSize="1Gi", volumeType="gp4"),
        f"{DEVICES}[0].ebs.volumeType",
    ),
    *(
        Case(
            14,
            f"initialization rate {rate}",
            volume(snapshotID="snap-1", volumeInitializationRate=rate),
            None if good else f"{DEVICES}[0].ebs.volumeInitializationRate",
        )
        for rate, good in ((99, False), (100, True), (300, True), (301, False), (888, False))
    ),
    Case(
        14,
        "initialization rate without a snapshot",
        volume(volumeSize="1Gi", volumeInitializationRate=100),
        f"{DEVICES}[0].ebs",
    ),
    Case(
        14,
        "initialization rate with an empty snapshot",
        volume(snapshotID="", volumeInitializationRate=100),
        f"{DEVICES}[0].ebs",
    ),
    # Network interfaces
    *(
        Case(15, name, node_class(networkInterfaces=interfaces), field)
        for name, interfaces, field in (
            ("no interfaces", [], None),
            ("primary interface", [PRIMARY], None),
            ("no primary interface", [interface(0, 1)], INTERFACES),
            ("primary as efa-only", [interface(0, 0, "efa-only")], INTERFACES),
            ("twice the same device", [PRIMARY, interface(1, 1), interface(1, 1)], INTERFACES),
            (
                "two efa-only on a card",
                [PRIMARY, interface(1, 0, "efa-only"), interface(1, 1, "efa-only")],
                INTERFACES,
            ),
            (
                "efa-only on two cards",
                [PRIMARY, interface(0, 1, "efa-only"), interface(1, 0, "efa-only")],
                None,
            ),
            (
                "negative card",
                [PRIMARY, interface(-1, 0)],
                f"{INTERFACES}[1].networkCardIndex",
            ),
            (
                "interfaces of both kinds on both cards",
                [
                    PRIMARY,
                    interface(0, 1, "efa-only"),
                    interface(1, 0, "efa-only"),
                    interface(1, 1),
                ],
                None,
            ),
            (
                "twice the same device as different kinds",
                [PRIMARY, interface(1, 0), interface(1, 0, "efa-only")],
                INTERFACES,
            ),
            ("negative device", [PRIMARY, interface(0, -1)], f"{INTERFACES}[1].deviceIndex"),
            ("unknown kind", [PRIMARY, interface(0, 1, "efa")], f"{INTERFACES}[1].interfaceType"),
            (
                "no device index",
                [PRIMARY, {"networkCardIndex": 1, "interfaceType": "interface"}],
                f"{INTERFACES}[1].deviceIndex",
            ),
            ("151 interfaces", [interface(0, n) for n in range(151)], INTERFACES),
            ("150 interfaces", [interface(0, n) for n in range(150)], None),
        )
    ),
    Case(15, "negative prefix count", node_class(ipPrefixCount=-1), "spec.ipPrefixCount"),
    Case(15, "no prefixes", node_class(ipPrefixCount=0), None),
    # Connection tracking
    Case(16, "no tracking", node_class(connectionTracking={}), "spec.connectionTracking"),
    Case(
        16,
        "all of tracking",
        node_class(
            connectionTracking={
                "tcpEstablishedTimeout": 432000,
                "udpStreamTimeout": 180,
                "udpTimeout": 60,
            }
        ),
        None,
    ),
    *(
        Case(
            16,
            f"{key} {value}",
            node_class(connectionTracking={key: value}),
            None if good else f"spec.connectionTracking.{key}",
        )
        for key, value, good in (
            ("tcpEstablishedTimeout", 59, False),
            ("tcpEstablishedTimeout", 60, True),
            ("tcpEstablishedTimeout", 432000, True),
            ("tcpEstablishedTimeout", 432001, False),
            ("udpStreamTimeout", 59, False),
            ("udpStreamTimeout", 60, True),
            ("udpStreamTimeout", 180, True),
            ("udpStreamTimeout", 181, False),
            ("udpTimeout", 29, False),
            ("udpTimeout", 30, True),
            ("udpTimeout", 60, True),
            ("udpTimeout", 61, False),
        )
    ),
    # Placement groups
    *(
        Case(17, f"group {selector}", node_class(placementGroupSelector=selector), field)
        for selector, field in (
            ({"name": "web"}, None),
            ({"id": "pg-0abc"}, None),
            ({"name": "web", "id": "pg-0abc"}, "spec.placementGroupSelector"),
            ({}, "spec.placementGroupSelector"),
            ({"name": ""}, "spec.placementGroupSelector.name"),
            ({"id": "pg-"}, "spec.placementGroupSelector.id"),
            ({"id": "xpg-1"}, "spec.placementGroupSelector.id"),
        )
    ),
    # Rules without a case of their own
    Case(0, "empty CPU options", node_class(cpuOptions={}), None),
    *(
        Case(
            0,
            f"nested virtualization {value}",
            node_class(cpuOptions={"nestedVirtualization": value}),
            None,
        )
        for value in ("enabled", "disabled")
    ),
    Case(
        0,
        "unknown nested virtualization",
        node_class(cpuOptions={"nestedVirtualization": "yes"}),
        "spec.cpuOptions.nestedVirtualization",
    ),
    Case(0, "enclaves", node_class(enclaveOptions={"enabled": True}), None),
    Case(0, "no enclaves", node_class(enclaveOptions={"enabled": False}), None),
    Case(
        0,
        "enclaves neither on nor off",
        node_class(enclaveOptions={}),
        "spec.enclaveOptions.enabled",
    ),
    Case(0, "local disks", node_class(instanceStorePolicy="RAID0"), None),
    Case(
        0, "other local disks", node_class(instanceStorePolicy="RAID1"), "spec.instanceStorePolicy"
    ),
    Case(
        0,
        "every other field",
        node_class(
            userData="",
            associatePublicIPAddress=False,
            detailedMonitoring=True,
            context="abc",
            ipPrefixCount=2,
        ),
        None,
    ),
)

UPDATE_CASES: tuple[UpdateCase, ...] = (
    UpdateCase(2, "another role", node_class(), node_class(role="others")),
    UpdateCase(2, "role to profile", node_class(), node_class(role=None, instanceProfile="web")),
    UpdateCase(2, "profile to role", node_class(role=None, instanceProfile="web"), node_class()),
)

KUBELET: Json = {
    "maxPods": "min(110, max_pods)",
    "podsPerCore": "ten",
    "serializeImagePulls": False,
    "logging": {
        "format": "json",
        "flushFrequency": "5s",
        "options": {"json": {"infoBufferSize": "100Mi", "splitStream": True}},
    },
    "futureField": {"nested": [{"a": 1, "b": [True, 1.5, "x"]}], "empty": {}},
    "evictionHard": {"memory.available": "5%"},
    "registryPullQPS": 10,
}
"""Case 18: stored as it is, whether or not a kubelet would take it."""
