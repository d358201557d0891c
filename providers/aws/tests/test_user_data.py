"""User data of each AMI family, read back as its reader does: acceptance cases 121 to 124.

Also the flags of cases 47 to 51: the catalogue's numbers are the kubelet's settings.
"""

from __future__ import annotations

import shlex
import tomllib
from datetime import UTC
from email import message_from_string

import pytest
import tomli_w
import yaml
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.nodeclaim import TaintSpec
from karpenter_core.errors import BadInputError, NodeClassNotReadyError
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.api.nodeclass import Ami, AmiTerm
from karpenter_provider_aws.families.bootstrap import UNREGISTERED, BootstrapInput, kubelet_fields
from karpenter_provider_aws.families.bottlerocket import (
    ami_version,
    binds_by_default,
    unknown_settings,
)
from karpenter_provider_aws.families.family import user_data
from tests.properties import with_examples

LABELS = {"karpenter.sh/nodepool": "web", "team": "a"}
CA = "Y2EtYnVuZGxlCg=="


def bootstrap(**changes) -> BootstrapInput:
    kubelet = changes.pop("kubelet", {})
    sizing = {
        "max_pods": 35,
        "kube_reserved": {},
        "system_reserved": {},
        "dns_ip": "10.0.100.10",
    } | changes.pop("sizing", {})
    fields = {
        "cluster_name": "test-cluster",
        "cluster_endpoint": "https://test-cluster",
        "ca_bundle": CA,
        "service_cidr": "10.100.0.0/16",
        "labels": LABELS,
        "taints": (UNREGISTERED,),
        "kubelet": kubelet_fields(kubelet, **sizing),
    }
    return BootstrapInput(**(fields | changes))


def parts(text: str) -> list[tuple[str, str]]:
    """Return type and content of each part, as cloud-init finds them."""
    message = message_from_string(text)
    assert message["MIME-Version"] == "1.0"
    assert message.get_content_type() == "multipart/mixed"
    assert not message.defects
    return [(part.get_content_type(), part.get_payload()) for part in message.get_payload()]


def nodeadm(**changes) -> dict:
    """Return the NodeConfig that nodeadm reads last."""
    content_type, content = parts(user_data(AmiFamily.AL2023, bootstrap(**changes)))[-1]
    assert content_type == "application/node.eks.aws"
    return yaml.safe_load(content)


def bottlerocket(**changes) -> dict:
    return tomllib.loads(user_data(AmiFamily.BOTTLEROCKET, bootstrap(**changes)))["settings"]


def al2_arguments(**changes) -> list[str]:
    """Return what the bootstrap script is called with, as bash splits it."""
    _, script = parts(user_data(AmiFamily.AL2, bootstrap(**changes)))[-1]
    return shlex.split(script.split("2>&1\n", 1)[1].replace("\\\n", ""))


# -- AL2 ---------------------------------------------------------------------------------------


def test_al2_is_an_archive_with_one_script_that_joins_the_cluster():
    assert user_data(AmiFamily.AL2, bootstrap()) == (
        "MIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="//"\n'
        "\n"
        "--//\n"
        'Content-Type: text/x-shellscript; charset="us-ascii"\n'
        "\n"
        "#!/bin/bash -xe\n"
        "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n"
        "/etc/eks/bootstrap.sh 'test-cluster' --apiserver-endpoint 'https://test-cluster' "
        "--b64-cluster-ca 'Y2EtYnVuZGxlCg==' \\\n"
        "--dns-cluster-ip '10.0.100.10' \\\n"
        "--use-max-pods false \\\n"
        '--kubelet-extra-args \'--node-labels="karpenter.sh/nodepool=web,team=a" '
        '--register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=35\'\n'
        "--//--\n"
    )


