"""Checks of `spec.kubelet` (acceptance cases 19-26, and the reasons of 68 and 69)."""

from __future__ import annotations

import pytest

from karpenter_provider_aws.api.nodeclass import AmiFamily, EC2NodeClass
from karpenter_provider_aws.instance_type_info import InstanceTypeInfo, NetworkCard
from karpenter_provider_aws.kubelet.checks import (
    EVALUATION_FAILED,
    EXPRESSION_INVALID,
    EXPRESSIONS_DISABLED,
    INVALID,
    SUPPORTED_BY_ALL,
    UNSUPPORTED,
    evaluation_finding,
    invalid_settings,
    kubelet_finding,
    unsupported_settings,
)
from karpenter_provider_aws.kubelet.fields import (
    READABLE_TYPES,
    known_fields,
    unreadable_fields,
)
from providers.aws.tests.admission_cases import node_class

SIMPLE_FAMILIES = ("AL2", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")


def with_kubelet(kubelet, family="AL2023"):
    obj = node_class(kubelet=kubelet, amiFamily=family, amiSelectorTerms=[{"id": "ami-1"}])
    return EC2NodeClass.model_validate(obj)


def reason(kubelet, family="AL2023", *, expressions_enabled=False):
    problem = kubelet_finding(
        with_kubelet(kubelet, family), expressions_enabled=expressions_enabled
    )
    return None if problem is None else problem.reason


@pytest.mark.parametrize(
    "kubelet",
    [
        {},
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80},
        {"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0},
        {"evictionHard": {"memory.available": "5%"}},
        {"evictionHard": {"memory.available": "500Mi", "nodefs.inodesFree": "0"}},
        {"evictionHard": {"memory.available": "100%", "pid.available": "0.5%"}},
        {"evictionMinimumReclaim": {"imagefs.available": "2Gi"}},
        {
            "evictionSoft": {"memory.available": "10%"},
            "evictionSoftGracePeriod": {"memory.available": "2m"},
        },
        {"kubeReserved": {"pid": "100", "cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1"}},
        {"systemReserved": {}},
        {"maxPods": 0, "podsPerCore": 0, "evictionMaxPodGracePeriod": 0},
        {"clusterDNS": ["10.0.0.10", "10.0.0.11"]},
        {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"},
        {"registryPullQPS": 10.0, "memoryThrottlingFactor": 0.9, "maxOpenFiles": 2**40},
        {"featureGates": {"NodeSwap": True}, "allowedUnsafeSysctls": ["net.*"]},
        {"shutdownGracePeriod": "30s", "cpuManagerPolicy": "static"},
        {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": 1}}]},
        {"staticPodURLHeader": {"x": ["a", "b"]}, "authentication": {"x509": {}}},
        {"logging": {"verbosity": 3, "flushFrequency": 5_000_000_000}},
        {"logging": {"flushFrequency": "5s", "options": {"json": {"infoBufferSize": "1Mi"}}}},
        {"evictionHard": None},
    ],
)
def test_accepted_kubelet_values_are_valid(kubelet):
    """Cases 19-22."""
    assert invalid_settings(kubelet) == ()
    assert reason(kubelet) is None


@pytest.mark.parametrize(
    ("kubelet", "complaint"),
    [
        (
            {"imageGCHighThresholdPercent": 101},
            "imageGCHighThresholdPercent: must be from 0 to 100, not 101",
        ),
        (
            {"imageGCHighThresholdPercent": -1},
            "imageGCHighThresholdPercent: must be from 0 to 100, not -1",
        ),
        (
            {"imageGCLowThresholdPercent": -1},
            "imageGCLowThresholdPercent: must be from 0 to 100, not -1",
        ),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50},
            (
                "imageGCHighThresholdPercent: must be more than imageGCLowThresholdPercent, but 50 is "
                "not more than 50"
            ),
        ),
        (
            {"evictionHard": {"memory.available": "101%"}},
            'evictionHard[memory.available]: must be from 0% to 100%, or a quantity, not "101%"',
        ),
        (
            {"evictionHard": {"memory.available": "-5%"}},
            'evictionHard[memory.available]: must be from 0% to 100%, or a quantity, not "-5%"',
        ),
        (
            {"evictionHard": {"memory.available": "nan%"}},
            'evictionHard[memory.available]: must be from 0% to 100%, or a quantity, not "nan%"',
        ),
        (
            {"evictionHard": {"memory.available": "-1Mi"}},
            'evictionHard[memory.available]: must not be negative, but is "-1Mi"',
        ),
        (
            {"evictionHard": {"memory.available": "abc"}},
            'evictionHard[memory.available]: must be a percentage or a quantity, not "abc"',
        ),
        (
            {"evictionHard": {"memory.available": ""}},
            'evictionHard[memory.available]: must be a percentage or a quantity, not ""',
        ),
        (
            {"evictionHard": {"foo.available": "5%"}},
            (
                'evictionHard: "foo.available" is no eviction signal; there are memory.available, '
                "nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, "
                "pid.available"
            ),
        ),
        (
            {"evictionMinimumReclaim": {"memory.available": "x"}},
            'evictionMinimumReclaim[memory.available]: must be a percentage or a quantity, not "x"',
        ),
        (
            {"evictionSoft": {"memory.available": "5%"}},
            "evictionSoft[memory.available]: has no counterpart in evictionSoftGracePeriod",
        ),
        (
            {"evictionSoftGracePeriod": {"memory.available": "1m"}},
            "evictionSoftGracePeriod[memory.available]: has no counterpart in evictionSoft",
        ),
        (
            {
                "evictionSoft": {"pid.available": "5%"},
                "evictionSoftGracePeriod": {"pid.available": "-30s"},
            },
            'evictionSoftGracePeriod[pid.available]: must not be negative, but is "-30s"',
        ),
        (
            {
                "evictionSoft": {"pid.available": "5%"},
                "evictionSoftGracePeriod": {"pid.available": "soon"},
            },
            'evictionSoftGracePeriod[pid.available]: must be a duration such as 2m, not "soon"',
        ),
        (
            {"kubeReserved": {"gpu": "1"}},
            'kubeReserved: "gpu" cannot be reserved; there are cpu, memory, ephemeral-storage, pid',
        ),
        ({"kubeReserved": {"cpu": "-1"}}, 'kubeReserved[cpu]: must not be negative, but is "-1"'),
        (
            {"systemReserved": {"cpu": "-vcpus"}},
            'systemReserved[cpu]: must not be negative, but is "-vcpus"',
        ),
        ({"maxPods": -1}, "maxPods: must not be negative, but is -1"),
        ({"podsPerCore": -1}, "podsPerCore: must not be negative, but is -1"),
        (
            {"evictionMaxPodGracePeriod": -1},
            "evictionMaxPodGracePeriod: must not be negative, but is -1",
        ),
        (
            {"registerWithTaints": []},
            "registerWithTaints: cannot be set, taints come from the NodePool",
        ),
        # Fields that are none, or of another type
        ({"maxpods": 1}, "maxpods: no such field"),
        (
            {"authentication": {"x509": {"clientCA": "x"}}},
            "authentication.x509.clientCA: no such field",
        ),
        ({"maxPods": 2**31}, "maxPods: must be a whole number, not 2147483648"),
        ({"maxPods": 1.5}, "maxPods: must be a whole number, not 1.5"),
        ({"maxPods": True}, "maxPods: must be a whole number, not true"),
        ({"podsPerCore": "4"}, 'podsPerCore: must be a whole number, not "4"'),
        ({"cpuCFSQuota": "yes"}, 'cpuCFSQuota: must be true or false, not "yes"'),
        ({"clusterDNS": "10.0.0.10"}, 'clusterDNS: must be a list, not "10.0.0.10"'),
        ({"clusterDNS": [10]}, "clusterDNS[0]: must be a text, not 10"),
        ({"evictionHard": ["5%"]}, 'evictionHard: must be a map, not ["5%"]'),
        ({"kubeReserved": {"cpu": 1}}, "kubeReserved[cpu]: must be a text, not 1"),
        (
            {"featureGates": {"NodeSwap": "true"}},
            'featureGates[NodeSwap]: must be true or false, not "true"',
        ),
        (
            {"shutdownGracePeriod": 30},
            "shutdownGracePeriod: must be a duration such as 30s, not 30",
        ),
        (
            {"shutdownGracePeriod": "soon"},
            'shutdownGracePeriod: must be a duration such as 30s, not "soon"',
        ),
        (
            {"logging": {"verbosity": -1}},
            "logging.verbosity: must be a whole number of zero or more, not -1",
        ),
        (
            {"reservedMemory": [{"limits": {"memory": "much"}}]},
            'reservedMemory[0].limits[memory]: must be a quantity such as 1Gi, not "much"',
        ),
    ],
)
def test_refused_and_ignored_kubelet_values_are_invalid(kubelet, complaint):
    """Cases 19-23; field and value are named."""
    assert invalid_settings(kubelet) == (f"spec.kubelet.{complaint}",)
    assert reason(kubelet) == INVALID


ALL_SIGNALS = {
    "memory.available": "5%",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "15%",
    "imagefs.available": "5%",
    "imagefs.inodesFree": "5%",
    "pid.available": "5%",
}
GRACE = {"memory.available": "1m"}


@pytest.mark.parametrize(
    "kubelet",
    [
        {"evictionHard": ALL_SIGNALS},
        {
            "evictionSoft": ALL_SIGNALS,
            "evictionSoftGracePeriod": dict(
                zip(ALL_SIGNALS, ("1m", "1m30s", "5m", "1h", "24h", "60s"), strict=True)
            ),
        },
        {"systemReserved": {"ephemeral-storage": "1Gi", "pid": "1000"}},
        {"imageGCHighThresholdPercent": 10},
        {
            "logging": {
                "format": "json",
                "flushFrequency": "5s",
                "options": {"json": {"infoBufferSize": "100Mi", "splitStream": True}},
            }
        },
        {"serializeImagePulls": False},
    ],
)
def test_values_accepted_by_the_reference_are_valid(kubelet):
    """Cases of the reference's specs about `spec.kubelet`, as far as not above."""
    assert invalid_settings(kubelet) == ()


@pytest.mark.parametrize(
    ("kubelet", "named"),
    [
        *(({field: {"pods": "2"}}, field) for field in ("kubeReserved", "systemReserved")),
        *(({field: {"gpu": "1"}}, field) for field in ("kubeReserved", "systemReserved")),
        *(
            ({field: {"cpu": "-1"}}, f"{field}[cpu]")
            for field in ("kubeReserved", "systemReserved")
        ),
        *(
            ({field: {"memory.available": value}} | more, f"{field}[memory.available]")
            for field, more in (
                ("evictionHard", {}),
                ("evictionSoft", {"evictionSoftGracePeriod": GRACE}),
                ("evictionMinimumReclaim", {}),
            )
            for value in ("5%3", "110%", "110GB", "lots")
        ),
        *(
            ({field: {"memory": value}}, field)
            for field, value in (
                ("evictionHard", "5%"),
                ("evictionSoft", "5%"),
                ("evictionMinimumReclaim", "500Mi"),
                ("evictionSoftGracePeriod", "1m"),
            )
        ),
        (
            {
                "evictionSoft": {"memory.available": "5%"},
                "evictionSoftGracePeriod": {"memory.available": "5x"},
            },
            "evictionSoftGracePeriod[memory.available]",
        ),
        (
            {
                "evictionSoft": {"memory.available": "10%"},
                "evictionSoftGracePeriod": {"nodefs.available": "1m"},
            },
            "evictionSoft[memory.available]",
        ),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 60},
            "imageGCHighThresholdPercent",
        ),
        ({"imageGCLowThresholdPercent": 101}, "imageGCLowThresholdPercent"),
        ({"logging": {"bogus": True}}, "logging.bogus"),
        ({"logging": {"options": {"json": {"nope": "x"}}}}, "logging.options.json.nope"),
        ({"logging": {"format": 12345}}, "logging.format"),
        ({"a": {"b": [1, "two", True]}}, "a"),
        ({"systemReserved": {"cpu": 1}}, "systemReserved[cpu]"),
        ({"evictionHard": {"memory.available": 5}}, "evictionHard[memory.available]"),
        ({"evictionMaxPodGracePeriod": "30"}, "evictionMaxPodGracePeriod"),
        ({"imageGCHighThresholdPercent": "80"}, "imageGCHighThresholdPercent"),
        ({"imageGCLowThresholdPercent": "70"}, "imageGCLowThresholdPercent"),
        ({"cpuCFSQuota": "true"}, "cpuCFSQuota"),
    ],
)
def test_values_refused_by_the_reference_are_invalid(kubelet, named):
    """The field is named."""
    assert any(text.startswith(f"spec.kubelet.{named}:") for text in invalid_settings(kubelet))


