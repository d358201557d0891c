"""Extensions are installed once a virtual machine has been made, whoever launched it."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_provider_azure.cloud_environment import CloudEnvironment, named_environment
from karpenter_provider_azure.instance_tags import CLAIM_UID_TAG
from karpenter_provider_azure.launch.extensions import BILLING_EXTENSION, SCRIPT_EXTENSION
from providers.azure.tests.launch.launch_world import LaunchWorld, claim

OTHER_CLOUD = CloudEnvironment(
    name="other",
    resource_manager="https://arm.example.com",
    audience="https://arm.example.com",
    authority="https://login.example.com",
    is_named=False,
)


def launched(made, name="web-1"):
    made.launch(name)
    made.claims[name] = claim(name)
    return made


def installed(made):
    return [(vm, name) for vm, name, _ in made.arm.extensions]


def list_extensions(made):
    """Let Azure list what was installed."""
    for vm, name, _ in made.arm.extensions:
        made.arm.vms[vm]["resources"] = [
            *made.arm.vms[vm].get("resources", []),
            {"id": f"{made.arm.vms[vm]['id']}/extensions/{name}"},
        ]


def test_a_virtual_machine_that_has_been_made_is_billed_as_a_node():
    made = launched(LaunchWorld())
    made.installer.run()
    assert installed(made) == []
    made.arm.succeed()
    made.installer.run()
    ((vm, name, body),) = made.arm.extensions  # case 86
    assert (vm, name) == ("aks-web-1", BILLING_EXTENSION)
    assert body["properties"] == {
        "publisher": "Microsoft.AKS",
        "type": "Compute.AKS.Linux.Billing",
        "typeHandlerVersion": "1.0",
        "autoUpgradeMinorVersion": True,
        "settings": {},
    }
    assert body["tags"][CLAIM_UID_TAG] == "uid-of-web-1"


def test_an_installed_extension_is_not_installed_again():
    made = launched(LaunchWorld())
    made.arm.succeed()
    made.installer.run()
    made.installer.run()
    list_extensions(made)
    made.clock.forward(hours=7)
    made.installer.run()
    assert len(installed(made)) == 1


def test_an_extension_that_does_not_appear_is_installed_again():
    made = launched(LaunchWorld())
    made.arm.succeed()
    made.installer.run()
    made.clock.forward(hours=5)
    made.installer.run()
    assert len(installed(made)) == 1
    made.clock.forward(hours=2)
    made.installer.run()
    assert len(installed(made)) == 2


def test_a_new_process_continues():
    made = launched(LaunchWorld(script="join"))
    made.arm.succeed()
    made.start()
    made.installer.run()
    list_extensions(made)
    made.start()
    made.installer.run()
    assert installed(made) == [("aks-web-1", SCRIPT_EXTENSION), ("aks-web-1", BILLING_EXTENSION)]


def test_the_script_comes_before_the_billing_and_is_protected():
    made = launched(LaunchWorld(script="join secret"))
    made.arm.succeed()
    made.installer.run()
    ((_, name, body),) = made.arm.extensions  # case 86
    assert name == SCRIPT_EXTENSION
    assert body["properties"]["protectedSettings"] == {"commandToExecute": "join secret"}
    assert len(made.boot.targets) == 1


def test_the_script_is_not_run_on_a_node_that_has_joined_without_it():
    """Its custom data made it join, as in another provision mode."""
    made = launched(LaunchWorld(script="join"))
    made.arm.succeed()
    joined = made.claims["web-1"]
    condition = {"type": "Registered", "status": "True", "lastTransitionTime": made.clock.now()}
    status = joined.status.model_validate({"conditions": [condition]})
    made.claims["web-1"] = joined.model_copy(update={"status": status})
    made.start()
    made.installer.run()
    assert installed(made) == [("aks-web-1", BILLING_EXTENSION)]


def test_a_script_without_a_cache_entry_is_requested_again():
    made = launched(LaunchWorld(script="join"))
    made.arm.succeed()
    made.start()
    made.installer.run()
    first, again = made.boot.targets
    assert first == again
    ((_, name, body),) = made.arm.extensions
    assert name == SCRIPT_EXTENSION
    assert body["properties"]["protectedSettings"] == {"commandToExecute": "join"}


@pytest.mark.parametrize(
    ("cloud", "count"),
    [
        (named_environment("AzureChinaCloud"), 1),
        (named_environment("AzureUSGovernmentCloud"), 1),
        (OTHER_CLOUD, 0),
    ],
)
def test_only_the_clouds_of_azure_bill_by_an_extension(cloud, count):
    made = launched(LaunchWorld(cloud=cloud))
    made.arm.succeed()
    made.installer.run()
    assert len(installed(made)) == count  # case 86


def test_an_idle_cluster_is_listed_once_an_hour():
    made = launched(LaunchWorld())
    made.arm.succeed()
    made.installer.run()
    list_extensions(made)
    made.clock.forward(minutes=31)
    for _ in range(120):
        made.clock.forward(minutes=1)
        made.installer.run()
    assert made.arm.counts["virtualMachines:list"] == 3


def test_the_claims_of_an_idle_cluster_do_not_keep_a_new_one_from_its_extension():
    made = launched(LaunchWorld())
    made.arm.succeed()
    made.installer.run()
    list_extensions(made)
    made.clock.forward(minutes=31)
    made.installer.run()
    new = launched(made, "web-2").claims["web-2"]
    metadata = new.metadata.model_copy(update={"creation_timestamp": made.clock.now()})
    made.claims["web-2"] = new.model_copy(update={"metadata": metadata})
    made.arm.succeed()

    made.installer.run()

    assert ("aks-web-2", BILLING_EXTENSION) in installed(made)


def test_an_extension_that_is_refused_does_not_stop_those_of_others():
    made = launched(launched(LaunchWorld()), "web-2")
    made.arm.succeed()
    send, errors = made.arm.send, [CloudProviderError("busy")]

    def refuse_once(*args, **kwargs):
        if errors:
            raise errors.pop()
        return send(*args, **kwargs)

    made.arm.send = refuse_once
    made.installer.run()
    assert installed(made) == [("aks-web-2", BILLING_EXTENSION)]
    made.clock.forward(minutes=6)
    made.installer.run()
    assert len(installed(made)) == 2


def test_throttling_ends_the_round():
    made = launched(launched(LaunchWorld()), "web-2")
    made.arm.succeed()
    send = made.arm.send

    def throttle(*_args, **_kwargs):
        raise ThrottledError("slow")

    made.arm.send = throttle
    with pytest.raises(ThrottledError):
        made.installer.run()
    made.arm.send = send
    made.installer.run()
    assert len(installed(made)) == 2