def test_al2_passes_kubelet_settings_in_order_with_sorted_entries():
    kubelet = {
        "podsPerCore": 4,
        "systemReserved": {"memory": "1Gi", "cpu": "100m"},
        "kubeReserved": {"memory": "2Gi", "cpu": "200m"},
        "evictionHard": {"nodefs.available": "10%", "memory.available": "5%"},
        "evictionSoft": {"memory.available": "10%"},
        "evictionSoftGracePeriod": {"memory.available": "2m"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": False,
    }
    sizing = {
        "max_pods": 20,
        "kube_reserved": kubelet["kubeReserved"],
        "system_reserved": kubelet["systemReserved"],
    }
    arguments = al2_arguments(
        kubelet=kubelet,
        sizing=sizing,
        taints=(TaintSpec(key="dedicated", value="gpu", effect="NoSchedule"), UNREGISTERED),
    )
    flags = arguments[arguments.index("--kubelet-extra-args") + 1]

    assert shlex.split(flags) == [
        "--node-labels=karpenter.sh/nodepool=web,team=a",
        "--register-with-taints=dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute",
        "--max-pods=20",
        "--pods-per-core=4",
        "--system-reserved=cpu=100m,memory=1Gi",
        "--kube-reserved=cpu=200m,memory=2Gi",
        "--eviction-hard=memory.available<5%,nodefs.available<10%",
        "--eviction-soft=memory.available<10%",
        "--eviction-soft-grace-period=memory.available=2m",
        "--eviction-max-pod-grace-period=60",
        "--image-gc-high-threshold=85",
        "--image-gc-low-threshold=80",
        "--cpu-cfs-quota=false",
    ]


def test_al2_makes_one_array_of_local_disks_when_asked():
    assert al2_arguments(instance_store_policy="RAID0")[-2:] == ["--local-disks", "raid0"]
    assert "--local-disks" not in al2_arguments()


def test_al2_says_that_pods_have_ipv6_addresses_when_their_name_server_has():
    arguments = al2_arguments(sizing={"dns_ip": "fd01:99f0:7f3e::a"})

    assert arguments[arguments.index("--ip-family") + 1] == "ipv6"
    assert arguments[arguments.index("--dns-cluster-ip") + 1] == "fd01:99f0:7f3e::a"
    assert "--ip-family" not in al2_arguments()


def test_al2_leaves_out_unknown_values():
    arguments = al2_arguments(ca_bundle="", labels={}, sizing={"dns_ip": ""})

    assert "--b64-cluster-ca" not in arguments
    assert "--dns-cluster-ip" not in arguments
    assert "--node-labels" not in arguments[-1]


def test_al2_quotes_values_with_shell_characters():
    assert al2_arguments(cluster_name="it's")[1] == "it's"


def test_al2_runs_the_users_script_first():
    script = "#!/bin/bash\r\necho hello\r\n"

    found = parts(user_data(AmiFamily.AL2, bootstrap(user_data=script)))

    assert [content_type for content_type, _ in found] == ["text/x-shellscript"] * 2
    assert found[0][1].strip() == "#!/bin/bash\necho hello"


def test_al2_copies_archive_parts_for_any_first_header():
    archive = (
        'Content-Type: multipart/mixed; boundary="B"\nMIME-Version: 1.0\n\n'
        '--B\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n#!/bin/bash\necho 1\n'
        "--B\nContent-Type: text/cloud-config\n\nruncmd: []\n--B--\n"
    )

    found = parts(user_data(AmiFamily.AL2, bootstrap(user_data=archive)))

    assert [content_type for content_type, _ in found] == [
        "text/x-shellscript",
        "text/cloud-config",
        "text/x-shellscript",
    ]
    assert found[1][1].strip() == "runcmd: []"


@pytest.mark.parametrize("family", [AmiFamily.AL2, AmiFamily.AL2023])
def test_text_that_begins_like_an_archive_and_is_none_is_refused(family):
    single = "MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n#!/bin/bash\n"

    with pytest.raises(BadInputError, match=r"spec\.userData .*text/x-shellscript"):
        user_data(family, bootstrap(user_data=single))


# -- AL2023 ------------------------------------------------------------------------------------


def test_al2023_gets_all_settings_in_a_node_config():
    text = user_data(AmiFamily.AL2023, bootstrap())

    assert parts(text)[0][1].startswith("# Karpenter Generated NodeConfig\n")
    assert nodeadm() == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": "test-cluster",
                "apiServerEndpoint": "https://test-cluster",
                "certificateAuthority": CA,
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "config": {
                    "clusterDNS": ["10.0.100.10"],
                    "maxPods": 35,
                    "registerWithTaints": [
                        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
                    ],
                },
                "flags": ['--node-labels="karpenter.sh/nodepool=web,team=a"'],
            },
        },
    }


