"""The metrics port admits whom the cluster's RBAC admits, over TLS, and nobody in doubt."""

from __future__ import annotations

import asyncio
import json
import os
import ssl

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry

from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator import metrics_access
from karpenter_core.operator.metrics_access import AccessReviewer
from karpenter_core.operator.servers import HttpServers
from karpenter_core.operator.serving_certificate import ServingCertificate
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from tests.support.certificates import CertificateAuthority
from tests.support.tls_defaults import follow_the_system

SCRAPER = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "7",
    "groups": ["system:serviceaccounts"],
    "extra": {"pod": ["prometheus-0"]},
}


class Reviews:
    """An API server that knows tokens and permissions, and may be out of reach."""

    def __init__(self, users=None, permitted=()):
        self.users = users or {}
        self.permitted = set(permitted)
        self.sent = []
        self.problem = None
        self.delay = 0.0

    async def request(self, request):
        self.sent.append(request)
        await asyncio.sleep(self.delay)
        if self.problem is not None:
            if isinstance(self.problem, Exception):
                raise self.problem
            return self.problem
        body = json.loads(request.body)
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            user = self.users.get(body["spec"]["token"])
            status = {"authenticated": user is not None}
            status |= {"user": user} if user else {"error": "invalid bearer token"}
            return ApiResponse(status=201, body=json.dumps({"status": status}).encode())
        assert request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        spec = body["spec"]
        wanted = spec["nonResourceAttributes"]
        allowed = (spec["user"], wanted["verb"], wanted["path"]) in self.permitted
        return ApiResponse(status=201, body=json.dumps({"status": {"allowed": allowed}}).encode())


def reviews():
    return Reviews({"good": SCRAPER}, [(SCRAPER["username"], "get", "/metrics")])


async def ask(reviewer, token="good", method="GET", path="/metrics"):
    return await reviewer.status(f"Bearer {token}", method=method, path=path)


async def test_a_permitted_user_is_admitted_to_the_path_of_its_role_only():
    api = reviews()
    reviewer = AccessReviewer.of(api, clock=LoopClock())

    assert await ask(reviewer) == 200
    assert await ask(reviewer, path="/debug/decisions") == 403
    assert await ask(reviewer, method="HEAD") == 403
    assert await ask(reviewer, token="other") == 401
    spec = json.loads(api.sent[1].body)["spec"]
    assert (spec["user"], spec["uid"]) == (SCRAPER["username"], "7")
    assert (spec["groups"], spec["extra"]) == (SCRAPER["groups"], SCRAPER["extra"])


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic good", "good"])
async def test_a_request_without_a_bearer_token_is_refused_without_a_token_review(header):
    api = reviews()

    status = await AccessReviewer.of(api, clock=LoopClock()).status(
        header, method="GET", path="/metrics"
    )

    assert (status, api.sent) == (401, [])


@pytest.mark.parametrize(
    "problem",
    [
        ApiError("no answer from good", status=0),
        ApiResponse(status=500, body=b"{}"),
        ApiResponse(status=403, body=b'{"message": "may not create tokenreviews: good"}'),
        ApiResponse(status=201, body=b"<html>"),
        ApiResponse(status=201, body=b"{}"),
        ApiResponse(status=201, body=b'{"status": {"authenticated": true}}'),
    ],
)
async def test_a_review_without_an_answer_permits_nothing_and_is_not_remembered(problem):
    """The log says why, without the token."""
    api = reviews()
    api.problem = problem
    reviewer = AccessReviewer.of(api, clock=LoopClock())

    with structlog.testing.capture_logs() as lines:
        assert await ask(reviewer) == 503
    api.problem = None

    assert await ask(reviewer) == 200
    assert len(lines) == 1
    assert "good" not in str(lines)


