"""The benchmark of offline plans writes files that hold what it says."""

import json

import pytest

from benchmarks.catalogues import real
from benchmarks.offline_plan import catalogue_entries, write_inputs
from karpenter_core.cli.manifests import read_files
from karpenter_provider_kwok.catalogue import load_catalogue


def test_the_written_types_are_those_of_the_catalogue():
    types = real()[:40]
    read = load_catalogue(json.dumps(catalogue_entries(types)), file="types.json")
    for written, it in zip(read, types, strict=True):
        assert written.name == it.name
        assert {(o.zone, o.capacity_type): o.price for o in written.offerings} == {
            (o.zone, o.capacity_type): o.price for o in it.offerings
        }


def test_equal_requirements_of_a_file_are_one_object():
    entries = catalogue_entries(real()[:2])
    first, second = load_catalogue(json.dumps(entries), file="types.json")
    by_place = {(o.zone, o.capacity_type): o.requirements for o in first.offerings}
    shared = [o for o in second.offerings if (o.zone, o.capacity_type) in by_place]
    assert shared
    assert all(by_place[o.zone, o.capacity_type] is o.requirements for o in shared)


@pytest.mark.parametrize("as_yaml", [False, True])
def test_pods_are_written_in_both_forms(tmp_path, as_yaml):
    objects, _ = write_inputs(tmp_path, pods=7, types=1, as_yaml=as_yaml)
    kinds = [entry.kind for entry in read_files([objects]).entries]
    assert kinds == ["NodePool", *["Pod"] * 7]