def test_al2023_passes_every_kubelet_field_on():
    kubelet = {
        "registryPullQPS": 10,
        "shutdownGracePeriod": "30s",
        "clusterDNS": ["10.0.0.1", "10.0.0.2"],
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    }

    config = nodeadm(kubelet=kubelet)["spec"]["kubelet"]["config"]

    assert {name: config[name] for name in kubelet} == kubelet


def test_al2023_writes_text_that_no_reader_takes_for_a_number():
    odd = {"cpu": "1e3", "memory": "0o14", "pid": "0x1F", "ephemeral-storage": "1_0", "y": "no"}

    _, content = parts(
        user_data(
            AmiFamily.AL2023,
            bootstrap(kubelet={"kubeReserved": odd}, sizing={"kube_reserved": odd}),
        )
    )[-1]

    assert yaml.safe_load(content)["spec"]["kubelet"]["config"]["kubeReserved"] == odd
    for value in odd.values():
        assert f'"{value}"' in content or f"'{value}'" in content


def test_al2023_makes_one_array_of_local_disks_when_asked():
    assert nodeadm(instance_store_policy="RAID0")["spec"]["instance"] == {
        "localStorage": {"strategy": "RAID0"}
    }


def test_al2023_cannot_do_without_the_service_cidr():
    with pytest.raises(NodeClassNotReadyError, match="CIDR"):
        user_data(AmiFamily.AL2023, bootstrap(service_cidr=""))


CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {}\n"
ARCHIVE = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
    f"--//\nContent-Type: application/node.eks.aws\n\n{CONFIG}"
    "--//\nContent-Type: text/x-shellscript\n\n#!/bin/bash\n--//--\n"
)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("", []),
        (CONFIG, ["application/node.eks.aws"]),
        (f"---\n{CONFIG}---\n{CONFIG}", ["application/node.eks.aws"]),
        ("#!/bin/bash\necho hello", ["text/x-shellscript"]),
        ("date: 2026-99-99", ["application/node.eks.aws"]),
        ("#!/bin/bash\necho ready: now", ["text/x-shellscript"]),
        (ARCHIVE, ["application/node.eks.aws", "text/x-shellscript"]),
    ],
    ids=[
        "nothing",
        "NodeConfig",
        "several documents",
        "script",
        "YAML with values that are wrong",
        "script that reads as YAML",
        "archive",
    ],
)
def test_al2023_puts_the_users_parts_before_the_config_that_wins(text, types):
    found = parts(user_data(AmiFamily.AL2023, bootstrap(user_data=text)))

    assert [content_type for content_type, _ in found] == [*types, "application/node.eks.aws"]
    assert found[-1][1].startswith("# Karpenter Generated NodeConfig")


# -- Bottlerocket ------------------------------------------------------------------------------


