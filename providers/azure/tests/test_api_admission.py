"""AKSNodeClass at the API server: refusals, defaults, and what a model reads of it.

Acceptance cases 1-15.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.crd import render_crd
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.admission_cases import (
    CASES,
    WHOLE,
    Json,
    kubelet,
    node_class,
    sysctls,
    without_spec,
)
from tests.sim.api_client import DEFINITIONS, Api

NODE_CLASSES = "/apis/karpenter.azure.com/v1beta1/aksnodeclasses"
DEPRECATED = "/apis/karpenter.azure.com/v1alpha2/aksnodeclasses"
ACCEPTED = [case for case in CASES if case.field is None]
REFUSED = [case for case in CASES if case.field is not None]


@cache
def validator() -> SchemaValidator:
    version = render_crd(AKSNodeClass)["spec"]["versions"][0]
    return SchemaValidator(version["schema"]["openAPIV3Schema"])


def refused_at(obj: Json) -> set[str]:
    checker = validator()
    return {error.path for error in checker.validate(checker.default(obj), None)}


def read(obj: Json) -> AKSNodeClass:
    return AKSNodeClass.model_validate(obj)


def named(case: Any) -> str:
    return f"{case.number}-{case.name}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_node_class_is_judged_at_its_field(case):
    assert refused_at(case.object) == (set() if case.field is None else {case.field})


@pytest.mark.parametrize("case", ACCEPTED, ids=named)
def test_accepted_objects_are_read_and_written_alike(case):
    stored = validator().default(case.object)

    found = read(stored)

    assert found.model_dump(mode="json", exclude_unset=True).get("spec") == stored.get("spec")
    assert found == read(case.object)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_refused_objects_are_still_read(case):
    """It may be stored already, let in by an API server with another CRD."""
    read(case.object)


def test_disk_and_family_are_filled_in_and_nothing_else():
    # case 1
    assert validator().default(node_class())["spec"] == {
        "osDiskSizeGB": 128,
        "imageFamily": "Ubuntu",
    }


def test_an_object_without_spec_is_stored_without_one_and_has_the_defaults():
    # case 1
    assert "spec" not in validator().default(without_spec())
    spec = read(without_spec()).spec

    assert (spec.os_disk_size_gb, spec.image_family, spec.gpu_mode) == (128, "Ubuntu", "Driver")
    assert read(without_spec()).spec == read(node_class()).spec


def test_defaults_of_kubelet_and_gpu_are_filled_in_where_these_are_present():
    assert validator().default(kubelet())["spec"]["kubelet"] == {
        "cpuManagerPolicy": "none",
        "cpuCFSQuota": True,
        "cpuCFSQuotaPeriod": "100ms",
        "topologyManagerPolicy": "none",
        "containerLogMaxSize": "50Mi",
        "containerLogMaxFiles": 5,
    }
    assert validator().default(node_class(gpu={}))["spec"]["gpu"] == {"mode": "Driver"}


def test_every_field_is_stored_unchanged():
    assert validator().default(WHOLE)["spec"] == WHOLE["spec"]


@pytest.mark.parametrize("field", ["imageID", "unknownField"])
def test_an_unknown_field_is_dropped(field):
    assert field not in validator().default(node_class(**{field: "x"}))["spec"]


def test_a_refusal_names_the_field_once_and_in_one_sentence():
    checker = validator()
    (error,) = checker.validate(
        checker.default(node_class(fipsMode="FIPS", imageFamily="Ubuntu2404")), None
    )

    assert "fipsMode FIPS needs an imageFamily other than Ubuntu2404" in str(error)


@pytest.mark.parametrize(
    ("size", "mib"),
    [
        ("50Mi", 50),
        ("1Gi", 1024),
        ("50M", 48),
        ("1500Mi", 1500),
        ("2Gi", 2048),
        ("50K", 0),
        ("3000K", 3),
        ("2048Ki", 2),
        ("1T", 953674),
    ],
)
def test_sizes_become_mebibytes_rounded_to_the_nearest(size, mib):
    # cases 7 and 9
    spec = read(
        node_class(linuxOSConfig={"swapFileSize": size}, kubelet={"containerLogMaxSize": size})
    ).spec

    assert spec.linux_os_config is not None
    assert spec.kubelet is not None
    assert (spec.linux_os_config.swap_file_mib, spec.kubelet.container_log_max_mib) == (mib, mib)


def test_a_size_that_only_another_definition_lets_in_has_no_value():
    spec = read(kubelet(containerLogMaxSize="50MB")).spec

    assert spec.kubelet is not None
    assert spec.kubelet.container_log_max_mib is None
    assert read(node_class(linuxOSConfig={})).spec.linux_os_config is not None
    assert read(node_class(linuxOSConfig={})).spec.linux_os_config.swap_file_mib is None


def test_trusted_launch_is_on_with_either_switch():
    def spec(**launch: bool):
        return read(node_class(security={"trustedLaunch": launch})).spec

    assert not read(node_class()).spec.uses_trusted_launch
    assert not spec(vtpm=False, secureBoot=False).uses_trusted_launch
    assert spec(vtpm=True).uses_trusted_launch
    assert spec(secureBoot=True).uses_trusted_launch
    assert (spec(vtpm=True).uses_vtpm, spec(vtpm=True).uses_secure_boot) == (True, False)


def test_encryption_at_host_may_be_unset():
    assert read(node_class()).spec.encryption_at_host is None
    assert read(node_class(security={})).spec.encryption_at_host is None
    assert read(node_class(security={"encryptionAtHost": False})).spec.encryption_at_host is False


def test_kernel_parameters_have_the_kernels_names():
    found = read(
        sysctls(fsAioMaxNr=65536, netIPv4TCPTwReuse=True, netIPv4IPLocalPortRange="32768 60999")
    ).spec.linux_os_config

    assert found is not None
    assert found.sysctls is not None
    assert found.sysctls.by_kernel_key() == {
        "fs.aio-max-nr": "65536",
        "net.ipv4.ip_local_port_range": "32768 60999",
        "net.ipv4.tcp_tw_reuse": "1",
    }


# Any object that the schema accepts is read by the models as it is stored

_NUMBERS = st.integers(-1, 3000)
_WORDS = st.sampled_from(
    ["", "Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux", "FIPS", "Disabled", "Driver", "None"]
)
_SWITCHES = st.booleans()


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


SPECS = _some(
    osDiskSizeGB=_NUMBERS,
    imageFamily=_WORDS,
    fipsMode=_WORDS,
    maxPods=_NUMBERS,
    tags=st.dictionaries(st.text("ab/<\\", max_size=3), st.text(max_size=3), max_size=2),
    kubelet=_some(
        failSwapOn=_SWITCHES,
        imageGCHighThresholdPercent=_NUMBERS,
        imageGCLowThresholdPercent=_NUMBERS,
        containerLogMaxSize=st.sampled_from(["50Mi", "1G", "x"]),
        containerLogMaxFiles=_NUMBERS,
    ),
    security=_some(
        encryptionAtHost=_SWITCHES, trustedLaunch=_some(vtpm=_SWITCHES, secureBoot=_SWITCHES)
    ),
    gpu=_some(mode=_WORDS),
    artifactStreaming=_some(enabled=_SWITCHES),
    linuxOSConfig=_some(
        swapFileSize=st.sampled_from(["2Gi", "0"]),
        sysctls=_some(vmSwappiness=_NUMBERS, netIPv4TCPFinTimeout=_NUMBERS),
    ),
)


@given(spec=SPECS)
def test_models_and_schema_agree_on_any_object(spec):
    """Defaults are the same, whoever fills them in; accepted values are written as they are."""
    obj = node_class(**spec)
    stored = validator().default(obj)

    assert read(stored) == read(obj)
    assert validator().default(stored) == stored
    if not validator().validate(stored, None):
        written = read(stored).model_dump(mode="json", exclude_unset=True)
        assert written["spec"] == stored["spec"]


@given(spec=SPECS)
def test_models_and_rules_agree_on_fips_trusted_launch_and_swap(spec):
    """The rules are CEL; the models' properties say the same in Python."""
    stored = validator().default(node_class(**spec))
    found = read(stored).spec
    if any(error.path != "spec" for error in validator().validate(stored, None)):
        return  # rules of the whole spec are not reached
    family, with_launch = found.image_family, found.uses_trusted_launch
    breaks_fips = found.uses_fips and (
        family == "Ubuntu2404"
        or (family == "Ubuntu2204" and not with_launch)
        or (family == "AzureLinux" and with_launch)
    )
    has_swap = found.linux_os_config is not None and bool(found.linux_os_config.swap_file_size)
    breaks_swap = has_swap and (found.kubelet is None or found.kubelet.fail_swap_on is not False)

    assert (refused_at(node_class(**spec)) == {"spec"}) == (breaks_fips or breaks_swap)


