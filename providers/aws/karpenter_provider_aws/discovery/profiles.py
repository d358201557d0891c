"""Instance profiles: made for a NodeClass's role, and removed when nobody uses them any more.

Every change of the role makes a profile with a new name: nodes that run keep theirs, and EC2 may go
on handing out an old role for a profile that was changed. A profile is found as ours by its IAM path
alone, `/karpenter/<region>/<cluster>/<UID of the NodeClass>/`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import REGION
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.orphans import OrphanWatch
from karpenter_provider_aws.codes import is_already_there, is_not_found
from karpenter_provider_aws.discovery.calls import calling, failure_behind
from karpenter_provider_aws.discovery.ttl import TtlCache
from karpenter_provider_aws.labels import (
    CLUSTER_TAG_PREFIX,
    EKS_CLUSTER_NAME_TAG,
    NODE_CLASS_TAG,
    OWNED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from types_boto3_iam.type_defs import InstanceProfileTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.sdk import Clients

__all__ = [
    "Profile",
    "Profiles",
    "legacy_profile_name",
    "profile_name",
    "profile_path",
    "profile_tags",
    "role_name",
    "unused_profiles",
]

READ_TTL: Final = timedelta(minutes=15)
PROTECTED_TTL: Final = timedelta(hours=1)
"""How long a profile is kept that a claim may have which nobody has seen yet."""
RECREATION_TTL: Final = timedelta(minutes=1)
"""How long a profile is remembered whose name could not be written into the status."""
MISSING_ROLE_TTL: Final = timedelta(minutes=1)

_VALID_NAME: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An instance profile; it has one role, or none."""

    name: str
    path: str
    role: str = ""


def profile_name(*, cluster: str, region: str, node_class: str, unique: str) -> str:
    """Return the name of a new profile; `unique` makes it another one each time."""
    return f"{cluster}_{_digest(region + node_class + unique)}"


def legacy_profile_name(*, cluster: str, region: str, node_class: str) -> str:
    """Return the name that Karpenter once gave the one profile of a NodeClass.

    Empty when IAM would not take it: then there never was one.
    """
    name = f"{cluster}_{_digest(region + node_class)}"
    return name if _VALID_NAME.fullmatch(name) else ""


def profile_path(*, cluster: str, region: str, uid: str = "") -> str:
    """Return the IAM path of a NodeClass's profiles, or what those of all NodeClasses begin with."""
    return "/".join(("", "karpenter", region, cluster, *([uid] if uid else []), ""))


def profile_tags(
    tags: Mapping[str, str], *, cluster: str, region: str, node_class: str
) -> dict[str, str]:
    """Return the tags of a profile: the user's, and those by which it is known as ours."""
    return {
        **tags,
        f"{CLUSTER_TAG_PREFIX}{cluster}": OWNED,
        EKS_CLUSTER_NAME_TAG: cluster,
        NODE_CLASS_TAG: node_class,
        REGION: region,
    }


def role_name(role: str) -> str:
    """Return a role without its IAM path, which a profile does not name."""
    return role.rpartition("/")[2]


def unused_profiles(
    profiles: Collection[Profile], *, prefix: str, keep: Collection[str]
) -> tuple[str, ...]:
    """Return the names of the profiles below a path that are not to be kept, sorted.

    A profile outside of the path is never among them, whoever listed it.
    """
    return tuple(
        sorted(p.name for p in profiles if p.path.startswith(prefix) and p.name not in keep)
    )


