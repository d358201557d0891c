"""Packages are chosen from the lock, reduced by rules, and written the same way each time."""

from __future__ import annotations

import csv
import os

import pytest

from images import layer
from images.layer import (
    CACHE,
    PACKAGES,
    make_writable_folders,
    remove_unneeded_files,
    remove_unneeded_packages,
    set_modes_and_times,
    write_tar,
)
from images.locked import locked_requirements, requirement_names

LOCK = """\
# comment
boto==1.0 \\
    --hash=sha256:aa
    # via
    #   karpenter-core (pyproject.toml:dev)
core-lib==3.0 ; python_full_version >= '3.12' \\
    --hash=sha256:bb
    # via boto
core-lib==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
    # via boto
deep==4.0 \\
    --hash=sha256:dd
    # via core-lib
pytest==9.0 \\
    --hash=sha256:ee
    # via karpenter-core (pyproject.toml:dev)
"""


def test_a_package_adds_its_dependencies_with_hashes_and_markers():
    chosen = locked_requirements(LOCK, ["boto"])

    assert [line.split()[0] for line in chosen.splitlines() if line[0] not in " #"] == [
        "boto==1.0",
        "core-lib==3.0",
        "core-lib==2.0",
        "deep==4.0",
    ]
    assert chosen.count("--hash") == 4
    assert "python_full_version < '3.12'" in chosen


def test_a_package_that_is_not_locked_is_refused():
    with pytest.raises(ValueError, match=r"no entry for left-pad; run: make lock"):
        locked_requirements(LOCK, ["left-pad"])


def test_requirements_of_a_project_are_those_of_others(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\ndependencies = ["Boto3>=1", "karpenter-core~=0.1", "zope.a[x]>1"]\n'
    )

    assert requirement_names(project) == {"boto3", "zope-a"}


def install(packages, name, *, requires=(), files=()):
    info = packages / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines])
    )
    rows = [f"{info.name}/METADATA", f"{info.name}/RECORD", *files]
    for file in files:
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / file).write_text("")
    (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))


def names(packages):
    return {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}


def test_packages_that_nothing_requires_here_are_removed(tmp_path):
    requires = ["a[fast]", 'b; sys_platform == "win32"', 'c; extra == "demo"']
    install(tmp_path, "karpenter-x", requires=requires)
    install(tmp_path, "a", requires=['d; extra == "fast"', 'e; extra == "slow"'])
    for name in "bcde":
        install(tmp_path, name, files=[f"{name}/__init__.py"])

    remove_unneeded_packages(tmp_path, python_version="3.13", arch="amd64", ours="karpenter-")

    assert names(tmp_path) == {"karpenter_x", "a", "d"}
    assert {path.name for path in tmp_path.iterdir() if "-" not in path.name} == {"d"}


def test_a_requirement_that_is_not_installed_is_refused(tmp_path):
    install(tmp_path, "karpenter-x", requires=["missing>=1"])

    with pytest.raises(ValueError, match="no entry for missing"):
        remove_unneeded_packages(tmp_path, python_version="3.13", arch="amd64", ours="karpenter-")


@pytest.fixture
def rules(tmp_path, monkeypatch):
    def write(text):
        file = tmp_path / "rules.toml"
        file.write_text(f"distributions = []\n{text}")
        monkeypatch.setattr(layer, "_RULES", file)

    return write


def test_files_are_removed_but_those_kept_and_the_record_follows(tmp_path, rules):
    rules('[[rules]]\npackage = "p"\nremove = ["p/data/*"]\nkeep = ["p/data/used*"]\n')
    packages = tmp_path / "packages"
    install(packages, "p", files=["p/__init__.py", "p/data/used.json", "p/data/other.json"])

    remove_unneeded_files(packages)

    assert sorted(path.name for path in (packages / "p" / "data").iterdir()) == ["used.json"]
    with (packages / "p-1.0.dist-info" / "RECORD").open() as record:
        assert "p/data/other.json" not in {row[0] for row in csv.reader(record)}


def test_a_rule_that_finds_nothing_is_out_of_date(tmp_path, rules):
    rules('[[rules]]\npackage = "p"\nremove = ["p/renamed"]\n')
    packages = tmp_path / "packages"
    install(packages, "p", files=["p/__init__.py"])

    with pytest.raises(ValueError, match="nothing to remove by"):
        remove_unneeded_files(packages)


def test_a_rule_of_a_package_that_is_not_in_the_image_is_passed_over(tmp_path, rules):
    rules('[[rules]]\npackage = "q"\nremove = ["q/renamed"]\n')
    packages = tmp_path / "packages"
    install(packages, "p", files=["p/__init__.py"])

    remove_unneeded_files(packages)

    assert (packages / "p/__init__.py").exists()


@pytest.mark.parametrize("other", ["q", "r"])
def test_a_rule_for_images_without_a_package_spares_those_with_it(tmp_path, rules, other):
    rules('[[rules]]\npackage = "p"\nunless = "q"\nremove = ["p/sim"]\n')
    packages = tmp_path / "packages"
    install(packages, "p", files=["p/__init__.py", "p/sim/__init__.py"])
    install(packages, other, files=[f"{other}/__init__.py"])

    remove_unneeded_files(packages)

    assert (packages / "p/sim").exists() == (other == "q")


def test_a_layer_is_the_same_whenever_and_however_its_files_were_written(tmp_path):
    digests = set()
    for number, order in enumerate((("b", "a"), ("a", "b"))):
        output = tmp_path / str(number)
        for name in order:
            (output / PACKAGES / name).mkdir(parents=True)
            (output / PACKAGES / name / "file").write_text(name)
            (output / PACKAGES / name / "file").chmod(0o600 if number else 0o666)
            os.utime(output / PACKAGES / name / "file", (number, number))
        make_writable_folders(output)
        set_modes_and_times(output, 7)
        digests.add(write_tar(output, tmp_path / f"{number}.tar", 7))

    assert len(digests) == 1
    assert (output / CACHE).stat().st_mode & 0o777 == 0o700
    (output / PACKAGES / "a" / "file").write_text("other")
    assert write_tar(output, tmp_path / "other.tar", 7) not in digests