# The API server


@pytest.mark.asyncio
async def test_an_api_server_judges_all_cases_at_their_fields():
    wrong: list[str] = []
    async with EmbeddedCluster() as cluster:
        api = Api(cluster.transport())
        await api.create(DEFINITIONS, render_crd(AKSNodeClass))
        for number, case in enumerate(CASES):
            named_apart = {**case.object, "metadata": {"name": f"case-{number}"}}
            answer = await api.send("POST", NODE_CLASSES, named_apart)
            fields = {field for _reason, field in answer.causes} if answer.status == 422 else set()
            if answer.status not in {201, 422} or fields != ({case.field} - {None}):
                wrong.append(f"{case.name}: {answer.status} {sorted(fields)}")

    assert wrong == []


@pytest.mark.asyncio
async def test_an_object_of_the_deprecated_version_is_one_of_the_stored_version():
    # case 15
    async with EmbeddedCluster() as cluster:
        api = Api(cluster.transport())
        await api.create(DEFINITIONS, render_crd(AKSNodeClass))

        made = await api.send(
            "POST", DEPRECATED, {**WHOLE, "apiVersion": "karpenter.azure.com/v1alpha2"}
        )
        stored = await api.send("GET", f"{NODE_CLASSES}/whole")
        back = await api.send("GET", f"{DEPRECATED}/whole")

    assert made.status == 201
    assert made.headers["warning"] == '299 - "use v1beta1.AKSNodeClass instead"'
    assert "warning" not in stored.headers
    assert stored.body["spec"] == WHOLE["spec"]
    assert back.body == {**stored.body, "apiVersion": "karpenter.azure.com/v1alpha2"}
    assert read(stored.body).spec == read(back.body).spec