def test_bottlerocket_gets_all_settings_as_toml():
    kubelet = {
        "evictionHard": {"memory.available": "5%"},
        "evictionSoftGracePeriod": {"memory.available": "2m"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "cpuCFSQuota": False,
        "kubeReserved": {"cpu": "100m"},
    }
    taints = (
        TaintSpec(key="foo", value="a", effect="NoExecute"),
        TaintSpec(key="foo", value="b", effect="NoSchedule"),
        UNREGISTERED,
    )

    settings = bottlerocket(
        kubelet=kubelet, sizing={"kube_reserved": {"cpu": "100m"}}, taints=taints
    )

    assert settings == {
        "kubernetes": {
            "api-server": "https://test-cluster",
            "cluster-certificate": CA,
            "cluster-name": "test-cluster",
            "cluster-dns-ip": "10.0.100.10",
            "max-pods": 35,
            "kube-reserved": {"cpu": "100m"},
            "eviction-hard": {"memory.available": "5%"},
            "eviction-soft-grace-period": {"memory.available": "2m"},
            "eviction-max-pod-grace-period": 60,
            "image-gc-high-threshold-percent": "85",
            "cpu-cfs-quota-enforced": False,
            "node-labels": LABELS,
            "node-taints": {
                "foo": ["a:NoExecute", "b:NoSchedule"],
                "karpenter.sh/unregistered": [":NoExecute"],
            },
        }
    }


USERS_SETTINGS = """
[settings.kubernetes]
api-server = "https://elsewhere"
cloud-provider = "external"
no-such-setting = 1
[settings.kubernetes.node-labels]
"custom-node-label" = "custom"
team = "theirs"
[settings.kubernetes.node-taints]
theirs = ["a:NoExecute"]
[settings.kubernetes.eviction-hard]
"memory.available" = "12%"
[settings.ntp]
time-servers = ["169.254.169.123"]
[settings.network]
hostname = "test.local"
https-proxy = "1.2.3.4:8080"
hosts = [["10.0.0.0", ["test.example.com", "test1.example.com"]]]
"""


def test_bottlerocket_keeps_user_settings_outside_of_the_generated_ones():
    settings = bottlerocket(user_data=USERS_SETTINGS)

    assert settings["ntp"] == {"time-servers": ["169.254.169.123"]}
    assert settings["network"] == {
        "hostname": "test.local",
        "https-proxy": "1.2.3.4:8080",
        "hosts": [["10.0.0.0", ["test.example.com", "test1.example.com"]]],
    }
    assert settings["kubernetes"]["cloud-provider"] == "external"
    assert settings["kubernetes"]["eviction-hard"] == {"memory.available": "12%"}


def test_bottlerocket_overwrites_generated_settings():
    kubernetes = bottlerocket(user_data=USERS_SETTINGS)["kubernetes"]

    assert kubernetes["api-server"] == "https://test-cluster"
    assert kubernetes["node-labels"] == {**LABELS, "custom-node-label": "custom"}
    assert kubernetes["node-taints"] == {"karpenter.sh/unregistered": [":NoExecute"]}


def test_bottlerocket_drops_settings_that_would_keep_it_from_booting():
    assert "no-such-setting" not in bottlerocket(user_data=USERS_SETTINGS)["kubernetes"]
    assert unknown_settings(USERS_SETTINGS) == ("no-such-setting",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/bash\necho hello", "not TOML"),
        ("settings = 1", "settings is 1, and must be a table"),
        ("[settings]\nkubernetes = 1", r"settings\.kubernetes is 1, and must be a table"),
        ('[settings.kubernetes]\nmax-pods = "a"', "max-pods is 'a', and must be an integer"),
        ("[settings.kubernetes]\nnode-labels = 1", "node-labels is 1, and must be a table"),
    ],
)
def test_bottlerocket_refuses_user_data_that_is_not_toml(text, message):
    with pytest.raises(BadInputError, match=rf"spec\.userData.*{message}"):
        user_data(AmiFamily.BOTTLEROCKET, bootstrap(user_data=text))