def test_all_mistakes_are_named_at_once():
    """Case 24; in the same order each time."""
    kubelet = {
        "podsPerCore": -1,
        "kubeReserved": {"gpu": "1"},
        "evictionHard": {"memory.available": "101%"},
        "unknown": 1,
        "clusterDNS": "x",
    }

    problem = kubelet_finding(with_kubelet(kubelet), expressions_enabled=False)

    assert problem is not None
    assert problem.reason == INVALID
    complaints = problem.message.split("; spec.")
    assert [text.removeprefix("spec.").split(":")[0] for text in complaints] == [
        "kubelet.clusterDNS",
        "kubelet.unknown",
        "kubelet.evictionHard[memory.available]",
        "kubelet.kubeReserved",
        "kubelet.podsPerCore",
    ]


HIGH_60 = {"imageGCHighThresholdPercent": 60}
LOW_90 = {"imageGCLowThresholdPercent": 90}


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        (
            HIGH_60,
            (
                "spec.kubelet.imageGCHighThresholdPercent: must be more than imageGCLowThresholdPercent, "
                "which is 80 unless it is set, but is 60"
            ),
        ),
        (
            {"imageGCHighThresholdPercent": 80},
            (
                "spec.kubelet.imageGCHighThresholdPercent: must be more than imageGCLowThresholdPercent, "
                "which is 80 unless it is set, but is 80"
            ),
        ),
        (
            LOW_90,
            (
                "spec.kubelet.imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent, "
                "which is 85 unless it is set, but is 90"
            ),
        ),
    ],
)
def test_a_threshold_that_contradicts_the_default_of_the_other_is_refused(kubelet, message):
    """No kubelet would start, and each of its nodes would be bought in vain."""
    problem = kubelet_finding(with_kubelet(kubelet), expressions_enabled=False)

    assert problem is not None
    assert (problem.reason, problem.message) == (INVALID, message)


