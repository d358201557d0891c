"""Tests catalogue files, and the messages of their mistakes."""

from __future__ import annotations

import copy
import json
from hashlib import sha256

import pytest

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.errors import BadInputError
from karpenter_provider_kwok.catalogue import extra_labels, load_catalogue, read_catalogue
from karpenter_provider_kwok.catalogue_default import ZONES, default_catalogue_text
from karpenter_provider_kwok.labels import (
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    INSTANCE_MEMORY,
    INSTANCE_SIZE,
)


def offering(price=0.1, capacity_type="on-demand", zone="zone-a", **fields):
    return {
        "Price": price,
        "Available": True,
        "Requirements": [
            {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
            {"key": ZONE, "operator": "In", "values": [zone]},
        ],
        **fields,
    }


def entry(name="c-2x-amd64-linux", **fields):
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "4Gi"},
        "offerings": [offering(), offering(0.04, "spot", "zone-b")],
        **fields,
    }


def load(*entries):
    return load_catalogue(json.dumps(entries), file="types.json")


def labels(it):
    return {key: it.requirements.single_value(key) for key in it.requirements}


def test_an_entry_becomes_an_instance_type():
    (it,) = load(entry())
    assert it.name == "c-2x-amd64-linux"
    assert it.capacity == {"cpu": 2000, "memory": 4 * 2**30, "pods": 110}
    assert it.allocatable() == {"cpu": 1900, "memory": 4 * 2**30 - 10 * 2**20, "pods": 110}
    assert [(o.price.amount, o.capacity_type, o.zone) for o in it.offerings] == [
        (0.1, "on-demand", "zone-a"),
        (0.04, "spot", "zone-b"),
    ]
    assert labels(it) | {ZONE: "", CAPACITY_TYPE: ""} == {
        INSTANCE_TYPE: "c-2x-amd64-linux",
        ARCH: "amd64",
        OS: "linux",
        ZONE: "",
        CAPACITY_TYPE: "",
        REGION: "",
        WINDOWS_BUILD: "",
        INSTANCE_SIZE: "2",
        INSTANCE_FAMILY: "c",
        INSTANCE_CPU: "2",
        INSTANCE_MEMORY: "4Gi",
    }
    assert it.requirements.get(ZONE).values == {"zone-a", "zone-b"}
    assert it.requirements.get(REGION).operator == "DoesNotExist"


@pytest.mark.parametrize(
    ("name", "cpu", "family", "size"),
    [
        ("c-2x-amd64-linux", "2", "c", "2"),
        ("m5.2xlarge", "8", "m5", "2xlarge"),
        ("m5.metal", "96", "m5", "metal"),
        ("n2-standard-8", "8", "n2", "8"),
        ("Standard_D4s_v5", "4", "S", "4"),
        ("t4.nano", "500m", "t4", "nano"),
        ("tiny", "500m", "t", "500m"),
    ],
)
def test_size_and_family_come_from_the_name(name, cpu, family, size):
    """As upstream's kwok provider derives them."""
    (it,) = load(entry(name, resources={"cpu": cpu, "memory": "4Gi"}))
    assert labels(it)[INSTANCE_FAMILY] == family
    assert labels(it)[INSTANCE_SIZE] == size
    assert labels(it)[INSTANCE_CPU] == cpu


@pytest.mark.parametrize(
    ("memory", "label"),
    [
        ("4Gi", "4Gi"),
        ("4096Mi", "4Gi"),
        ("1.5Gi", "1536Mi"),
        ("16G", "16G"),
        ("16000M", "16G"),
        ("1500M", "1500M"),
        ("8000000k", "8G"),
        ("8000001k", "8000001k"),
        ("8000000001", "8000000001"),
        ("2000G", "2T"),
        ("3000T", "3P"),
        ("4000P", "4E"),
    ],
)
def test_the_memory_label_is_the_quantity_in_canonical_form(memory, label):
    (it,) = load(entry(resources={"cpu": "2", "memory": memory}))
    assert labels(it)[INSTANCE_MEMORY] == label


def test_the_file_may_say_how_many_pods_and_how_much_overhead():
    (it,) = load(
        entry(
            resources={"cpu": 2, "memory": "4Gi", "pods": 16, "example.com/gpu": "1"},
            overhead={"cpu": "250m"},
        )
    )
    assert it.allocatable() == {"cpu": 1750, "memory": 4 * 2**30, "pods": 16, "example.com/gpu": 1}


def test_offerings_may_carry_labels_of_their_own():
    """A label that only some types set is said not to exist on the others."""
    rack = {"key": "example.com/rack", "operator": "In", "values": ["r1"]}
    special = offering()
    special["Requirements"].append(rack)
    with_rack, without = load(entry("a", offerings=[special]), entry("b"))
    assert with_rack.requirements.get("example.com/rack").values == {"r1"}
    assert without.requirements.get("example.com/rack").operator == "DoesNotExist"
    assert extra_labels([with_rack, without]) == {"example.com/rack"}


