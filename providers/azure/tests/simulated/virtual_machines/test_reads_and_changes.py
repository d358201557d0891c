"""Lists in pages, instance views, tags, identities and extensions."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

BILLING = {
    "location": "westus2",
    "properties": {
        "publisher": "Microsoft.AKS",
        "type": "Compute.AKS.Linux.Billing",
        "typeHandlerVersion": "1.0",
        "autoUpgradeMinorVersion": True,
        "settings": {},
    },
    "tags": {"karpenter.sh_nodepool": "default"},
}


def test_a_list_has_every_page(azure, cloud):
    names = [f"aks-{number}" for number in range(7)]
    for name in names:
        azure.create(name)
    cloud.behaviour.instances_per_page = 3
    assert [each.name for each in azure.machines.list(azure.group)] == names
    assert [each.name for each in azure.machines.list_all()] == names
    assert cloud.calls.count("virtualMachines:list") == 6


def test_deletions_between_pages_hide_nothing(azure, cloud):
    for number in range(6):
        azure.create(f"aks-{number}")
    cloud.behaviour.instances_per_page = 2
    pages = azure.machines.list(azure.group).by_page()
    seen = [each.name for each in next(pages)]
    azure.send("DELETE", azure.path("aks-0"), forceDeletion="true")
    azure.send("DELETE", azure.path("aks-3"), forceDeletion="true")
    seen += [each.name for page in pages for each in page]
    assert seen == ["aks-0", "aks-1", "aks-2", "aks-4", "aks-5"]


def test_an_empty_page_may_come_first(azure, cloud):
    azure.create()
    cloud.behaviour.instances_per_page = 0
    answer = azure.send("GET", azure.path("").rstrip("/"))
    assert answer.body["value"] == []
    assert "skiptoken" in answer.body["nextLink"]


def test_a_foreign_token_of_a_page_is_refused(azure):
    answer = azure.send("GET", azure.path("").rstrip("/"), **{"$skiptoken": "%%"})
    assert (answer.status, answer.code) == (400, "InvalidParameter")


def test_a_group_lists_its_own(azure, cloud):
    azure.create()
    assert list(azure.machines.list(cloud.world.cluster_group)) == []


def test_a_new_virtual_machine_may_not_be_seen_at_once(azure, cloud):
    cloud.behaviour.invisible_seconds = 5
    azure.put()
    assert list(azure.machines.list(azure.group)) == []
    assert azure.send("GET", azure.path("aks-a")).status == 404
    assert azure.put(headers={"If-None-Match": "*"}).status == 412
    cloud.time.advance(5)
    assert len(list(azure.machines.list(azure.group))) == 1


def test_the_instance_view_of_a_running_virtual_machine_says_running(azure):
    azure.create()
    view = azure.machines.get(azure.group, "aks-a", expand="instanceView").instance_view
    assert [each.code for each in view.statuses] == [
        "ProvisioningState/succeeded",
        "PowerState/running",
    ]
    assert azure.machines.get(azure.group, "aks-a").instance_view is None


def test_resource_graph_lists_a_virtual_machine_after_its_lag(azure, cloud):
    azure.create(tags={"karpenter.sh_nodepool": "default"})
    query = (
        "Resources | where type == 'microsoft.compute/virtualmachines'"
        f" | where resourceGroup == '{azure.group.lower()}'"
        " | where tags has_cs 'karpenter.sh_nodepool'"
    )
    body = {"query": query, "subscriptions": [cloud.world.subscription_id]}
    path = "/providers/Microsoft.ResourceGraph/resources"

    def names():
        rows = azure.send("POST", path, body, version="2021-03-01").body["data"]
        return [each["name"] for each in rows]

    assert names() == []
    cloud.time.advance(2)
    assert names() == ["aks-a"]
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    assert names() == ["aks-a"]
    cloud.time.advance(2)
    assert names() == []


def test_a_patch_replaces_tags_and_gives_another_etag(azure, cloud):
    first = azure.create(tags={"a": "1", "b": "2"})
    poller = azure.machines.begin_update(azure.group, "aks-a", {"tags": {"a": "3"}})
    changed = poller.result()
    assert changed.tags == {"a": "3"}
    assert changed.etag != first.etag
    assert cloud.instance("aks-a").tags == {"a": "3"}


def test_a_patch_adds_identities_and_removes_those_that_are_null(azure, cloud):  # case 114
    azure.create()
    (identity_id,) = cloud.world.identity_ids
    added = {"type": "UserAssigned", "userAssignedIdentities": {identity_id: {}}}
    answer = azure.send("PATCH", azure.path("aks-a"), {"identity": added})
    told = answer.body["identity"]["userAssignedIdentities"]
    assert told[identity_id]["clientId"] == cloud.world.kubelet_client_id
    removed = {"userAssignedIdentities": {identity_id.upper(): None}}
    answer = azure.send("PATCH", azure.path("aks-a"), {"identity": removed})
    assert answer.body["identity"]["userAssignedIdentities"] == {}
    unknown = {"type": "UserAssigned", "userAssignedIdentities": {f"{identity_id}-x": {}}}
    refused = azure.send("PATCH", azure.path("aks-a"), {"identity": unknown})
    assert refused.code == "FailedIdentityOperation"


def test_a_patch_with_a_stale_etag_is_refused(azure):  # case 116
    first = azure.create()
    etag = {"If-Match": first.etag}
    assert (
        azure.send("PATCH", azure.path("aks-a"), {"tags": {"a": "1"}}, headers=etag).status == 200
    )
    answer = azure.send("PATCH", azure.path("aks-a"), {"tags": {"a": "2"}}, headers=etag)
    assert (answer.status, answer.code) == (412, "PreconditionFailed")


def test_nothing_is_changed_while_a_virtual_machine_is_deleted(azure, cloud):
    cloud.behaviour.terminating_seconds = 10
    azure.create()
    azure.send("DELETE", azure.path("aks-a"))
    answer = azure.send("PATCH", azure.path("aks-a"), {"tags": {}})
    assert (answer.status, answer.code) == (409, "Conflict")


def test_an_extension_is_created_changed_and_deleted(azure):  # case 86
    extensions = azure.compute.virtual_machine_extensions
    machine = azure.create()
    created = extensions.begin_create_or_update(
        azure.group, "aks-a", "computeAksLinuxBilling", BILLING
    ).result()
    assert created.id == f"{machine.id}/extensions/computeAksLinuxBilling"
    assert created.provisioning_state == "Succeeded"
    changed = extensions.begin_update(
        azure.group, "aks-a", "computeAksLinuxBilling", {"tags": {"a": "1"}}
    ).result()
    assert changed.tags == {"a": "1"}
    assert azure.machines.get(azure.group, "aks-a").resources[0].name == "computeAksLinuxBilling"
    with pytest.raises(ResourceNotFoundError):
        extensions.get(azure.group, "aks-a", "other")


def test_protected_settings_are_never_answered(azure, cloud):
    azure.create()
    body = {**BILLING, "properties": {**BILLING["properties"], "protectedSettings": {"x": "y"}}}
    path = f"{azure.path('aks-a')}/extensions/cse-agent-karpenter"
    assert "protectedSettings" not in azure.send("PUT", path, body).body["properties"]
    assert "protectedSettings" not in azure.send("GET", path).body["properties"]


def test_an_extension_needs_a_virtual_machine_that_runs(azure, cloud):
    path = f"{azure.path('aks-a')}/extensions/computeAksLinuxBilling"
    missing = azure.send("PUT", path, BILLING)
    assert (missing.status, missing.code) == (404, "ParentResourceNotFound")
    cloud.behaviour.pending_seconds = 10
    azure.put()
    assert azure.send("PUT", path, BILLING).code == "OperationNotAllowed"
    cloud.time.advance(10)
    assert azure.send("PUT", path, BILLING).status == 201
    assert azure.send("PUT", path, BILLING).status == 200


def test_a_patch_of_an_extension_that_is_not_there_is_not_found(azure):  # case 115
    azure.create()
    path = f"{azure.path('aks-a')}/extensions/computeAksLinuxBilling"
    assert azure.send("PATCH", path, {"tags": {}}).code == "ResourceNotFound"


def test_an_extension_keeps_its_publisher(azure):
    azure.create()
    extensions = azure.compute.virtual_machine_extensions
    extensions.begin_create_or_update(azure.group, "aks-a", "billing", BILLING).result()
    with pytest.raises(HttpResponseError) as caught:
        extensions.begin_update(azure.group, "aks-a", "billing", {"properties": {"publisher": "x"}})
    assert caught.value.error.code == "PropertyChangeNotAllowed"
