"""Facts of the cluster are asked for until answered, and never guessed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import ApiError, NodeClassNotReadyError, NotFoundError
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator.cluster_facts import (
    ASK_SECONDS,
    DNS_SERVICE,
    REFRESH_SECONDS,
    RETRY_SECONDS,
    ClusterFactsReader,
)
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.sim.virtual_time import LoopClock, run_virtual

CIDRS = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
ANSWERS = {
    "/version": {"gitVersion": "v1.36.3"},
    DNS_SERVICE: {"spec": {"clusterIP": "10.96.0.10"}},
    CIDRS: {"spec": {"cidrs": ["10.96.0.0/12"]}},
}
IPV6 = {
    "/version": {"gitVersion": "v1.36.3"},
    DNS_SERVICE: {"spec": {"clusterIP": "fd00::a"}},
    CIDRS: {"spec": {"cidrs": ["fd00::/108"]}},
}
FORBIDDEN = ApiResponse(
    status=403,
    body=b'{"kind":"Status","message":"services \\"kube-dns\\" is forbidden","reason":"Forbidden"}',
)
HANG = object()


class Transport:
    """Answers by path; what it has no answer for is not there."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = 0

    async def request(self, request):
        self.asked += 1
        await asyncio.sleep(0)
        answer = self.answers.get(request.path, ApiResponse(status=404, body=b"404 page not found"))
        if answer is HANG:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ApiResponse):
            return answer
        body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        return ApiResponse(status=200, body=body)


def reader_of(answers):
    facts = ClusterFacts(name="mine", endpoint="https://api", ca_bundle="PEM")
    return ClusterFactsReader(Transport(answers), facts, clock=LoopClock())


def read(answers):
    """Return the facts after one round of questions."""

    async def once():
        reader = reader_of(answers)
        await reader.read()
        return reader.facts

    return run_virtual(once())


def test_version_dns_and_ranges_are_read():
    facts = read(ANSWERS)
    assert (facts.name, facts.endpoint, facts.ca_bundle) == ("mine", "https://api", "PEM")
    assert facts.version == "v1.36.3"
    assert facts.dns_ip == "10.96.0.10"
    assert facts.service_cidrs == ("10.96.0.0/12",)
    assert (facts.ip_family, facts.unknown) == ("IPv4", {})
    facts.require_known("dns_ip", "ip_family", "version", "service_cidrs")


def test_the_family_is_that_of_the_dns_address():
    facts = read({**ANSWERS, DNS_SERVICE: {"spec": {"clusterIP": "fd00::a"}}})
    assert (facts.dns_ip, facts.ip_family) == ("fd00::a", "IPv6")


def test_without_dns_the_family_is_that_of_the_first_range():
    facts = read({CIDRS: {"spec": {"cidrs": ["fd00::/108", "10.0.0.0/16"]}}})
    assert (facts.dns_ip, facts.ip_family) == ("", "IPv6")


def test_a_headless_dns_service_has_no_address():
    facts = read({**ANSWERS, DNS_SERVICE: {"spec": {"clusterIP": "None"}}})
    assert (facts.dns_ip, facts.ip_family) == ("", "IPv4")


def test_a_missing_object_is_a_fact_without_a_warning():
    """A page of text says 404 as well as a Status does."""
    with capture_logs() as lines:
        facts = read({"/version": ANSWERS["/version"], CIDRS: ANSWERS[CIDRS]})
    assert (facts.dns_ip, facts.unknown) == ("", {})
    facts.require_known("dns_ip")
    assert [line for line in lines if line["log_level"] != "debug"] == []