def test_a_hanging_token_review_is_cancelled_and_few_may_wait():
    async def scenario():
        api = reviews()
        api.delay = 3600.0
        reviewer = AccessReviewer.of(api, clock=LoopClock())
        waiting = [
            asyncio.ensure_future(ask(reviewer, token=f"t{number}"))
            for number in range(metrics_access.AT_ONCE)
        ]
        await asyncio.sleep(0)

        assert await ask(reviewer) == 503
        assert not any(each.done() for each in waiting)
        assert set(await asyncio.gather(*waiting)) == {503}

    run_virtual(scenario())


def test_permissions_are_cached_for_a_time_and_then_checked_again():
    async def scenario():
        api = reviews()
        reviewer = AccessReviewer.of(api, clock=LoopClock())
        assert await ask(reviewer) == 200
        assert await ask(reviewer) == 200
        assert len(api.sent) == 2

        api.users.clear()
        await asyncio.sleep(metrics_access.PERMITTED_SECONDS)
        assert await ask(reviewer) == 401
        api.users["good"] = SCRAPER
        await asyncio.sleep(metrics_access.REFUSED_SECONDS)
        assert await ask(reviewer) == 200

    run_virtual(scenario())


def test_memory_is_bounded_and_refusals_displace_no_permission():
    async def scenario():
        api = reviews()
        reviewer = AccessReviewer.of(api, clock=LoopClock())
        assert await ask(reviewer) == 200
        asked = len(api.sent)
        reviewer._refused.update(
            (key, metrics_access._Remembered(403, 1e9))
            for key in range(2 * metrics_access.REMEMBERED)
        )

        assert await ask(reviewer, token="other") == 401
        assert len(reviewer._refused) == metrics_access.REMEMBERED
        assert await ask(reviewer) == 200
        assert len(api.sent) == asked + 1

    run_virtual(scenario())


def test_unknown_tokens_cost_the_api_server_no_more_than_the_limit():
    async def scenario():
        api = reviews()
        reviewer = AccessReviewer.of(api, clock=LoopClock())
        for number in range(200):
            await ask(reviewer, token=f"t{number}")
        spent = asyncio.get_running_loop().time()
        assert len(api.sent) <= metrics_access.REVIEW_BURST + metrics_access.REVIEW_QPS * spent + 1

    run_virtual(scenario())


class Served:
    """The servers with a certificate, as clients see them."""

    def __init__(self, folder, *, reviewer=None, probe_address=""):
        self.folder = folder
        self.authority = CertificateAuthority(folder)
        self.certificate, self.key = self.issue("first")
        self.both = HttpServers(
            registry=CollectorRegistry(),
            checks=(),
            address="127.0.0.1",
            probe_address=probe_address,
            metrics_port=0,
            probe_port=0,
            certificate=ServingCertificate(str(self.certificate), str(self.key)),
            reviewer=reviewer,
            extra_routes={"/debug/pprof/": lambda: "profiles"},
            json_routes={"/debug/decisions": lambda _: b"{}"},
        )

    def issue(self, common_name):
        return self.authority.issue("server", common_name, hosts=["127.0.0.1"])

    async def __aenter__(self):
        await self.both.start()
        return self

    async def __aexit__(self, *_):
        await self.both.stop()

    async def get(self, path, *, token=""):
        """Return the status, the name in the certificate, and what is asked for."""
        trust = ssl.create_default_context(cafile=str(self.authority.certificate_file))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.both.metrics_port, ssl=trust
        )
        peer = writer.get_extra_info("peercert")
        name = dict(pair for group in peer["subject"] for pair in group)["commonName"]
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.read()).decode().partition("\r\n\r\n")[0].split("\r\n")
        writer.close()
        headers = dict(line.split(": ", 1) for line in head[1:])
        return int(head[0].split()[1]), name, headers.get("WWW-Authenticate")


