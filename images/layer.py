"""Reduces a layer to what the controller needs, and makes it the same in every build."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.json_objects import JsonMapping

__all__ = [
    "CACHE",
    "PACKAGES",
    "USER",
    "make_writable_folders",
    "remove_unneeded_files",
    "remove_unneeded_packages",
    "set_modes_and_times",
    "write_tar",
]

PACKAGES: Final = Path("usr/local/lib/python3.13/dist-packages")
"""The folder of packages that the Python of Debian searches, which no package of Debian fills."""
CACHE: Final = Path("var/cache/karpenter")
USER: Final = 65532

_ROOT: Final = Path(__file__).resolve().parents[1]
_RULES: Final = Path(__file__).with_name("unneeded.toml")
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SCRIPTS: Final = Path("usr/local/bin")
_INSTALLER_FILES: Final = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Files that installers leave beside the metadata of a package; they name paths of the build."""


def remove_unneeded_packages(packages: Path, *, python_version: str, arch: str, ours: str) -> None:
    """Remove the packages that nothing requires, seen from ours, on this Python and machine.

    Those that unneeded.toml names go too.

    Raises:
        ValueError: a package that is required is not there.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    marker = {
        "python_version": python_version,
        "python_full_version": f"{python_version}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": _MACHINES[arch],
        "os_name": "posix",
    }
    found: dict[str, Distribution] = {
        canonicalize_name(each.name): each for each in distributions(path=[str(packages)])
    }
    waiting = [(name, "") for name in found if name.startswith(ours)]
    needed: set[tuple[str, str]] = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in needed:
            continue
        needed.add((name, extra))
        if name not in found:
            raise ValueError(f"requirements.lock: no entry for {name}; run: make lock")
        for text in found[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({**marker, "extra": extra}):
                continue
            target = canonicalize_name(requirement.name)
            waiting += [(target, each) for each in ("", *requirement.extras)]
    unneeded = found.keys() - {name for name, _ in needed}
    for name in sorted(unneeded | (_unneeded_distributions() & found.keys())):
        for file in found[name].files or ():
            Path(str(file.locate())).unlink(missing_ok=True)
    _remove_empty_folders(packages)


def remove_unneeded_files(packages: Path) -> None:
    """Remove files by the rules of unneeded.toml, and from the lists of the packages' files.

    Raises:
        ValueError: a rule finds nothing where its package is installed, so it is out of date.
    """
    for rule in tomllib.loads(_RULES.read_text())["rules"]:
        is_installed = "package" not in rule or (packages / rule["package"]).exists()
        if is_installed and not ("unless" in rule and (packages / rule["unless"]).exists()):
            _apply(rule, packages)
    for name in _INSTALLER_FILES:
        for path in packages.glob(f"*.dist-info/{name}"):
            path.unlink()
    _remove_empty_folders(packages)
    for record in packages.glob("*.dist-info/RECORD"):
        _rewrite_record(record, packages)


def make_writable_folders(output: Path) -> None:
    """Make the folder of the cache, where a container may write if nothing is mounted there."""
    folder = output / CACHE
    folder.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)


def set_modes_and_times(output: Path, epoch: int) -> None:
    """Set one time and plain modes: folders and programs 755, files 644, the cache 700."""
    for path in sorted(output.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(_mode(path.relative_to(output), is_folder=path.is_dir()))
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def write_tar(output: Path, tar: Path, epoch: int) -> str:
    """Write the layer as a tar file that is the same for the same files; return its SHA-256."""
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in _sorted_paths(output):
            name = path.relative_to(output)
            entry = archive.gettarinfo(path, arcname=str(name))
            entry.uid = entry.gid = USER if name == CACHE else 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            if entry.isreg():
                # Two names of one file are two files in the image.
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    with tar.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sorted_paths(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts))


def _mode(name: Path, *, is_folder: bool) -> int:
    if name == CACHE:
        return 0o700
    return 0o755 if is_folder or name.parent == _SCRIPTS else 0o644


def _remove_empty_folders(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()


def _unneeded_distributions() -> set[str]:
    entries = tomllib.loads(_RULES.read_text())["distributions"]
    return {name for entry in entries for name in entry["names"]}


def _apply(rule: JsonMapping, packages: Path) -> None:
    kept = {path for pattern in rule.get("keep", ()) for path in packages.glob(pattern)}
    removed = {path for pattern in rule["remove"] for path in packages.glob(pattern)} - kept
    if actions := rule.get("keep_actions"):
        removed -= _models_of(removed, actions["policy"], actions["service"])
    if "package" in rule and not removed:
        raise ValueError(f"{_RULES.name}: nothing to remove by {rule['remove']}")
    for path in removed:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name, pattern in rule.get("drop_lines", {}).items():
        _drop_lines(packages / name, pattern)
    for name, (old, new) in rule.get("replace", {}).items():
        _replace(packages / name, old, new)


def _models_of(models: set[Path], policy: str, service: str) -> set[Path]:
    """Return the models of requests and answers of the actions that a policy allows of a service.

    Raises:
        ValueError: there is no model of the request of an action, so models have other names.
    """
    statements = json.loads((_ROOT / policy).read_text())["Statement"]
    allowed = [action for each in statements for action in each["Action"]]
    kept = set[Path]()
    for action in allowed:
        owner, _, name = action.lower().partition(":")
        if owner != service:
            continue
        pattern = re.compile(rf"{name}(shrink)?(request|response)|{name}(headers)")
        found = {path for path in models if pattern.match(path.stem.replace("_", ""))}
        if not found:
            raise ValueError(f"{_RULES.name}: no model of {action}")
        kept |= found
    return kept | _referred(kept, models)


def _referred(kept: set[Path], models: set[Path]) -> set[Path]:
    """Return the other models that models name, and those that these name."""
    by_name = {path.stem.replace("_", ""): path for path in models if path.suffix == ".py"}
    found, waiting = set[Path](), list(kept)
    while waiting:
        names = re.findall(r"main_models\.(\w+)", waiting.pop().read_text())
        new = {by_name[name.lower()] for name in names if name.lower() in by_name} - found - kept
        found |= new
        waiting += new
    return found


def _drop_lines(path: Path, pattern: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not re.match(pattern, line)]
    if kept == lines:
        raise ValueError(f"{_RULES.name}: {path.name} has no line like {pattern}")
    path.write_text("".join(kept))


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        raise ValueError(f"{_RULES.name}: {path.name} does not have {old} once")
    path.write_text(text.replace(old, new))


def _rewrite_record(record: Path, packages: Path) -> None:
    rows = list(csv.reader(io.StringIO(record.read_text())))
    kept = sorted(row for row in rows if (packages / row[0]).exists())
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(kept)
    record.write_text(text.getvalue())
