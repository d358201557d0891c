"""The simulated cloud as a process of its own, and changed from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest


@pytest.fixture
def remote(cloud):
    def call(path, body=None, method="POST"):
        request = Request(
            f"http://{cloud.endpoint}/_sim/{path}",
            data=None if method == "GET" else json.dumps(body or {}).encode(),
            method=method,
        )
        with urlopen(request) as answer:
            return json.load(answer)

    return call


def test_faults_stock_and_time_are_changed_from_outside(cloud, remote, launch, clients):
    remote("fail", {"action": "DescribeRegions", "code": "Throttling.User", "times": 1})
    remote("sell-out", {"zone": "cn-hangzhou-b"})
    remote("behaviour", {"starting_seconds": 5})
    clients.ecs.call("DescribeRegions", {})

    group = launch.group("ecs.g7.large", zones="bg")

    assert group.places == {("ecs.g7.large", "g"): 1}
    assert [each["status"] for each in remote("state", method="GET")["instances"]] == ["Starting"]
    remote("advance", {"seconds": 5})
    assert [each["status"] for each in remote("state", method="GET")["instances"]] == ["Running"]
    assert remote("calls", method="GET")["DescribeRegions"] == {"Throttling.User": 1, "ok": 1}
    remote("reset")
    assert cloud.living() == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("none", {}, 404), ("advance", {}, 400), ("behaviour", {"colour": 1}, 400)],
)
def test_an_unknown_request_is_refused(remote, path, body, status):
    with pytest.raises(HTTPError) as caught:
        remote(path, body)

    with caught.value as error:
        assert error.code == status


def test_the_simulated_cloud_runs_as_its_own_process():
    with subprocess.Popen(
        [sys.executable, "-m", "karpenter_simulated_alibabacloud"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        try:
            line = process.stdout.readline().strip()
            endpoint = line.removeprefix("export ALIBABA_ENDPOINT_ECS=")
            url = f"http://{endpoint}/?Action=DescribeRegions&Version=2014-05-26"
            with urlopen(url) as answer:
                regions = json.load(answer)["Regions"]["Region"]
        finally:
            process.kill()

    assert [each["RegionId"] for each in regions] == ["cn-hangzhou"]
