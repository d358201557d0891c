"""AKS machines of the simulated Azure: what is answered about them, and how they end."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.invariants import broken_invariants, leftovers

PREVIEW, STABLE = "2026-08-02-preview", "2026-08-01"


@pytest.fixture
def pool(cloud):
    return f"{cloud.world.cluster_id}/agentPools/{cloud.world.machines_pool}"


@pytest.fixture
def list_machines(azure, pool):
    def run(version=PREVIEW, **query):
        return azure.send("GET", f"{pool}/machines", version=version, **query)

    return run


@pytest.fixture
def delete(azure, pool):
    def run(*names):
        body = {"machineNames": list(names)}
        return azure.send("POST", f"{pool}/deleteMachines", body, version=STABLE)

    return run


def test_an_aks_machine_shows_its_virtual_machine_and_properties(cloud, list_machines):
    """Only spot machines tell a priority (case 125)."""
    ids = [cloud.create_aks_machine(f"web-{n}", spot=bool(n), zone=str(n or "")) for n in (0, 1)]
    cloud.aks_machines.get("web-1").drift_action = "Recreate"
    cloud.time.advance(60)

    regular, spot = list_machines().body["value"]

    for machine, provider_id in ((regular, ids[0]), (spot, ids[1])):
        vm = cloud.instance(provider_id)
        assert machine["properties"]["resourceId"] == vm.resource_id
        assert machine["properties"]["tags"] == vm.tags
        assert machine["properties"]["provisioningState"] == "Succeeded"
    assert "priority" not in regular["properties"]
    assert "zones" not in regular
    assert "driftAction" not in regular["properties"]["status"]
    assert spot["properties"]["priority"] == "Spot"
    assert spot["zones"] == ["1"]
    assert spot["properties"]["status"]["driftAction"] == "Recreate"


def test_stable_versions_tell_little(cloud, list_machines):
    cloud.create_aks_machine("web-1")
    (machine,) = list_machines(STABLE).body["value"]
    assert machine["properties"].keys() == {"network", "resourceId"}
    assert machine["zones"] == ["1"]


def test_machines_are_paged(cloud, azure, list_machines):
    for n in range(3):
        cloud.create_aks_machine(f"web-{n}")
    cloud.behaviour.instances_per_page = 2
    first = list_machines().body
    assert len(first["value"]) == 2
    path, _, query = first["nextLink"].partition("?")
    token = dict(each.split("=") for each in query.split("&"))["%24skiptoken"]
    (last,) = azure.send("GET", path, version=PREVIEW, **{"$skiptoken": token}).body["value"]
    assert last["name"] == "web-2"


def test_errors_of_aks_are_flat(azure, cloud, pool):
    missing = azure.send("GET", f"{pool}/machines/web-1", version=PREVIEW)
    assert (missing.status, missing.body["code"]) == (404, "NotFound")
    assert {"code", "message", "subcode"} <= missing.body.keys()
    other_pool = azure.send("GET", f"{pool}x/machines", version=PREVIEW)
    assert (other_pool.status, other_pool.body["code"]) == (404, "NotFound")
    other_cluster = pool.replace(cloud.world.cluster_name, "other")
    of_manager = azure.send("GET", f"{other_cluster}/machines", version=PREVIEW)
    assert (of_manager.status, of_manager.code) == (404, "ResourceNotFound")


def test_a_deletion_ends_the_machines_that_exist(azure, cloud, delete, list_machines):
    cloud.behaviour.terminating_seconds = 15
    for n in range(2):
        cloud.create_aks_machine(f"web-{n}")
    cloud.time.advance(60)

    answer = delete("web-0", "WEB-1", "web-9")

    assert answer.status == 202
    assert azure.poll(answer)["status"] == "InProgress"
    states = [each["properties"]["provisioningState"] for each in list_machines().body["value"]]
    assert states == ["Deleting", "Deleting"]
    cloud.time.advance(15)
    assert azure.poll(answer)["status"] == "Succeeded"
    assert list_machines().body["value"] == []
    assert not list(leftovers(cloud))
    assert not broken_invariants(cloud)


def test_a_deletion_that_names_no_machine_is_refused(cloud, delete):
    cloud.create_aks_machine("web-1")
    answer = delete("web-9")
    assert (answer.status, answer.body["code"]) == (400, "InvalidParameter")
    assert answer.body["message"].startswith("Cannot find any valid machines to delete.")


def test_a_deletion_that_fails_leaves_machines(azure, cloud, delete, list_machines):
    cloud.create_aks_machine("web-1")
    cloud.time.advance(60)
    with cloud.operations.fail("deleteMachines:post", error=CloudError("InternalError", "no")):
        answer = delete("web-1")
    assert azure.poll(answer)["status"] == "Failed"
    (machine,) = list_machines().body["value"]
    assert machine["properties"]["provisioningState"] == "Succeeded"


def test_machines_are_gone_after_a_reset(cloud, list_machines):
    cloud.create_aks_machine("web-1")
    cloud.reset()
    assert list_machines().body["value"] == []
    with pytest.raises(LookupError):
        cloud.aks_machines.get("web-1")
    with pytest.raises(LookupError):
        cloud.aks_machines.add("web-1")