@pytest.mark.parametrize(
    ("kubelet", "family", "user_data"),
    [
        ({"imageGCHighThresholdPercent": 81}, "AL2023", ""),
        ({"imageGCLowThresholdPercent": 84}, "AL2023", ""),
        (HIGH_60, "AL2023", "spec: {kubelet: {config: {imageGCLowThresholdPercent: 50}}}"),
        (HIGH_60, "AL2", "--kubelet-extra-args --image-gc-low-threshold=50"),
        (LOW_90, "Bottlerocket", '[settings.kubernetes]\nimage-gc-high-threshold-percent = "95"'),
        (HIGH_60, "Custom", ""),
    ],
)
def test_a_threshold_is_accepted_where_the_other_may_fit(kubelet, family, user_data):
    terms = [{"id": "ami-1"}]
    obj = node_class(kubelet=kubelet, amiFamily=family, amiSelectorTerms=terms, userData=user_data)
    checked = EC2NodeClass.model_validate(obj)

    assert kubelet_finding(checked, expressions_enabled=False) is None


@pytest.mark.parametrize("family", SIMPLE_FAMILIES)
def test_most_families_hand_over_some_fields_only(family):
    """Case 25."""
    problem = kubelet_finding(
        with_kubelet({"registryPullQPS": 10, "maxPods": 10}, family), expressions_enabled=False
    )

    assert problem is not None
    assert problem.reason == UNSUPPORTED
    assert problem.message == (
        f"spec.kubelet.registryPullQPS: not supported by AMI family {family}"
    )