def test_ip_family_is_unknown_without_dns_and_ranges():
    """It is not taken for IPv4."""
    facts = read({DNS_SERVICE: NotFoundError("gone", status=404)})
    assert (facts.ip_family, set(facts.unknown)) == ("", {"ip_family"})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(FORBIDDEN, "is forbidden", id="forbidden"),
        pytest.param(ApiResponse(status=401, body=b"Unauthorized"), "HTTP status 401", id="login"),
        pytest.param(ApiResponse(status=429, body=b"later"), "HTTP status 429", id="throttled"),
        pytest.param(ApiResponse(status=503, body=b"<html>"), "HTTP status 503", id="unavailable"),
        pytest.param(ApiResponse(status=500, body=b"{}"), "HTTP status 500", id="empty-object"),
        pytest.param(ApiError("no answer from api", status=0), "no answer from api", id="silence"),
        pytest.param(HANG, f"no answer within {round(ASK_SECONDS)} s", id="hanging"),
        pytest.param(b"<html>", "cannot be read", id="no-json"),
        pytest.param(
            {"spec": {"clusterIP": 7, "cidrs": 7}, "gitVersion": 7}, "cannot be read", id="types"
        ),
    ],
)
def test_unanswered_fact_is_unknown_with_its_reason(answer, reason):
    with capture_logs() as lines:
        facts = read(dict.fromkeys(ANSWERS, answer))
    assert (facts.version, facts.dns_ip, facts.service_cidrs, facts.ip_family) == ("", "", (), "")
    assert set(facts.unknown) == {"version", "dns_ip", "service_cidrs", "ip_family"}
    assert all(reason in why for why in facts.unknown.values())
    assert [line["log_level"] for line in lines] == ["warning"] * 3
    with pytest.raises(NodeClassNotReadyError, match=r"IP family .* is not known yet: .*; set it"):
        facts.require_known("name", "ip_family", remedy="set it")


def test_a_missing_permission_is_named():
    facts = read({**ANSWERS, DNS_SERVICE: FORBIDDEN})
    assert facts.ip_family == "IPv4"  # of the range
    assert facts.unknown == {
        "dns_ip": f'get {DNS_SERVICE}: services "kube-dns" is forbidden '
        '(allow get of services "kube-dns" in the namespace kube-system)'
    }


@pytest.mark.parametrize("status", [403, 503])
def test_an_ipv6_cluster_is_recognised_once_it_answers(status):
    """The object that providers hold changes; nothing is restarted, and one warning is enough."""

    async def scenario():
        reader = reader_of(dict.fromkeys(ANSWERS, ApiResponse(status=status, body=b"no")))
        facts = reader.facts
        assert facts.unknown["ip_family"] == "not requested yet"
        with capture_logs() as lines:
            await reader.read()
            running = asyncio.ensure_future(reader.run())
            await asyncio.sleep(10 * RETRY_SECONDS)
            assert facts.ip_family == ""
            reader._transport.answers = IPV6
            await asyncio.sleep(RETRY_SECONDS + 1)
            assert (facts.ip_family, facts.dns_ip, facts.unknown) == ("IPv6", "fd00::a", {})
            running.cancel()
        warnings = [line["path"] for line in lines if line["log_level"] == "warning"]
        assert sorted(warnings) == sorted(ANSWERS)

    run_virtual(scenario())


def test_cluster_facts_survive_an_outage_and_follow_an_upgrade():
    async def scenario():
        reader = reader_of(ANSWERS)
        transport, facts = reader._transport, reader.facts
        await reader.read()
        running = asyncio.ensure_future(reader.run())
        transport.answers = dict.fromkeys(ANSWERS, ApiResponse(status=503, body=b""))
        await asyncio.sleep(REFRESH_SECONDS + 1)
        assert (facts.version, facts.dns_ip, facts.ip_family) == ("v1.36.3", "10.96.0.10", "IPv4")
        assert facts.unknown == {}
        asked = transport.asked
        transport.answers = {**ANSWERS, "/version": {"gitVersion": "v1.37.0"}}
        await asyncio.sleep(REFRESH_SECONDS)
        assert (facts.version, transport.asked) == ("v1.37.0", asked + 3)
        running.cancel()

    run_virtual(scenario())