def test_an_offering_of_several_zones_is_available_in_each():
    wide = offering()
    wide["Requirements"][1]["values"] = ["zone-b", "zone-a"]
    (it,) = load(entry(offerings=[wide]))
    assert [o.zone for o in it.offerings] == ["zone-a", "zone-b"]


def test_field_names_are_read_in_any_case():
    """Upstream's reader ignores it, so users' files have both."""
    sold = {name.lower(): value for name, value in offering().items()}
    (it,) = load({name.upper(): value for name, value in entry(offerings=[sold]).items()})
    assert it.offerings[0].price.amount == 0.1


def test_an_offering_that_does_not_say_otherwise_is_available():
    silent = {name: value for name, value in offering().items() if name != "Available"}
    (it,) = load(entry(offerings=[silent]))
    assert [o.available for o in it.offerings] == [True]


def test_unavailable_offerings_are_listed():
    (it,) = load(entry(offerings=[offering(Available=False)]))
    assert [o.available for o in it.offerings] == [False]


def test_windows_types_say_nothing_of_their_build():
    (it,) = load(entry(operatingSystems=["windows"]))
    assert WINDOWS_BUILD not in it.requirements


def changed(path, value):
    """Return an entry with one field replaced, or taken out for None."""
    result = copy.deepcopy(entry())
    *parents, last = path
    place = result
    for step in parents:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


REQUIREMENT = ("offerings", 1, "Requirements", 0)
WHERE = 'instance types file types.json: entry 1 "c-2x-amd64-linux": '


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("architecture",), None, "architecture: must be a text, not null"),
        (("architecture",), "", 'architecture: must be a text, not ""'),
        (("operatingSystems",), [], "operatingSystems: must be a list with at least one item"),
        (("operatingSystems",), [3], "operatingSystems.0: must be a text, not 3"),
        (("resources",), None, "resources: must be an object, not null"),
        (("resources", "cpu"), None, "resources.cpu: must be a quantity above zero, not null"),
        (("resources", "cpu"), "0", 'resources.cpu: must be a quantity above zero, not "0"'),
        (("resources", "memory"), "4Gb", 'resources.memory: must be a quantity, not "4Gb"'),
        (("resources", "memory"), [1], "resources.memory: must be a quantity, not [1]"),
        (("resources", "memory"), True, "resources.memory: must be a quantity, not true"),
        (("resources", "pods"), -1, "resources.pods: must be a quantity of at least zero, not -1"),
        (("overhead",), "1", 'overhead: must be an object, not "1"'),
        (("offerings",), [], "offerings: must be a list with at least one item, not []"),
        (("offerings", 1, "Price"), "free", "offerings.1.Price: must be a number of at least"),
        (("offerings", 1, "Price"), -0.1, "offerings.1.Price: must be a number of at least zero"),
        (("offerings", 1, "Price"), None, "offerings.1.Price: must be a number of at least zero"),
        (("offerings", 1, "Available"), "yes", "offerings.1.Available: must be true or false"),
        *(
            (
                ("offerings", 1, "ReservationCapacity"),
                value,
                f"offerings.1.ReservationCapacity: must be a count, not {text}",
            )
            for value, text in ((-1, "-1"), (1.5, "1.5"), (True, "true"), ("2", '"2"'))
        ),
        (("offerings", 1, "Currency"), 5, "offerings.1.Currency: must be a text, not 5"),
        (("offerings", 1, "Avaliable"), True, "offerings.1: unknown field"),
        (("color",), "red", "unknown field"),
        ((*REQUIREMENT, "key"), None, "offerings.1.Requirements.0.key: must be a text"),
        ((*REQUIREMENT, "key"), "x", "offerings.1.Requirements: must name values of karpenter.sh"),
        ((*REQUIREMENT, "operator"), "Is", 'offerings.1.Requirements.0: requirement on "karpenter'),
        ((*REQUIREMENT, "values"), ["cheap"], "must be one of reserved, spot, on-demand"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_entry_field_and_value(path, value, message):
    with pytest.raises(BadInputError) as error:
        load(entry("first"), changed(path, value))
    assert str(error.value).startswith(WHERE)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", "instance types file types.json is not JSON: "),
        ("[" * 100_000, "instance types file types.json is not JSON: it is nested too deeply"),
        ("9" * 5_000, "instance types file types.json is not JSON: Exceeds the limit"),
        ("{}", "instance types file types.json: must be a list of instance types"),
        ("[]", "instance types file types.json: must be a list of instance types"),
        ("[3]", "instance types file types.json: entry 0: "),
        ('[{"architecture": "amd64"}]', "instance types file types.json: entry 0: name: must be"),
    ],
)
def test_a_file_that_is_no_catalogue_is_refused(text, message):
    with pytest.raises(BadInputError) as error:
        load_catalogue(text, file="types.json")
    assert str(error.value).startswith(message)