@pytest.mark.parametrize("family", ["AL2023", "Custom"])
def test_some_families_hand_over_every_field(family):
    """Cases 25 and 26."""
    kubelet = {"registryPullQPS": 10, "clusterDNS": ["10.0.0.10", "10.0.0.11"], "podsPerCore": 2}

    assert reason(kubelet, family) is None


@pytest.mark.parametrize("family", SIMPLE_FAMILIES)
def test_most_families_have_one_name_server(family):
    """Case 26."""
    assert reason({"clusterDNS": ["10.0.0.10"]}, family) is None
    assert reason({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}, family) == UNSUPPORTED


def test_bottlerocket_counts_no_pods_per_core():
    """Case 26."""
    assert reason({"podsPerCore": 2}, "Bottlerocket") == UNSUPPORTED
    assert reason({"podsPerCore": 2}, "AL2") is None


def test_fields_that_every_family_supports_are_fields_of_the_kubelet():
    assert known_fields().keys() >= SUPPORTED_BY_ALL
    assert unsupported_settings(dict.fromkeys(SUPPORTED_BY_ALL), AmiFamily.AL2) == ()


def test_every_kubelet_value_type_is_checked():
    """Data written anew for a later release may bring a type that nothing here reads."""

    def leaves(shape):
        if isinstance(shape, str):
            return {shape}
        if "fields" in shape:
            return {leaf for below in shape["fields"].values() for leaf in leaves(below)}
        return leaves(shape.get("list") or shape["map"])

    assert leaves({"fields": known_fields()}) <= READABLE_TYPES


def test_expressions_need_their_gate():
    """Cases 68 and 69; a number beside them does not matter."""
    kubelet = {"maxPods": "max_pods", "kubeReserved": {"cpu": "vcpus*10", "pid": "10"}}

    problem = kubelet_finding(with_kubelet(kubelet), expressions_enabled=False)

    assert problem is not None
    assert problem.reason == EXPRESSIONS_DISABLED
    assert problem.message == (
        "the feature gate NodeClassCEL is off, but expressions stand in "
        "spec.kubelet.kubeReserved.cpu, spec.kubelet.maxPods"
    )
    assert reason(kubelet, expressions_enabled=True) is None