SETTING_VALUES = {
    "text": '"x"',
    "a number": "7",
    "a yes": "true",
    "texts": '["x", "y"]',
    "a mixed list": '["x", 7]',
    "a table": '{ x = "y" }',
}


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        (("topology-manager-policy", "image-gc-high-threshold-percent"), {"text"}),
        (("log-level", "registry-qps"), {"a number"}),
        (("seccomp-default", "cpu-cfs-quota-enforced"), {"a yes"}),
        (("allowed-unsafe-sysctls", "cpu-manager-policy-options"), {"texts"}),
        (("cluster-dns-ip",), {"text", "texts"}),
        (("credential-providers", "topology-manager-policy-options"), {"a table"}),
    ],
)
def test_bottlerocket_takes_settings_of_their_type_only(names, admitted):
    """An unreadable setting keeps it from booting."""
    for name in names:
        for setting, value in SETTING_VALUES.items():
            text = f"[settings.kubernetes]\n{name} = {value}\n"
            if setting in admitted:
                assert name in bottlerocket(user_data=text)["kubernetes"]
            else:
                with pytest.raises(BadInputError, match=f"settings.kubernetes.{name} is .* must"):
                    bottlerocket(user_data=text)


@pytest.mark.parametrize(
    ("version", "directories"),
    [
        ("v1.45.0", ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]),
        ("", ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]),
        ("v1.46.0", []),
        ("latest", []),
    ],
)
def test_bottlerocket_binds_local_disks_as_its_version_can(version, directories):
    theirs = (
        "[settings.bootstrap-commands.001-mine]\n"
        'commands = [["apiclient", "get"]]\nmode = "once"\nessential = false\n'
    )

    commands = bottlerocket(instance_store_policy="RAID0", ami_version=version, user_data=theirs)[
        "bootstrap-commands"
    ]

    assert commands["000-mount-instance-storage"] == {
        "commands": [
            ["apiclient", "ephemeral-storage", "init"],
            ["apiclient", "ephemeral-storage", "bind", *directories],
        ],
        "mode": "always",
        "essential": True,
    }
    assert commands["001-mine"]["commands"] == [["apiclient", "get"]]


@pytest.mark.parametrize(
    ("version", "binds"),
    [
        ("1.45.0", False),
        ("1.46.0", True),
        ("1.47.0", True),
        ("2.0.0", True),
        ("v1.9.0", False),
        ("latest", True),
        ("1.46", False),
        ("abc.def.ghi", False),
        ("", False),
    ],
)
def test_bottlerocket_binds_by_default_since_1_46_0(version, binds):
    assert binds_by_default(version) is binds


NEW = Ami(id="ami-new", name="bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a")
OLD = Ami(id="ami-old", name="bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-431fe75a")


@pytest.mark.parametrize(
    ("terms", "version"),
    [
        ([AmiTerm(alias="bottlerocket@v1.44.0")], "v1.44.0"),
        ([AmiTerm(alias="bottlerocket@latest")], "latest"),
        ([AmiTerm(name="bottlerocket-aws-k8s-*-v1.43.0-*")], "v1.43.0"),
        ([AmiTerm(id="ami-old")], "v1.45.0"),
        ([AmiTerm(name="bottlerocket-*"), AmiTerm(id="ami-old")], "v1.45.0"),
        ([AmiTerm(tags={"a": "b"})], "v1.46.0"),
    ],
)
def test_bottlerocket_version_comes_from_the_selector_or_an_image(terms, version):
    assert ami_version(terms, [NEW, OLD]) == version


def test_bottlerocket_version_of_images_with_other_names_is_unknown():
    assert ami_version([AmiTerm(id="ami-x")], [Ami(id="ami-x", name="mine-v1.2.3")]) == ""


# -- Windows and Custom ------------------------------------------------------------------------

WINDOWS_CALL = (
    '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"\n'
    "& $EKSBootstrapScriptFile -EKSClusterName 'test-cluster' "
    "-APIServerEndpoint 'https://test-cluster' -Base64ClusterCA 'Y2EtYnVuZGxlCg==' "
    '-KubeletExtraArgs \'--node-labels="karpenter.sh/nodepool=web,team=a" '
    '--register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=110\' '
    "-DNSClusterIP '10.0.100.10'\n"
    "</powershell>"
)