def test_two_entries_of_one_name_are_both_named():
    with pytest.raises(BadInputError, match='entry 2: name: "a" is the name of entry 0 already'):
        load(entry("a"), entry("b"), entry("a"))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"none\.json cannot be read: No such file"):
        read_catalogue(tmp_path / "none.json")
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match=r"bad\.json cannot be read: it is not UTF-8"):
        read_catalogue(tmp_path / "bad.json")


# -- the shipped one


@pytest.fixture(scope="module")
def shipped():
    return load_catalogue(default_catalogue_text(), file="(shipped)")


def test_the_shipped_catalogue_is_the_same_each_time():
    assert default_catalogue_text() == default_catalogue_text()


def test_the_shipped_catalogue_offers_a_choice(shipped):
    assert 100 <= len(shipped) <= 200
    families = {it.requirements.single_value(INSTANCE_FAMILY) for it in shipped}
    assert len(families) >= 8
    assert {it.requirements.single_value(ARCH) for it in shipped} == {"amd64", "arm64"}
    for capacity_type in ("spot", "on-demand"):
        for zone in ZONES:
            assert any(
                (o.capacity_type, o.zone, o.available) == (capacity_type, zone, True)
                for it in shipped
                for o in it.offerings
            )
    assert any(not o.available for it in shipped for o in it.offerings)
    assert any(it.capacity.get("nvidia.com/gpu") for it in shipped)


def test_zones_of_the_shipped_catalogue_differ(shipped):
    sold = {
        zone: {it.name for it in shipped if it.requirements.get(ZONE).has(zone)} for zone in ZONES
    }
    assert len({frozenset(names) for names in sold.values()}) == len(ZONES)


def test_prices_of_the_shipped_catalogue_are_uneven(shipped):
    """Equal types cost differently, and so the choice of one matters."""
    per_cpu = {
        it.offerings[0].price.amount / it.capacity["cpu"]
        for it in shipped
        if it.capacity["memory"] == 4 * 2**30 * it.capacity["cpu"] // 1000
    }
    assert max(per_cpu) > 1.3 * min(per_cpu)
    discounts = {
        round(1 - spot.price.amount / on_demand.price.amount, 2)
        for it in shipped
        for on_demand, spot in zip(it.offerings[::2], it.offerings[1::2], strict=True)
    }
    assert min(discounts) < 0.4
    assert max(discounts) > 0.7
    assert len(discounts) > 30


def test_spot_is_always_cheaper_than_on_demand(shipped):
    for it in shipped:
        for on_demand, spot in zip(it.offerings[::2], it.offerings[1::2], strict=True):
            assert (on_demand.capacity_type, spot.capacity_type) == ("on-demand", "spot")
            assert 0 < spot.price.amount < on_demand.price.amount


def test_the_default_catalogue_is_the_one_that_examples_and_benchmarks_are_about():
    """If it has to change, print the new digest; figures of older runs cannot be compared then."""
    text = default_catalogue_text()
    assert sha256(text.encode()).hexdigest()[:16] == "614211d50fc3a40f"
    largest = {entry["name"]: entry for entry in json.loads(text)}["gpu2.16xlarge"]
    assert largest["resources"] == {
        "cpu": "64", "memory": "524288Mi", "ephemeral-storage": "20Gi", "pods": "110",
        "nvidia.com/gpu": "8",
    }  # fmt: skip


def test_an_entry_without_devices_has_none():
    assert load(entry())[0].devices is None


@pytest.mark.parametrize(
    ("templates", "bindings", "place"),
    [
        ([{"driver": "d"}], None, "resourceSliceTemplates"),
        ([{"driver": "d", "pool": "p", "slices": []}], None, "slices"),
        (
            [{"driver": "d", "pool": "p", "devices": [{"name": "a"}, {"name": "b", "size": 1}]}],
            None,
            "resourceSliceTemplates.0.devices.1",
        ),
        (None, [{"attribute": "d/x", "devices": []}], "attributeBindings"),
    ],
    ids=["no pool", "unknown field", "unknown field of a device", "bindings without devices"],
)
def test_a_mistake_in_devices_names_entry_and_field(templates, bindings, place):
    wrong = entry("gpu", resourceSliceTemplates=templates, attributeBindings=bindings)
    with pytest.raises(BadInputError, match=f'entry 0 "gpu": .*{place}'):
        load(wrong)


def test_an_offering_that_says_no_more_is_available_and_reserves_nothing():
    (it,) = load(entry("first"))
    assert {(each.available, each.reservation_capacity) for each in it.offerings} == {(True, 0)}