async def test_everything_on_the_metrics_port_needs_a_token_and_probes_need_none(tmp_path):
    api = reviews()
    reviewer = AccessReviewer.of(api, clock=LoopClock())
    async with Served(tmp_path, reviewer=reviewer) as served:
        for path in ("/metrics", "/debug/pprof/", "/debug/decisions", "/nothing"):
            assert await served.get(path) == (401, "first", "Bearer")
        assert (await served.get("/metrics", token="good"))[0] == 200
        assert (await served.get("/debug/decisions", token="good"))[0] == 403
        api.permitted.add((SCRAPER["username"], "get", "/debug/pprof/"))
        assert (await served.get("/debug/pprof/", token="good"))[0] == 200
        url = f"http://127.0.0.1:{served.both.probe_port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200


async def test_plain_http_is_not_answered_where_there_is_a_certificate(tmp_path):
    async with Served(tmp_path) as served:
        url = f"http://127.0.0.1:{served.both.metrics_port}/metrics"
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(url)


@pytest.mark.parametrize("system", [ssl.TLSVersion.MINIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_3])
def test_old_versions_of_tls_are_refused(tmp_path, monkeypatch, system):
    """The system may permit them, or refuse more: that is refused too."""
    certificate, key = CertificateAuthority(tmp_path).issue("server", "one", hosts=["127.0.0.1"])
    made = follow_the_system(monkeypatch, system)

    ServingCertificate(str(certificate), str(key))

    assert {context.minimum_version for context in made} == {max(system, ssl.TLSVersion.TLSv1_2)}


async def test_a_renewed_certificate_is_served_by_the_next_handshake(tmp_path):
    async with Served(tmp_path) as served:
        assert (await served.get("/metrics"))[1] == "first"
        served.issue("second")
        assert (await served.get("/metrics"))[1] == "second"


async def test_half_a_renewal_leaves_the_old_certificate_in_use(tmp_path):
    """Certificate and key are two files; between their renewals they do not fit each other."""
    async with Served(tmp_path) as served:
        old_key = served.key.read_bytes()
        served.issue("second")
        new_key = served.key.read_bytes()
        served.key.write_bytes(old_key)
        assert (await served.get("/metrics"))[1] == "first"
        served.certificate.rename(served.certificate.with_suffix(".away"))
        assert (await served.get("/metrics"))[1] == "first"
        served.certificate.with_suffix(".away").rename(served.certificate)
        served.key.write_bytes(new_key)
        os.utime(served.key, ns=(1, 1))
        assert (await served.get("/metrics"))[1] == "second"


async def test_probes_may_have_an_address_of_their_own(tmp_path):
    async with Served(tmp_path, probe_address="127.0.0.2") as served:
        url = f"http://127.0.0.2:{served.both.probe_port}/healthz"
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as response:
                assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await session.get(url.replace("127.0.0.2", "127.0.0.1"))
        assert (await served.get("/metrics"))[0] == 200


def test_unusable_files_are_named(tmp_path):
    authority = CertificateAuthority(tmp_path)
    certificate, _ = authority.issue("one", "one", hosts=["127.0.0.1"])
    _, key = authority.issue("two", "two", hosts=["127.0.0.1"])

    with pytest.raises(SettingsError, match=r"metrics-tls-cert-file.*one\.crt and .*two\.key"):
        ServingCertificate(str(certificate), str(key))
    with pytest.raises(SettingsError, match="No such file"):
        ServingCertificate(str(certificate), str(tmp_path / "none.key"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--metrics-tls-cert-file=a"], "one is given without the other"),
        (["--metrics-tls-key-file=a"], "one is given without the other"),
        (["--metrics-token-auth"], "metrics-token-auth: needs metrics-tls-cert-file"),
        (["--metrics-bind-address=a b"], "metrics-bind-address: must be an IP address"),
        (["--health-probe-bind-address=a b"], "health-probe-bind-address: must be an IP address"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(arguments, problem):
    with pytest.raises(SettingsError, match=problem):
        load_settings(arguments, {})