@pytest.mark.parametrize(
    "family", [AmiFamily.WINDOWS2019, AmiFamily.WINDOWS2022, AmiFamily.WINDOWS2025]
)
@pytest.mark.parametrize("script", ["", 'Write-Host "hello"'])
def test_windows_is_one_powershell_block_with_the_users_script_first(family, script):
    text = user_data(family, bootstrap(user_data=script, sizing={"max_pods": 110}))

    first = f"{script}\n" if script else ""
    assert text == f"<powershell>\n{first}{WINDOWS_CALL}"


@pytest.mark.parametrize(
    "script", ["<powershell>\nWrite-Host 1\n</powershell>", "Write-Host 1\n</PowerShell>"]
)
def test_windows_refuses_a_script_that_ends_the_block(script):
    """EC2 would run what is before the tag, and no node would ever join."""
    with pytest.raises(BadInputError, match=r"spec\.userData has the tag <"):
        user_data(AmiFamily.WINDOWS2022, bootstrap(user_data=script))


HOSTILE = "#!/bin/bash\ncat <<END\n--//\nContent-Type: text/x-shellscript\n\n--//--\nEND\n"


@pytest.mark.parametrize("family", [AmiFamily.AL2, AmiFamily.AL2023])
def test_a_script_cannot_end_the_archive(family):
    """Its lines may look like the boundary, and like a closing one."""
    first, *_, last = parts(user_data(family, bootstrap(user_data=HOSTILE)))

    assert first[1].strip() == HOSTILE.strip()
    assert "test-cluster" in last[1]


HOSTILE_VALUES = [
    'a"; touch /tmp/owned; "',
    "a'; touch /tmp/owned; '",
    "$(touch /tmp/owned)`touch /tmp/owned`",
    "a\n--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\ntouch /tmp/owned",
    'a"\n[settings.kubernetes]\ncluster-name = "owned"\n#',
    "a\n</powershell>",
    "a: b\n---\nkind: Owned",
]


@pytest.mark.parametrize("value", HOSTILE_VALUES)
def test_no_value_of_a_label_leaves_its_place(value):
    """Admission refuses such labels: this is for those that come by another way."""
    labels = {**LABELS, "hostile": value}

    flag = next(each for each in al2_arguments(labels=labels) if "--node-labels" in each)
    assert f"hostile={value}," in flag
    assert len(parts(user_data(AmiFamily.AL2, bootstrap(labels=labels)))) == 1
    flags = nodeadm(labels=labels)["spec"]["kubelet"]["flags"]
    assert any(f"hostile={value}," in each for each in flags)
    settings = bottlerocket(labels=labels)["kubernetes"]
    assert settings["node-labels"]["hostile"] == value
    assert settings["cluster-name"] == "test-cluster"


@pytest.mark.parametrize("text", ["", "#!/bin/sh\r\necho 'ümlaut'\t\n\n"])
def test_custom_passes_the_users_text_through_byte_for_byte(text):
    full = bootstrap(user_data=text, instance_store_policy="RAID0", service_cidr="")

    assert user_data(AmiFamily.CUSTOM, full) == text


@pytest.mark.parametrize("family", AmiFamily)
def test_equal_input_gives_equal_text_for_any_order_of_maps(family):
    kubelet = {
        "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
        "podsPerCore": 2,
    }
    backwards = {
        "podsPerCore": 2,
        "evictionHard": {"nodefs.available": "10%", "memory.available": "5%"},
    }
    labels = dict(reversed(LABELS.items()))

    assert user_data(family, bootstrap(kubelet=kubelet)) == user_data(
        family, bootstrap(kubelet=backwards, labels=labels)
    )


SCALARS = st.one_of(
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
@with_examples(100)
def test_bottlerocket_keeps_other_user_settings(document):
    """TOML that Python reads is written back unchanged."""
    text = tomli_w.dumps({"settings": {"host-containers": document}, "others": document})

    merged = tomllib.loads(user_data(AmiFamily.BOTTLEROCKET, bootstrap(user_data=text)))

    assert merged["settings"]["host-containers"] == document
    assert merged["others"] == document
