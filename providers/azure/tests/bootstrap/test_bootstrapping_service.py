"""The first boot as AKS's bootstrapping service describes it."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from itertools import count

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer
from karpenter_provider_azure.bootstrap.node_boot import BootstrappingService
from karpenter_provider_azure.bootstrap.provision_profile import provision_values
from karpenter_provider_azure.catalogue.vm_sizes import LocalDisk
from karpenter_provider_azure.images.families import (
    UBUNTU_GALLERY,
    EffectiveFamily,
    community_image_id,
)
from karpenter_provider_azure.json_service import JsonService
from providers.azure.tests.admission_cases import ZONES
from providers.azure.tests.bootstrap.boots import (
    SUBNET,
    SUBSCRIPTION,
    TOKEN,
    boot,
    gpu_vm_size,
    node_claim,
    node_class,
    settings,
    vm_size,
)

IMAGE = community_image_id(UBUNTU_GALLERY, "2204gen2containerd", "202510.01.0")
PLACE = "{{.TokenID}}.{{.TokenSecret}}"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


GOOD = {"customData": encoded(f"token={PLACE}"), "cse": f"run {PLACE} {PLACE}"}


@contextmanager
def service_of(reply, *, timeout_seconds: float = 5):
    """Serve replies; yield the service and the requests."""
    requests = []
    tokens = (f"token-{number}" for number in count(1))

    def application(request):
        requests.append(request)
        return reply() if callable(reply) else reply

    server = HttpServer(application, name="bootstrapping")
    server.start()
    try:
        of = settings(
            nodebootstrapping_server_url=server.endpoint_url, arm_resource_group="shop (blue)"
        )
        poster = JsonService(timeout_seconds=timeout_seconds, sleep=lambda _: None)
        yield BootstrappingService(of, poster, bearer_token=lambda: next(tokens)), requests
    finally:
        server.stop()


def answer(body, status: int = 200) -> HttpReply:
    return HttpReply(status=status, body=json.dumps(body).encode())


def profile(**options):
    return provision_values(boot(**options), image_id=IMAGE)["provisionProfile"]


def of_class(**spec):
    return profile(of=node_class(**spec))


def test_the_token_takes_its_place_in_both_texts():
    with service_of(answer(GOOD)) as (service, requests):
        data = service.boot_data(boot(), IMAGE)

    assert base64.b64decode(data.custom_data).decode() == f"token={TOKEN}"
    assert data.custom_script == f"run {TOKEN} {TOKEN}"
    assert TOKEN not in repr(data)
    (request,) = requests
    assert (request.method, request.path) == (
        "POST",
        (
            f"/subscriptions/{SUBSCRIPTION}/resourceGroups/shop%20%28blue%29/providers"
            "/Microsoft.ContainerService/managedclusters/shop/nodeBootstrapping"
        ),
    )
    assert request.headers["authorization"] == "Bearer token-1"
    assert json.loads(request.body) == provision_values(boot(), image_id=IMAGE)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"cse": "x"}, "no customData"),
        ({"customData": "", "cse": "x"}, "no customData"),
        ({"customData": encoded("x"), "cse": ""}, "no cse"),
        ({"customData": encoded("x"), "cse": None}, "no cse"),
        ({"customData": "&&", "cse": "x"}, "not base64"),
    ],
)
def test_an_answer_that_boots_nothing_is_a_failed_launch(body, words):
    with (
        service_of(answer(body)) as (service, _),
        pytest.raises(LaunchFailedError, match=words) as raised,
    ):
        service.boot_data(boot(), IMAGE)
    assert raised.value.reason == "BootstrappingFailed"


def test_a_refusal_has_the_words_of_the_service():
    refusal = answer({"code": "InvalidParameter", "message": "no such distro"}, 400)
    with (
        service_of(refusal) as (service, requests),
        pytest.raises(CloudProviderError, match=r"nodeBootstrapping:post.*no such distro"),
    ):
        service.boot_data(boot(), IMAGE)
    assert len(requests) == 1


@pytest.mark.parametrize(("status", "error"), [(429, ThrottledError), (403, AuthError)])
def test_throttling_and_denied_access_keep_their_error_classes(status, error):
    with service_of(answer({}, status)) as (service, _), pytest.raises(error):
        service.boot_data(boot(), IMAGE)


def test_a_server_error_is_retried():
    replies = iter((answer({}, 503), answer(GOOD)))
    with service_of(lambda: next(replies)) as (service, requests):
        service.boot_data(boot(), IMAGE)

    assert len(requests) == 2


def test_a_service_that_does_not_answer_is_an_error():
    with (
        service_of(lambda: None) as (service, _),
        pytest.raises(CloudProviderError, match="nodeBootstrapping:post"),
    ):
        service.boot_data(boot(), IMAGE)


def test_the_profile_has_the_whole_name_of_a_version_with_long_term_support():
    assert of_class(version="1.30.101-akslts")["orchestratorVersion"] == "1.30.101-akslts"


def test_the_profile_describes_the_node():
    claim = node_claim(
        taints=[{"key": "team", "value": "web", "effect": "NoSchedule"}],
        startup_taints=[{"key": "cni", "effect": "NoExecute"}],
    )
    found = profile(claim=claim)
    labels = found.pop("customNodeLabels")

    assert labels["kubernetes.azure.com/role"] == "agent"
    assert found == {
        "name": "",
        "architecture": "x64",
        "artifactStreamingProfile": {"enabled": False},
        "distro": "aks-ubuntu-containerd-22.04-gen2",
        "enableFIPS": False,
        "maxPods": 250,
        "mode": 2,
        "nodeInitializationTaints": ["karpenter.sh/unregistered:NoExecute", "cni:NoExecute"],
        "nodeTaints": ["team=web:NoSchedule"],
        "orchestratorVersion": "1.33.4",
        "osSku": 1,
        "osType": 2,
        "securityProfile": {"sshAccess": 0},
        "storageProfile": "ManagedDisks",
        "vmSize": "Standard_D2s_v5",
        "vnetCidrs": [],
        "vnetSubnetID": SUBNET,
    }


@pytest.mark.parametrize(
    ("memory_gib", "sent"), [(8.0, 8.0), (3.5, 3.0), (220.0, 220.0), (16.0, 16.0)]
)
def test_memory_is_that_of_the_size_in_whole_gib(memory_gib, sent):
    values = provision_values(boot(size=vm_size(memory_gib=memory_gib)), image_id=IMAGE)

    assert values["provisionHelperValues"] == {"skuCPU": 2.0, "skuMemory": sent}


def test_kubelet_settings_are_in_the_units_of_the_service():
    # case 9
    found = of_class(
        kubelet={"containerLogMaxSize": "1Gi", "podPidsLimit": 2**40, "failSwapOn": False}
    )

    assert found["customKubeletConfig"] == {
        "containerLogMaxFiles": 5,
        "containerLogMaxSizeMB": 1024,
        "cpuCfsQuota": True,
        "cpuCfsQuotaPeriod": "100ms",
        "cpuManagerPolicy": "none",
        "failSwapOn": False,
        "podMaxPids": 2**31 - 1,
        "topologyManagerPolicy": "none",
    }
    thresholds = of_class(kubelet={"imageGCHighThresholdPercent": 75})["customKubeletConfig"]
    assert (thresholds["imageGcHighThreshold"], thresholds["imageGcLowThreshold"]) == (75, 70)
    assert of_class(kubelet={})["customKubeletConfig"]["containerLogMaxSizeMB"] == 50
    assert of_class(kubelet={"podPidsLimit": -5})["customKubeletConfig"]["podMaxPids"] == -1


def test_settings_of_the_operating_system_have_the_names_of_the_service():
    # case 7
    found = of_class(
        kubelet={"failSwapOn": False},
        linuxOSConfig={
            "swapFileSize": "1500Mi",
            "transparentHugePageEnabled": "madvise",
            "sysctls": {
                "netIPv4TCPKeepaliveIntvl": 30,
                "netIPv4IPLocalPortRange": "32768 60999",
                "netIPv4TCPTwReuse": False,
                "vmSwappiness": 0,
            },
        },
    )

    assert found["customLinuxOSConfig"] == {
        "swapFileSizeMB": 1500,
        "transparentHugePageEnabled": "madvise",
        "sysctls": {
            "netIpv4TcpkeepaliveIntvl": 30,
            "netIpv4IpLocalPortRange": "32768 60999",
            "netIpv4TcpTwReuse": False,
            "vmSwappiness": 0,
        },
    }


@pytest.mark.parametrize(("state", "mode"), [("Enabled", "Required"), ("Disabled", "Disabled")])
def test_preferred_local_dns_is_sent_as_the_resolved_mode(state, mode):
    zones = list(ZONES)
    of = node_class(
        localDNS={"mode": "Preferred", "vnetDNSOverrides": zones, "kubeDNSOverrides": zones},
        status={"localDNSState": state},
    )
    found = profile(of=of)["localDNSProfile"]

    assert found["mode"] == mode
    assert found["vnetDNSOverrides"].keys() == {".", "cluster.local"}
    assert found["kubeDNSOverrides"]["."] == {
        "queryLogging": "Error",
        "protocol": "PreferUDP",
        "forwardDestination": "VnetDNS",
        "forwardPolicy": "Sequential",
        "maxConcurrent": 1000,
        "cacheDurationInSeconds": 3600,
        "serveStaleDurationInSeconds": 3600,
        "serveStale": "Immediate",
    }


@pytest.mark.parametrize(
    ("size", "mode", "expected"),
    [
        ("Standard_NC24ads_A100_v4", "Driver", {"driverType": 3, "installGPUDriver": True}),
        ("Standard_NV36ads_A10_v5", "Driver", {"driverType": 2, "installGPUDriver": True}),
        ("Standard_NC24ads_A100_v4", "None", {"driverType": 3, "installGPUDriver": False}),
        ("Standard_ND96isr_MI300X_v5", "None", None),
    ],
)
def test_drivers_are_those_of_the_size(size, mode, expected):
    found = profile(size=gpu_vm_size(size), of=node_class(gpu={"mode": mode}))

    assert found.get("gpuProfile") == expected


def test_trusted_launch_and_ephemeral_disks_and_system_nodes_show():
    image = community_image_id(UBUNTU_GALLERY, "2204gen2TLcontainerd", "202510.01.0")
    found = provision_values(
        boot(
            of=node_class(security={"trustedLaunch": {"vtpm": True}}),
            size=vm_size(ephemeral_os_disks=(LocalDisk("CacheDisk", 200 * 2**30),)),
            claim=node_claim(requirements=[("kubernetes.azure.com/mode", ["system"])]),
        ),
        image_id=image,
    )["provisionProfile"]

    assert found["securityProfile"] == {
        "sshAccess": 0,
        "enableVTPM": True,
        "enableSecureBoot": False,
    }
    assert found["distro"] == "aks-ubuntu-containerd-22.04-tl-gen2"
    assert found["storageProfile"] == "Ephemeral"
    assert found["mode"] == 1


def test_an_image_of_another_family_is_refused():
    image = IMAGE.replace("2204gen2containerd", "V3gen2")

    with pytest.raises(LaunchFailedError, match=r'V3gen2.*AKSNodeClass "web"') as raised:
        provision_values(boot(), image_id=image)
    assert raised.value.reason == "ImageSelectionFailed"
    assert EffectiveFamily.UBUNTU_2204 in str(raised.value)