def test_every_expression_that_can_never_be_evaluated_is_named():
    kubelet = {"maxPods": "1 +", "systemReserved": {"memory": "ram / 100", "cpu": "vcpus"}}

    problem = kubelet_finding(with_kubelet(kubelet), expressions_enabled=True)

    assert problem is not None
    assert problem.reason == EXPRESSION_INVALID
    assert 'spec.kubelet.maxPods: "1 +": mismatched input' in problem.message
    assert 'spec.kubelet.systemReserved.memory: "ram / 100": unknown: ram' in problem.message
    assert "vcpus" not in problem.message


@pytest.mark.parametrize(
    ("kubelet", "family", "expected"),
    [
        ({"maxPods": "1 +", "podsPerCore": -1}, "AL2", INVALID),
        ({"maxPods": "1 +", "registryPullQPS": 1}, "AL2", EXPRESSION_INVALID),
        ({"maxPods": "max_pods", "registryPullQPS": 1}, "AL2", UNSUPPORTED),
    ],
)
def test_the_first_kind_of_problem_is_the_reason(kubelet, family, expected):
    assert reason(kubelet, family, expressions_enabled=True) == expected


def info(name, vcpus):
    return InstanceTypeInfo(
        name=name,
        architectures=("x86_64",),
        vcpus=vcpus,
        memory_mib=1024 * vcpus,
        network_cards=(NetworkCard(index=0, max_interfaces=3),),
        ipv4_per_interface=10,
    )


TYPES = (info("m5.large", 2), info("m5.xlarge", 4), info("m5.24xlarge", 96))


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        ({"maxPods": "0-1"}, '"0-1" for m5.large: is -1, less than zero'),
        ({"maxPods": "2147483647 * vcpus"}, "2147483647"),
        ({"maxPods": "100 / (vcpus - 4) + 50"}, "for m5.xlarge: division by zero"),
        ({"kubeReserved": {"cpu": "50 - vcpus"}}, '"50 - vcpus" for m5.24xlarge: is -46'),
        ({"systemReserved": {"cpu": "vcpus > 90 ? 10 / (vcpus - 96) : 1"}}, "m5.24xlarge"),
    ],
)
def test_an_expression_that_fails_for_one_type_is_named_with_it(kubelet, message):
    """Case 69: such a NodeClass would make the whole catalogue fail."""
    assert reason(kubelet, expressions_enabled=True) is None

    problem = evaluation_finding(with_kubelet(kubelet), TYPES, reserved_enis=0)

    assert problem is not None
    assert problem.reason == EVALUATION_FAILED
    assert message in problem.message


@pytest.mark.parametrize(
    "kubelet",
    [
        {},
        {"maxPods": 5, "kubeReserved": {"cpu": "100m"}},
        {"maxPods": "min(max_pods, 30)", "kubeReserved": {"memory": "max_pods * 11 + 255"}},
        {"maxPods": "2147483647"},
    ],
)
def test_expressions_that_hold_for_every_type_are_fine(kubelet):
    assert evaluation_finding(with_kubelet(kubelet), TYPES, reserved_enis=0) is None


def test_reservations_get_the_learned_number_of_pods():
    """Were it the default, 29, the second would fail."""
    kubelet = {"maxPods": "5", "kubeReserved": {"memory": "100 / (max_pods - 29)"}}

    problem = evaluation_finding(with_kubelet(kubelet), TYPES, reserved_enis=0)

    assert problem is not None
    assert "is -4" in problem.message


def scalar_fields(kind):
    """Fields of the kubelet's configuration that are of one type."""
    return sorted(name for name, shape in known_fields().items() if shape == kind)


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(2**63), 2**63 - 1),
    ],
)
def test_whole_numbers_are_as_long_as_their_type(kind, lowest, highest):
    name = scalar_fields(kind)[0]
    for value, is_read in [
        (lowest, True), (highest, True), (lowest - 1, False), (highest + 1, False),
        (3.0, True), (0.5, False), (True, False), ("3", False),
    ]:  # fmt: skip
        told = list(unreadable_fields({name: value}, place="spec.kubelet"))
        assert (told == []) is is_read, (value, told)


def test_a_value_that_a_kubelet_would_not_read_is_shown_as_it_was_written():
    (told,) = unreadable_fields({"maxPods": "zwölf"}, place="spec.kubelet")
    assert told.startswith("spec.kubelet.maxPods: must be ")
    assert told.endswith(', not "zwölf"')
