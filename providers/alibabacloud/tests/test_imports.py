"""What is loaded when (acceptance case 100); how long it takes and how large it is `benchmarks.startup` measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "karpenter_provider_alibabacloud"
SDKS = {
    "ecs": "alibabacloud_ecs20140526",
    "vpc": "alibabacloud_vpc20160428",
    "ack": "alibabacloud_cs20151215",
}
RUNNING = "; ".join(
    "import " + ".".join(("karpenter_provider_alibabacloud", *path.with_suffix("").parts))
    for path in sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    if path.parts[0] not in {"simulated", "testing.py"} and path.name != "__init__.py"
)
"""Every module of a provider that runs."""
CALL = """
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import Clients
service, action, parameters = {call!r}
nobody = "127.0.0.1:9"
with Clients(
    region="cn-hangzhou",
    endpoint_ecs=nobody,
    endpoint_vpc=nobody,
    endpoint_cs=nobody,
    protocol="http",
) as clients:
    try:
        getattr(clients, service).call(action, parameters)
    except ApiError:
        pass
"""
PROGRAM = """
import sys
from karpenter_core.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code
"""


def loaded_by(code: str) -> set[str]:
    """Return the modules that are there after running some code in a process of its own."""
    told = "import json, sys; sys.stderr.write(chr(10) + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{told}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "ALIBABA_CLOUD_ACCESS_KEY_ID": "id",
            "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "secret",
        },
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def sdk_packages(modules: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules}
    return {
        name for name in tops if name.startswith(("alibabacloud_", "darabonba", "Tea", "requests"))
    }


@pytest.mark.parametrize(
    "code",
    [
        "import karpenter_core",
        PROGRAM.format(arguments=["--help"]),
        PROGRAM.format(arguments=["run", "--help"]),
        PROGRAM.format(arguments=["crds", "--provider", "alibabacloud"]),
        RUNNING,
    ],
    ids=["core", "help", "help of run", "crds", "provider"],
)
def test_no_sdk_is_loaded_before_a_call_is_due(code):
    """Not even by all of the provider's own modules."""
    assert sdk_packages(loaded_by(code)) == set()


def test_the_core_loads_nothing_of_the_provider():
    modules = loaded_by("import karpenter_core")

    assert [name for name in modules if name.startswith("karpenter_provider_")] == []


@pytest.mark.parametrize(
    ("service", "action", "parameters"),
    [
        ("ecs", "DescribeInstances", {"RegionId": "cn-hangzhou"}),
        ("vpc", "DescribeVSwitches", {"RegionId": "cn-hangzhou"}),
        ("ack", "DescribeClusterDetail", {"ClusterId": "c1"}),
    ],
)
def test_a_call_loads_the_sdk_of_its_service_alone(service, action, parameters):
    """A cluster that is none of ACK's never loads that of ACK."""
    modules = sdk_packages(loaded_by(CALL.format(call=(service, action, parameters))))

    assert SDKS[service] in modules
    assert modules & set(SDKS.values()) == {SDKS[service]}
