"""Tests the sizes, prices, images, cluster and Resource Graph of the simulated Azure."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from karpenter_simulated_azure.graph import GraphResource
from karpenter_simulated_azure.sizes import Sizes, generated_rows, sku_of
from karpenter_simulated_azure.world import AzureWorld

NIC = "Microsoft.Network/networkInterfaces"
VM = "Microsoft.Compute/virtualMachines"
PRICES = "/api/retail/prices"
FILTER = (
    "priceType eq 'Consumption' and currencyCode eq 'USD' and serviceFamily eq 'Compute'"
    " and serviceName eq 'Virtual Machines' and armRegionName eq 'westus2'"
)


# -- sizes -------------------------------------------------------------------------------------------


@pytest.fixture
def sizes():
    return Sizes(AzureWorld())


def test_about_sixty_sizes_stand_for_the_families(sizes):
    assert 55 <= len(sizes.all) <= 80
    assert len({each.family for each in sizes.all}) > 40
    assert sizes.get("standard_d4S_V5").name == "Standard_D4s_v5"
    assert sizes.get("Standard_D4s_v7") is None


def test_the_table_has_the_sizes_that_a_provider_must_tell_apart(sizes):
    def names(holds):
        return {each.name.removeprefix("Standard_") for each in sizes.all if holds(each)}

    assert names(lambda each: not each.zones) >= {"DS3", "ND96isr_H100_v5"}
    assert names(lambda each: each.restricted) == {"D2s_v4"}
    assert names(lambda each: each.restricted_zones == {"2"}) == {"E8s_v5"}
    assert names(lambda each: not each.can("LowPriorityCapable")) >= {"B2s", "M416s_8_v2"}
    assert names(lambda each: each.generations == {"V1"}) >= {"D2_v3", "A2_v2"}
    assert names(lambda each: each.can("TrustedLaunchDisabled")) >= {"NC6s_v3"}
    assert names(lambda each: each.number("vCPUsAvailable") < each.cpus) == {"M8-2ms"}
    assert names(lambda each: each.architecture == "Arm64") >= {"D4pls_v6", "B2pls_v2"}
    assert names(lambda each: each.number("GPUs") == 8) == {"ND96isr_H100_v5", "ND96isr_MI300X_v5"}


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    # case 35
    [
        ("B20ms", 32),
        ("D16plds_v5", 429),
        ("NC24ads_A100_v4", 274),
        ("D64s_v3", 1717),
        ("D2as_v6", 0),
    ],
)
def test_cache_disks_are_those_of_the_real_sizes(sizes, name, gigabytes):
    size = sizes.get(f"Standard_{name}")

    assert size.number("CachedDiskBytes") // 10**9 == gigabytes
    assert size.can("EphemeralOSDiskSupported") is bool(gigabytes)


def test_nvme_disks_are_those_of_the_real_sizes(sizes):
    size = sizes.get("Standard_D128ds_v6")

    assert size.number("NvmeDiskSizeInMiB") * 2**20 // 10**9 == 7559  # case 35
    assert size.capability("SupportedEphemeralOSDiskPlacements") == "NvmeDisk"


def test_sizes_are_generated_up_to_a_number():
    rows = generated_rows(1500)
    world = AzureWorld()

    assert len({each.name for each in rows}) == 1500
    sizes = Sizes(world, [sku_of(each, world) for each in rows])
    assert len(sizes.all) == 1500
    assert len(generated_rows(10)) == 10


def test_restrictions_are_those_of_the_region_together():
    def restriction(kind, places, zones):
        info = {"locations": places, "zones": zones}
        return {"type": kind, "values": places, "restrictionInfo": info}

    world = AzureWorld()
    sku = sku_of(generated_rows(1)[0], world)
    sku["restrictions"] = [
        restriction("Zone", ["WestUS2"], ["1"]),
        restriction("Zone", ["westus2"], ["3"]),
        restriction("Zone", ["eastus"], ["2"]),
        restriction("Location", ["eastus"], []),
    ]

    size = Sizes(world, [sku]).all[0]

    assert (size.restricted_zones, size.restricted) == ({"1", "3"}, False)


def test_a_dump_of_the_command_line_is_read_as_it_is():
    dumped = {
        "apiVersions": None,
        "capabilities": [{"name": "vCPUs", "value": "4"}, {"name": "MemoryGB", "value": "16"}],
        "family": "standardDSv9Family",
        "kind": None,
        "locationInfo": [{"location": "westus2", "zoneDetails": None, "zones": None}],
        "locations": ["westus2"],
        "name": "Standard_D4s_v9",
        "resourceType": "virtualMachines",
        "restrictions": [],
    }
    disk = {"resourceType": "disks", "name": "Premium_LRS", "capabilities": None}

    size = Sizes(AzureWorld(), [dumped, disk]).get("standard_d4s_v9")

    assert (size.cpus, size.zones, size.capability("GPUs")) == (4, frozenset(), "")


def test_the_list_of_sizes_may_have_pages(served):
    served.manager.sizes.page_size = 50
    skus = served.subscription("Microsoft.Compute/skus")

    first = served.send("GET", skus, version="2021-07-01").body

    assert (len(first["value"]), "nextLink" in first) == (50, True)


def test_the_list_of_sizes_can_be_replaced_and_filtered(served):
    skus = served.subscription("Microsoft.Compute/skus")
    here = served.send("GET", skus, version="2021-07-01", **{"$filter": "location eq 'WestUS2'"})
    elsewhere = served.send("GET", skus, version="2021-07-01", **{"$filter": "location eq 'x'"})
    wrong = served.send("GET", skus, version="2021-07-01", **{"$filter": "name eq 'x'"})
    served.manager.sizes.replace([])
    empty = served.send("GET", skus, version="2021-07-01")

    assert len(here.body["value"]) > 55
    assert {each["resourceType"] for each in here.body["value"]} == {"virtualMachines", "disks"}
    assert elsewhere.body == {"value": []}
    assert (wrong.status, wrong.code) == (400, "InvalidParameter")
    assert {each["resourceType"] for each in empty.body["value"]} == {"disks"}


# -- prices ------------------------------------------------------------------------------------------


def price_pages(served):
    target = f"{PRICES}?{urlencode({'api-version': '2023-01-01-preview', '$filter': FILTER})}"
    while target:
        answer = served.raw("GET", target)
        assert answer.status == 200
        yield answer.body["Items"]
        target = (answer.body["NextPageLink"] or "").removeprefix(served.url)


def test_prices_have_pages_of_a_hundred_without_a_token(served):
    pages = list(price_pages(served))

    assert [len(each) for each in pages[:-1]] == [100] * (len(pages) - 1)
    assert len(pages) > 2
    assert served.calls("retailPrices:list") == len(pages)


def test_prices_tell_spot_windows_and_low_priority_apart(served):
    served.manager.prices.set_spot("Standard_D4s_v5", "any", 0.02)
    items = [each for page in price_pages(served) for each in page]
    own = [each for each in items if each["armSkuName"] == "Standard_D4s_v5"]

    told = {(each["productName"].endswith("Windows"), each["meterName"]): each for each in own}
    assert told[False, "D4s v5"]["retailPrice"] == 0.192
    assert told[False, "D4s v5 Spot"]["retailPrice"] == 0.02
    assert told[True, "D4s v5"]["retailPrice"] > 0.192
    assert (False, "D4s v5 Low Priority") in told
    assert {each["type"] for each in items} == {"Consumption"}
    burstable = {each["meterName"] for each in items if each["armSkuName"] == "Standard_B2s"}
    assert burstable == {"B2s"}


def test_a_filter_that_is_not_understood_is_refused(served):
    answer = served.raw("GET", f"{PRICES}?{urlencode({'$filter': 'retailPrice gt 5'})}")

    assert (answer.status, answer.code) == (400, "BadRequest")


def test_prices_move_with_the_cloud(served):
    prices = served.manager.prices
    before = prices.spot("Standard_D4s_v5")
    prices.move(0.5)

    assert prices.spot("Standard_D4s_v5", "1") == prices.spot("Standard_D4s_v5", "2") != before
    assert prices.on_demand("Standard_nothing") == 0


# -- images ------------------------------------------------------------------------------------------


def test_shared_images_are_listed_with_those_of_windows(served):
    served.manager.galleries.page_size = 10
    path = served.subscription("Microsoft.ContainerService/locations/westus2/nodeImageVersions")
    answer = served.send("GET", path, version="2026-08-02-preview")

    assert len(answer.body["value"]) == 10
    assert "nextLink" in answer.body
    served.manager.galleries.page_size = 1000
    rows = served.send("GET", path, version="2026-08-02-preview").body["value"]
    assert {each["os"] for each in rows} == {"AKSUbuntu", "AKSAzureLinux", "AKSWindows"}
    assert {"2004gen2fipscontainerd", "V3gen2arm64fips"} <= {each["sku"] for each in rows}


def test_images_are_selected_by_community_and_by_shared_id(served):
    galleries = served.manager.galleries
    galleries.publish("AKSUbuntu", "2204gen2containerd", "202512.01.0")

    community = galleries.community_id("2204gen2containerd")
    shared = galleries.shared_id("2204gen2containerd", "202511.07.0")

    assert community.endswith("/images/2204gen2containerd/versions/202512.01.0")
    assert (
        galleries.find(community.upper().replace("/VERSIONS/", "/versions/")).version
        == "202512.01.0"
    )
    assert galleries.find(shared).image.generation == "V2"
    assert galleries.find(shared.replace("202511", "202011")) is None
    galleries.withdraw("2204gen2containerd", "202512.01.0")
    assert galleries.find(community) is None


def test_a_gallery_that_does_not_exist_and_a_fips_image_are_not_in_public(served):
    images = "Microsoft.Compute/locations/westus2/communityGalleries/{}/images/{}/versions"
    ubuntu = "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2"
    for gallery, image in (("other", "2204containerd"), (ubuntu, "2004fipscontainerd")):
        answer = served.send("GET", served.subscription(images.format(gallery, image)))
        assert (answer.status, answer.code) == (404, "GalleryImageNotFound")


# -- Resource Graph ----------------------------------------------------------------------------------


def graph(served, query, **options):
    return served.send(
        "POST",
        "/providers/Microsoft.ResourceGraph/resources",
        {"subscriptions": [served.world.subscription_id], "query": query, "options": options},
        version="2021-03-01",
    )


def resources(served, kind, group=""):
    group = (group or served.world.node_group).lower()
    return (
        f'Resources | where type == "{kind.lower()}" | where resourceGroup == "{group}"'
        ' | where tags has_cs "karpenter.sh_nodepool"'
        ' | where not(tags has_cs "karpenter.azure.com_aksmachine_nodeclaim")'
    )


def names(answer):
    return [each["name"] for each in answer.body["data"]]


@pytest.fixture
def nics(served):
    """Three interfaces: one of Karpenter, one of an AKS machine, one of somebody else."""
    made = served.manager.interfaces
    properties = {
        "ipConfigurations": [
            {"name": "a", "properties": {"subnet": {"id": served.world.subnet_id}}}
        ]
    }
    pool = {"karpenter.sh_nodepool": "default"}
    machine = pool | {"karpenter.azure.com_aksmachine_nodeclaim": "x"}
    for name, tags in (("own", pool), ("machine", machine), ("foreign", {"a": "b"})):
        made.create(served.group(f"{NIC}/{name}"), properties, tags=tags)
    return made


def test_the_graph_finds_resources_by_type_group_and_tags(served, nics):
    served.time.advance(2)

    answer = graph(served, resources(served, NIC))

    assert names(answer) == ["own"]
    row = answer.body["data"][0]
    assert row["type"] == "microsoft.network/networkinterfaces"
    assert row["resourceGroup"] == served.world.node_group.lower()
    assert row["tags"] == {"karpenter.sh_nodepool": "default"}
    assert names(graph(served, resources(served, VM))) == []
    assert names(graph(served, resources(served, NIC, group="other"))) == []
    by_value = f"resources | where tags['a'] =~ 'B' | where type =~ '{NIC}'"
    assert names(graph(served, by_value)) == ["foreign"]


def test_the_graph_shows_creations_and_deletions_late(served, nics):
    query = resources(served, NIC)
    assert names(graph(served, query)) == []
    served.time.advance(2)
    assert names(graph(served, query)) == ["own"]

    nics.remove(served.group(f"{NIC}/own"))
    assert names(graph(served, query)) == ["own"]
    served.time.advance(1.5)
    assert names(graph(served, query)) == ["own"]
    served.time.advance(0.5)
    assert names(graph(served, query)) == []


def test_the_graph_has_pages_by_skip_token(served):
    now = served.time()
    rows = [
        GraphResource(
            body={
                "id": served.group(f"{VM}/vm{number}"),
                "name": f"vm{number}",
                "type": VM,
                "tags": {"karpenter.sh_nodepool": "default"},
            },
            created_at=now - timedelta(minutes=1),
        )
        for number in range(5)
    ]
    served.manager.graph.add_source(lambda: rows)
    served.manager.graph.page_size = 2
    try:
        found, token = [], None
        while True:
            options = {"$skipToken": token} if token else {}
            answer = graph(served, resources(served, VM), resultFormat="objectArray", **options)
            assert answer.body["totalRecords"] == 5
            found.append(names(answer))
            token = answer.body.get("$skipToken")
            if not token:
                break
    finally:
        rows.clear()

    assert found == [["vm0", "vm1"], ["vm2", "vm3"], ["vm4"]]


def test_the_graph_omits_unreadable_resources_without_an_error(served, nics):
    served.time.advance(2)
    query = resources(served, NIC)

    with served.manager.application.permissions.take("*/read"):
        answer = graph(served, query)

    assert (answer.status, names(answer)) == (200, [])
    assert names(graph(served, query)) == ["own"]


def test_ids_of_the_graph_may_be_spelled_otherwise(served, nics):
    served.time.advance(2)
    served.manager.graph.spell_id = str.upper

    found = graph(served, resources(served, NIC)).body["data"][0]["id"]

    assert found == served.group(f"{NIC}/own").upper()


@pytest.mark.parametrize(
    "query",
    ["Secrets | where type == 'x'", "Resources | project id", "Resources | where cost > 5"],
)
def test_the_graph_refuses_unsupported_queries(served, query):
    answer = graph(served, query)

    assert (answer.status, answer.code) == (400, "BadRequest")
    assert answer.body["error"]["details"][0]["code"] == "InvalidQuery"
