"""Lays out the file system of the base image from the same Debian packages, without an engine.

The base, gcr.io/distroless/python3-debian13, is these packages of Debian 13 unpacked, some files about
users, and nothing else: no shell, no package manager, and no script of a package has run. What is
here and not there: the newest versions of the packages, where a digest of the image pins them. Needs
apt on Debian, with Debian's keys; its mirror is the one that this machine uses.

    python -m images.debian_base --arch amd64     makes it if it is missing, and prints its folder
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["BASE_PACKAGES", "find_base", "find_python"]

CACHE: Final = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache",
) / "karpenter-core" / "images"  # fmt: skip
RELEASE: Final = "trixie"
LAYOUT: Final = 1
"""Counted up when the same packages are laid out differently."""
BASE_PACKAGES: Final = (
    "base-files", "ca-certificates", "gcc-14-base", "libbz2-1.0", "libc6", "libcom-err2", "libcrypt1",
    "libdb5.3t64", "libexpat1", "libffi8", "libgcc-s1", "libgomp1", "libgssapi-krb5-2", "libk5crypto3",
    "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblzma5", "libncursesw6", "libnsl2",
    "libpython3.13-minimal", "libpython3.13-stdlib", "libreadline8t64", "libsqlite3-0", "libssl3t64",
    "libstdc++6", "libtinfo6", "libtirpc3t64", "libuuid1", "libzstd1", "media-types", "netbase",
    "python3.13-minimal", "python3.13-venv", "tzdata", "zlib1g",
)  # fmt: skip
"""The packages of the base image, as its definition lists them."""

_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_LOADERS: Final = {"amd64": "lib64/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}
_LIBRARIES: Final = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_USERS: Final = """\
root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
"""
_GROUPS: Final = "root:x:0:\nnobody:x:65534:\ntty:x:5:\nstaff:x:50:\nnonroot:x:65532:\n"


class BaseError(Exception):
    """The base cannot be laid out here."""


def find_base(arch: str) -> Path:
    """Return the folder of the base's file system; it is made once and kept.

    Raises:
        BaseError: this is no Debian with apt, or has no keys of Debian 13.
        subprocess.CalledProcessError: a package cannot be fetched or unpacked.
    """
    folder = CACHE / f"{RELEASE}-{arch}-{LAYOUT}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="base-") as name:
        root = Path(name) / "root"
        root.mkdir(mode=0o755)
        for package in sorted(_download(arch, Path(name))):
            _run("dpkg-deb", "--extract", str(package), str(root))
        _finish(root)
        root.rename(folder)
    return folder


def find_python() -> Path:
    """Return a program that runs the base's Python on this machine, outside of the base."""
    arch = _MACHINES[platform.machine()]
    base = find_base(arch)
    program = CACHE / f"{RELEASE}-{arch}-{LAYOUT}-python3.13"
    libraries = f"{base}/usr/lib/{_LIBRARIES[arch]}"
    program.write_text(
        "#!/bin/sh\n"
        f'PYTHONHOME="{base}/usr" exec "{base}/usr/{_LOADERS[arch]}" --library-path "{libraries}" '
        f'"{base}/usr/bin/python3.13" "$@"\n'
    )
    program.chmod(0o755)
    return program


def _download(arch: str, folder: Path) -> list[Path]:
    """Fetch the packages with lists and settings of their own; apt checks their signatures."""
    if shutil.which("apt-get") is None or not Path(_KEYS).exists():
        raise BaseError(f"the base image is laid out by apt-get of Debian, with {_KEYS}")
    state, packages = folder / "state", folder / "packages"
    for each in (state / "lists" / "partial", packages / "partial"):
        each.mkdir(parents=True)
    (state / "status").touch()
    sources = folder / "sources.list"
    sources.write_text("".join(f"deb [signed-by={_KEYS}] {each} main\n" for each in _suites()))
    settings = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::Cache": str(packages),
        "Dir::Etc::SourceList": str(sources),
        "Dir::Etc::SourceParts": os.devnull,
        "Dir::State": str(state),
        "Dir::State::status": str(state / "status"),
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    _run("apt-get", *options, "--quiet=2", "update")
    _run("apt-get", *options, "--quiet=2", "download", *BASE_PACKAGES, cwd=packages)
    found = list(packages.glob("*.deb"))
    if len(found) != len(BASE_PACKAGES):
        raise BaseError(f"apt fetched {len(found)} of {len(BASE_PACKAGES)} packages")
    return found


def _suites() -> list[str]:
    """Return address and suite of each Debian archive of this machine, for the base's release."""
    wanted = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    lines = _run("apt-get", "indextargets", "--format", wanted, "Created-By: Packages").split("\n")
    here = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    found = set[str]()
    for line in filter(None, lines):
        origin, address, suite, component = line.split("|")
        if origin == "Debian" and component == "main" and suite.startswith(here):
            found.add(f"{address} {RELEASE}{suite.removeprefix(here)}")
    if not found:
        raise BaseError("apt of this machine uses no archive of Debian; run: apt-get update")
    return sorted(found)


def _finish(root: Path) -> None:
    """Add what the base image has beside packages: users, certificates in one file, names of Python."""
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(each.read_text() for each in certificates))
    for name in ("python", "python3"):
        (root / "usr/bin" / name).symlink_to("python3.13")
    for unneeded in ("usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale"):
        shutil.rmtree(root / unneeded, ignore_errors=True)
    (root / "home/nonroot").mkdir(parents=True, mode=0o700)
    if os.geteuid() == 0:
        os.chown(root / "home/nonroot", 65532, 65532)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True)
    return done.stdout


def main() -> int:
    """Make the base, and print where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", choices=_LOADERS, default=_MACHINES.get(platform.machine()))
    try:
        print(find_base(parser.parse_args().arch))
    except (BaseError, subprocess.CalledProcessError) as error:
        print(f"images.debian_base: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
