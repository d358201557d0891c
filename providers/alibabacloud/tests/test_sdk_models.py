"""Models of the SDKs are loaded one by one, as they are asked for."""

from __future__ import annotations

import sys

import pytest

from karpenter_provider_alibabacloud.sdk_models import load_models, places_of

GENERATED = """from __future__ import annotations
from ._disk import Disk
from ._zone import Zone

__all__ = [Disk, Zone]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package whose models are what a test says; it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source):
        models = tmp_path / "some_cloud_sdk/models"
        models.mkdir(parents=True)
        (tmp_path / "some_cloud_sdk/__init__.py").touch()
        (models / "__init__.py").write_text(source)
        (models / "_disk.py").write_text("class Disk:\n    size = 40\n")
        (models / "_zone.py").write_text("class Zone:\n    pass\n")
        return "some_cloud_sdk"

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded():
    return {
        name.rpartition(".")[2] for name in sys.modules if name.startswith("some_cloud_sdk.models.")
    }


def test_a_model_class_is_loaded_at_its_first_use(package):
    models = load_models(package(GENERATED))
    assert loaded() == set()
    assert models.Disk.size == 40
    assert loaded() == {"_disk"}
    assert {"Disk", "Zone"} <= set(dir(models))
    with pytest.raises(AttributeError, match="no attribute 'Vpc'"):
        _ = models.Vpc


def test_loaded_models_are_registered_as_imported_modules(package):
    name = package(GENERATED)
    models = load_models(name)
    assert load_models(name) is models
    assert sys.modules[f"{name}.models"] is models
    assert sys.modules[name].models is models


def test_models_of_another_form_are_imported_as_usual(package):
    models = load_models(package(f"{GENERATED}import json\n"))
    assert loaded() == {"_disk", "_zone"}
    assert models.json.dumps(1) == "1"


def test_a_package_that_is_not_there_is_an_import_error():
    with pytest.raises(ImportError):
        load_models("no_such_cloud_sdk")


@pytest.mark.parametrize(
    ("source", "places"),
    [
        (GENERATED, {"Disk": "_disk", "Zone": "_zone"}),
        ("from ._disk import Disk\nimport os\n", {}),
        ("from ._disk import Disk as D\n", {}),
        ("x = 1\n", {}),
        ("", {}),
    ],
)
def test_places_of_classes_are_read_from_modules_of_imports_only(source, places):
    assert places_of(source) == places