def _digest(text: str) -> int:
    """Return the 64-bit FNV-1 hash, which is in the names of profiles that exist."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest * 0x100000001B3) % 2**64 ^ byte
    return digest


@final
class Profiles:
    """Makes, reads and removes profiles of one cluster; callable from any thread."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        *,
        cluster: str,
        new_id: Callable[[], str],
        isolated: bool = False,
    ) -> None:
        """`isolated`: IAM is out of reach, so nothing is removed."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._new_id: Final = new_id
        self._isolated: Final = isolated
        self._read: Final[TtlCache[str, Profile]] = TtlCache(clock, READ_TTL)
        self._protected: Final[TtlCache[str, str]] = TtlCache(clock, PROTECTED_TTL)
        self._made: Final[TtlCache[tuple[str, str], str]] = TtlCache(clock, RECREATION_TTL)
        self._missing_roles: Final[TtlCache[str, CloudProviderError]]
        self._missing_roles = TtlCache(clock, MISSING_ROLE_TTL)
        self._orphans: Final = OrphanWatch()

    def ensure(self, node_class: EC2NodeClass) -> str:
        """Return the profile that instances of a NodeClass get; make one if its role has none yet.

        Raises:
            CloudProviderError: IAM refused or did not answer (`discovery.calls`).
        """
        before = node_class.status.instance_profile
        if not node_class.spec.role:
            self.protect(before)
            return node_class.spec.instance_profile
        role = role_name(node_class.spec.role)
        made = self._made.get((role, node_class.uid))
        current = made or before
        known = self.read(current) if current else None
        if known is None or known.role != role:
            current = self._create(node_class, role)
            self._made.put((role, node_class.uid), current)
            self.protect(current)
        if current != before:
            self.protect(before)
        return current

    def read(self, name: str) -> Profile | None:
        """Return a profile, None when there is none.

        Raises:
            CloudProviderError: IAM refused or did not answer (`discovery.calls`).
        """
        profile = self._read.get(name)
        if profile is None:
            profile = self._fetch(name)
            if profile is not None:
                self._read.put(name, profile)
        return profile

    def protect(self, name: str) -> None:
        """Keep a profile for an hour, used or not."""
        if name:
            self._protected.put(name, name)

    def is_protected(self, name: str) -> bool:
        """Whether a profile is kept though nobody may seem to use it."""
        return self._protected.get(name) is not None

    def remove_all(self, node_class: EC2NodeClass) -> None:
        """Remove every profile that was made for a NodeClass.

        Raises:
            CloudProviderError: IAM refused or did not answer; something may be left.
        """
        if self._isolated:
            return
        region = self._clients.region
        prefix = profile_path(cluster=self._cluster, region=region, uid=node_class.uid)
        names = unused_profiles(self._list(prefix), prefix=prefix, keep=())
        legacy = legacy_profile_name(
            cluster=self._cluster, region=region, node_class=node_class.name
        )
        for name in (*names, *([legacy] if legacy else [])):
            self.remove(name)

    def collect(self, used: Collection[str], *, complete: bool) -> tuple[str, ...]:
        """Remove the cluster's profiles that nobody has used for a while; return their names.

        `used` are those in the status of any NodeClass, in an annotation of any claim, and those of
        instances; `complete` is False when any of that could not be read, and nothing is removed.

        Raises:
            CloudProviderError: IAM refused or did not answer.
        """
        if self._isolated:
            return ()
        prefix = profile_path(cluster=self._cluster, region=self._clients.region)
        profiles = [p for p in self._list(prefix) if p.path.startswith(prefix)]
        keep = {*used, *(p.name for p in profiles if self.is_protected(p.name))}
        removable = self._orphans.look(
            [profile.name for profile in profiles],
            keep,
            complete=complete,
            now=self._clock.now(),
        )
        names = unused_profiles(
            [profile for profile in profiles if profile.name in removable],
            prefix=prefix,
            keep=keep,
        )
        for name in names:
            self.remove(name)
        return names

    def remove(self, name: str) -> None:
        """Take the role out of a profile and delete it; one that is not there is fine.

        Raises:
            CloudProviderError: IAM refused or did not answer.
        """
        profile = self._fetch(name)
        if profile is not None:
            self._detach(profile)
            with _absence_is_fine(), calling("iam:DeleteInstanceProfile"):
                self._clients.iam.delete_instance_profile(InstanceProfileName=name)
        self._read.drop(name)
        self._protected.drop(name)

    def _create(self, node_class: EC2NodeClass, role: str) -> str:
        missing = self._missing_roles.get(role)
        if missing is not None:
            raise CloudProviderError(str(missing)) from missing.__cause__
        region = self._clients.region
        name = profile_name(
            cluster=self._cluster, region=region, node_class=node_class.name, unique=self._new_id()
        )
        path = profile_path(cluster=self._cluster, region=region, uid=node_class.uid)
        tags = profile_tags(
            node_class.spec.tags, cluster=self._cluster, region=region, node_class=node_class.name
        )
        try:
            self._attach(self._make(name, path=path, tags=tags), role)
        except CloudProviderError:
            # Half of one would be found and removed in half an hour; until then it is in the way
            # of nobody, unless each attempt leaves another.
            with suppress(CloudProviderError):
                self.remove(name)
            raise
        self._read.put(name, Profile(name=name, path=path, role=role))
        return name

    def _make(self, name: str, *, path: str, tags: Mapping[str, str]) -> Profile:
        """Make a profile; the SDK may have done so already, in an attempt whose reply was lost."""
        try:
            with calling("iam:CreateInstanceProfile"):
                self._clients.iam.create_instance_profile(
                    InstanceProfileName=name,
                    Path=path,
                    Tags=[{"Key": key, "Value": value} for key, value in sorted(tags.items())],
                )
        except CloudProviderError as error:
            failure = failure_behind(error)
            there = self._fetch(name) if failure and is_already_there(failure.code) else None
            if there is None:
                raise
            return there
        return Profile(name=name, path=path)

    def _attach(self, profile: Profile, role: str) -> None:
        """Give a profile its role, the only one that it can have."""
        if profile.role == role:
            return
        self._detach(profile)
        try:
            with calling("iam:AddRoleToInstanceProfile"):
                self._clients.iam.add_role_to_instance_profile(
                    InstanceProfileName=profile.name, RoleName=role
                )
        except CloudProviderError as error:
            failure = failure_behind(error)
            # Profile and role have one code; only the text tells which of them is missing.
            if failure and is_not_found(failure.code) and "role" in failure.message.lower():
                self._missing_roles.put(role, error)
            raise

    def _detach(self, profile: Profile) -> None:
        if profile.role:
            with _absence_is_fine(), calling("iam:RemoveRoleFromInstanceProfile"):
                self._clients.iam.remove_role_from_instance_profile(
                    InstanceProfileName=profile.name, RoleName=profile.role
                )

    def _fetch(self, name: str) -> Profile | None:
        with _absence_is_fine(), calling("iam:GetInstanceProfile"):
            answer = self._clients.iam.get_instance_profile(InstanceProfileName=name)
            return _profile(answer["InstanceProfile"])
        return None

    def _list(self, prefix: str) -> list[Profile]:
        with calling("iam:ListInstanceProfiles"):
            pages = self._clients.iam.get_paginator("list_instance_profiles").paginate(
                PathPrefix=prefix
            )
            return [_profile(item) for page in pages for item in page["InstanceProfiles"]]


@contextmanager
def _absence_is_fine() -> Generator[None]:
    """Let pass that what was asked for is not there."""
    try:
        yield
    except CloudProviderError as error:
        failure = failure_behind(error)
        if failure is None or not is_not_found(failure.code):
            raise


def _profile(item: InstanceProfileTypeDef) -> Profile:
    roles = [role["RoleName"] for role in item["Roles"]]
    return Profile(
        name=item["InstanceProfileName"], path=item["Path"], role=roles[0] if roles else ""
    )
