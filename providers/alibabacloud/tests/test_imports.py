"""Tests which modules are loaded, and when (case 100)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from karpenter_provider_alibabacloud.sdk_models import places_of

PACKAGE = Path(__file__).parents[1] / "karpenter_provider_alibabacloud"
SDKS = {
    "ecs": "alibabacloud_ecs20140526",
    "vpc": "alibabacloud_vpc20160428",
    "ack": "alibabacloud_cs20151215",
}
RUNNING = "; ".join(
    "import " + ".".join(("karpenter_provider_alibabacloud", *path.with_suffix("").parts))
    for path in sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
)
"""Every module of a provider that runs."""
CALL = """
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import CloudClients
service, action, parameters = {call!r}
nobody = "127.0.0.1:9"
with CloudClients(
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
    report_code = "import json, sys; sys.stderr.write(chr(10) + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report_code}"],
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


STEPS = {
    "core": "import karpenter_core",
    "help": PROGRAM.format(arguments=["--help"]),
    "help of run": PROGRAM.format(arguments=["run", "--help"]),
    "crds": PROGRAM.format(arguments=["crds", "--provider", "alibabacloud"]),
    "provider": RUNNING,
}


def test_no_sdk_is_loaded_before_a_call_is_due():
    """Not even by all of the provider's own modules; one process takes all steps."""
    assert sdk_packages(loaded_by("\n".join(STEPS.values()))) == set()


def test_the_core_loads_nothing_of_the_provider():
    modules = loaded_by("import karpenter_core")

    assert [name for name in modules if name.startswith("karpenter_provider_")] == []


COMPARE = """
from importlib import import_module
from karpenter_provider_alibabacloud.sdk_models import load_models
lazy = load_models({package!r})
assert lazy is import_module({package!r} + ".models") is import_module({package!r}).models
names = [name for name in dir(lazy) if name[0].isupper()]
assert not [name for name in names if getattr(lazy, name).__name__ != name]
assert not hasattr(lazy, "Nothing")
files = len(names) and len(list(__import__("pathlib").Path(lazy.__path__[0]).glob("_[a-z]*.py")))
assert files > 300, files
assert {{m for m in __import__("sys").modules if m.startswith(lazy.__name__ + "._")}}.__len__() == files
"""
"""Every class can be had, and they are in all of the modules that there are."""


@pytest.mark.parametrize("package", SDKS.values())
def test_all_models_of_an_sdk_can_be_loaded(package):
    loaded_by(COMPARE.format(package=package))


def test_models_that_are_not_as_the_generator_writes_them_are_imported_as_usual():
    head = "from __future__ import annotations\n\nfrom ._a_request import ARequest\n"

    assert places_of(f"{head}__all__ = [\n    ARequest,\n]\n") == {"ARequest": "_a_request"}
    assert places_of(f"{head}from ._b import B as C\n") == {}
    assert places_of(f"{head}import sys\n") == {}


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


def test_a_call_loads_the_models_of_its_action_alone():
    """Of more than a thousand."""
    call = ("ecs", "DescribeInstances", {"RegionId": "cn-hangzhou"})
    prefix = f"{SDKS['ecs']}.models."

    loaded = [m for m in loaded_by(CALL.format(call=call)) if m.startswith(prefix)]

    assert loaded
    assert [m for m in loaded if not m.startswith(f"{prefix}_describe_instances_re")] == []
