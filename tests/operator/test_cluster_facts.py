"""What is known of the cluster at the start, and that nothing of it is worth failing for."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.transport import Response
from karpenter_core.operator.cluster_facts import DNS_SERVICE, read_cluster_facts

CIDRS = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
ANSWERS = {
    "/version": {"gitVersion": "v1.36.3"},
    DNS_SERVICE: {"spec": {"clusterIP": "10.96.0.10"}},
    CIDRS: {"spec": {"cidrs": ["10.96.0.0/12"]}},
}


class Transport:
    def __init__(self, answers):
        self.answers = answers

    async def request(self, request):
        answer = self.answers.get(request.path)
        if answer is None:
            raise NotFoundError("no such thing", status=404)
        if isinstance(answer, Exception):
            raise answer
        body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        return Response(status=200, body=body)


async def read(answers):
    return await read_cluster_facts(
        Transport(answers), name="mine", endpoint="https://api", ca_bundle="PEM"
    )


async def test_version_dns_and_ranges_are_read():
    facts = await read(ANSWERS)
    assert (facts.name, facts.endpoint, facts.ca_bundle) == ("mine", "https://api", "PEM")
    assert facts.version == "v1.36.3"
    assert facts.dns_ip == "10.96.0.10"
    assert facts.service_cidrs == ("10.96.0.0/12",)
    assert facts.ip_family == "IPv4"


async def test_the_family_is_that_of_the_dns_address():
    facts = await read({**ANSWERS, DNS_SERVICE: {"spec": {"clusterIP": "fd00::a"}}})
    assert (facts.dns_ip, facts.ip_family) == ("fd00::a", "IPv6")


async def test_without_dns_the_family_is_that_of_the_first_range():
    facts = await read({CIDRS: {"spec": {"cidrs": ["fd00::/108", "10.0.0.0/16"]}}})
    assert (facts.dns_ip, facts.ip_family) == ("", "IPv6")


async def test_a_headless_dns_service_has_no_address():
    facts = await read({**ANSWERS, DNS_SERVICE: {"spec": {"clusterIP": "None"}}})
    assert (facts.dns_ip, facts.ip_family) == ("", "IPv4")


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(NotFoundError("gone", status=404), id="absent"),
        pytest.param(ApiError("forbidden", status=403), id="forbidden"),
        pytest.param(b"<html>", id="no-json"),
        pytest.param({"spec": {"clusterIP": 7}, "gitVersion": 7}, id="other-types"),
    ],
)
async def test_what_cannot_be_read_stays_empty(failure):
    facts = await read(dict.fromkeys(ANSWERS, failure))
    assert (facts.version, facts.dns_ip, facts.service_cidrs) == ("", "", ())
    assert facts.endpoint == "https://api"
