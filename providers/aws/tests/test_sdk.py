"""Clients of AWS: made late, once, of the region's endpoint; the region of prices."""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import botocore.session
import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from karpenter_core.errors import SettingsError
from karpenter_provider_aws.sdk import ClientLimits, CloudClients, pricing_region
from karpenter_simulated_aws.testing import attempts


def test_importing_the_clients_loads_no_sdk():
    """Acceptance: every run of the program loads the plug-in."""
    program = (
        "import sys, karpenter_provider_aws.sdk, karpenter_provider_aws.codes;"
        "print([m for m in ('boto3', 'botocore', 'moto') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_a_client_is_made_without_the_libraries_for_transfers_and_resources():
    """boto3 loads those of S3 with all of multiprocessing: 2 MiB of a controller that never calls S3."""
    program = (
        "import sys\n"
        "from karpenter_provider_aws.sdk import CloudClients\n"
        "print(CloudClients(region='eu-west-1').ec2.meta.region_name)\n"
        "print([m for m in ('boto3', 's3transfer', 'multiprocessing') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["eu-west-1", "[]"]


def test_a_client_is_made_once(clients):
    assert clients.ec2 is clients.ec2


def describe_subnets(clients):
    """Return whether the call succeeded."""
    try:
        clients.ec2.describe_subnets()
    except (ClientError, NoCredentialsError):
        return False
    return True


class TestCredentials:
    """A client keeps those that it was made with."""

    @pytest.fixture
    def seconds(self):
        """The time, in a list of one."""
        return [1000.0]

    @pytest.fixture
    def clients(self, aws, seconds):
        limits = ClientLimits(read_seconds=10, retries=attempts(1))
        return CloudClients(region=aws.account.region, limits=limits, monotonic=lambda: seconds[0])

    def test_a_process_that_started_without_credentials_finds_them_later(
        self, clients, monkeypatch
    ):
        """Those of an instance, whose metadata may not be served yet when the first process starts."""
        with monkeypatch.context() as patch:
            patch.delenv("AWS_ACCESS_KEY_ID")
            patch.delenv("AWS_SECRET_ACCESS_KEY")
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            assert not describe_subnets(clients)
        assert describe_subnets(clients)

    @pytest.mark.parametrize(
        ("code", "is_made_anew"),
        [
            ("ExpiredToken", True),
            ("AuthFailure", True),
            ("UnauthorizedOperation", False),
            ("OptInRequired", False),
            ("InternalError", False),
        ],
    )
    def test_a_client_is_made_anew_when_its_credentials_are_refused(
        self, aws, clients, code, is_made_anew
    ):
        """Permissions that are missing are those of any credentials."""
        refused = clients.ec2
        with aws.fail("ec2:DescribeSubnets", code=code, times=None):
            assert not describe_subnets(clients)

        assert (clients.ec2 is not refused) is is_made_anew
        assert describe_subnets(clients)

    def test_clients_are_made_anew_once_a_minute_at_most(self, aws, clients, seconds):
        """Each costs up to a second of CPU, and credentials may be refused for days."""
        made = []
        with aws.fail("ec2:DescribeSubnets", code="ExpiredToken", times=None):
            for seconds[0] in (1000.0, 1001.0, 1059.9, 1060.0, 1061.0):
                made.append(clients.ec2)
                assert not describe_subnets(clients)

        assert [later is made[1] for later in made] == [False, True, True, True, False]

    def test_others_that_share_clients_get_those_that_were_made_anew(self, aws, seconds):
        limits, shared = ClientLimits(read_seconds=10, retries=attempts(1)), {}

        def made():
            return CloudClients(region=aws.account.region, limits=limits, shared=shared)

        first = made()
        refused = first.ec2
        with aws.fail("ec2:DescribeSubnets", code="ExpiredToken", times=None):
            assert not describe_subnets(first)

        assert first.ec2 is not refused
        assert made().ec2 is first.ec2


class CountingServer(ThreadingHTTPServer):
    """Answers every call with empty objects, and counts connections."""

    class RequestHandlerClass(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b'{"cluster": {}, "Parameter": {}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.do_POST()

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        self.connections = 0

    def get_request(self):
        self.connections += 1
        return super().get_request()


def test_clients_of_all_services_share_connections_and_certificates(monkeypatch):
    """Each session of botocore has a megabyte of certificates of authorities."""
    with CountingServer() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
        clients = CloudClients(region="eu-west-1")
        try:
            for _ in range(2):
                clients.eks.describe_cluster(name="demo")
                clients.ssm.get_parameter(Name="image")
                clients.close()  # one that is used afterwards is made anew
        finally:
            clients.close()
            server.shutdown()
            thread.join()

    assert server.connections == 2


def test_client_time_limits_are_below_those_of_hooks():
    limits = ClientLimits()

    last_attempt = limits.connect_seconds + limits.read_seconds
    assert limits.retries.longest_call_seconds + last_attempt < 120
    assert limits.read_seconds > 20  # a long poll of the queue
    assert limits.connections >= 50


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("ap-southeast-1", "ap-south-1"),
        ("eu-west-1", "eu-central-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("sa-east-1", "us-east-1"),
        ("us-west-2", "us-east-1"),
    ],
)
def test_prices_are_served_by_a_few_regions(region, expected):
    """Acceptance case 76."""
    assert pricing_region(region) == expected


def test_the_region_is_read_from_the_variable_that_other_sdks_read(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)

    assert CloudClients().region == "eu-west-3"
    assert CloudClients(region="eu-west-1").region == "eu-west-1"


def test_credentials_are_requested_in_the_configured_region(monkeypatch):
    """A role of a service account is assumed at STS of the session's region."""
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    made = []
    new_session = botocore.session.Session

    def noted(**options):
        session = new_session(**options)
        made.append(session)
        return session

    monkeypatch.setattr(botocore.session, "Session", noted)
    for clients in (CloudClients(region="eu-west-1"), CloudClients()):
        assert clients.ec2.meta.region_name == clients.region

    regions = [each.get_config_variable("region") for each in made]
    assert regions[-2:] == ["eu-west-1", "eu-west-3"]


def test_without_a_region_the_error_names_the_setting(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(SettingsError, match="AWS_REGION"):
        _ = CloudClients().region
