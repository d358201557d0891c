"""Creates instance profiles for NodeClasses, and deletes unused ones.

Every change of the role creates a profile with a new name: running nodes keep theirs, and EC2 may
go on handing out an old role for a profile that was changed. The IAM path alone,
`/karpenter/<region>/<cluster>/<UID of the NodeClass>/`, marks a profile as the provider's own.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.orphans import OrphanTracker
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.codes import is_already_there, is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.discovery.profile_names import (
    InstanceProfile,
    legacy_profile_name,
    profile_name,
    profile_path,
    profile_tags,
    profiles_below,
    role_name,
)
from karpenter_provider_aws.labels import CLUSTER_TAG_PREFIX
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from types_boto3_iam.type_defs import InstanceProfileTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["InstanceProfiles"]

PAGE_SIZE: Final = 1000
READ_TTL: Final = timedelta(minutes=15)
PROTECTED_TTL: Final = timedelta(hours=1)
"""Time for which a profile is kept that an unseen claim may use."""
RECREATION_TTL: Final = timedelta(minutes=1)
"""Life of a record of a profile whose name could not be written into the status."""
MISSING_ROLE_TTL: Final = timedelta(minutes=1)


@final
class InstanceProfiles:
    """Makes, reads and removes profiles of one cluster; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        cluster: str,
        new_id: Callable[[], str],
        fence: LeaderFence,
        isolated: bool,
    ) -> None:
        """`fence` is asked before a profile is made. `isolated`: IAM is out of reach, so nothing is removed."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._new_id: Final = new_id
        self._fence: Final = fence
        self._isolated: Final = isolated
        self._read: Final[TtlCache[str, InstanceProfile]] = TtlCache(clock, READ_TTL)
        self._protected: Final[TtlCache[str, str]] = TtlCache(clock, PROTECTED_TTL)
        self._recent_profiles: Final[TtlCache[tuple[str, str], str]] = TtlCache(
            clock, RECREATION_TTL
        )
        self._missing_roles: Final[TtlCache[str, CloudProviderError]]
        self._missing_roles = TtlCache(clock, MISSING_ROLE_TTL)
        self._orphans: Final = OrphanTracker()

    def ensure(self, node_class: EC2NodeClass) -> str:
        """Return the profile that instances of a NodeClass get; make one if its role has none yet.

        Raises:
            CloudProviderError: IAM refused or did not answer (`discovery.call_errors`).
        """
        before = node_class.status.instance_profile
        if not node_class.spec.role:
            self.protect(before)
            return node_class.spec.instance_profile
        role = role_name(node_class.spec.role)
        made = self._recent_profiles.get((role, node_class.uid))
        current = made or before
        current_profile = self.read(current) if current else None
        if current_profile is None or current_profile.role != role:
            current = self._create(node_class, role)
            self._recent_profiles.put((role, node_class.uid), current)
            self.protect(current)
        if current != before:
            self.protect(before)
        return current

    def read(self, name: str) -> InstanceProfile | None:
        """Return a profile, None when there is none.

        Raises:
            CloudProviderError: IAM refused or did not answer (`discovery.call_errors`).
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
        """Whether a profile is kept though it may seem unused."""
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
        names = sorted(profile.name for profile in self._list(prefix))
        legacy = legacy_profile_name(
            cluster=self._cluster, region=region, node_class=node_class.name
        )
        for name in (*names, *([legacy] if legacy else [])):
            self.remove(name)

    def collect(self, used: Collection[str], *, complete: bool) -> tuple[str, ...]:
        """Remove the cluster's profiles that were unused for a while; return their names.

        `used` are those of all NodeClasses (`NodeClassResolver.profiles_in_use`); `complete` is
        False when some may be missing, and nothing is removed. Those of the cluster's instances
        are asked of EC2: an instance without its profile has no credentials.

        Raises:
            CloudProviderError: IAM or EC2 refused or did not answer; nothing more is removed.
        """
        if self._isolated:
            return ()
        prefix = profile_path(cluster=self._cluster, region=self._clients.region)
        names = [profile.name for profile in self._list(prefix)]
        keep = {*used, *(name for name in names if self.is_protected(name))}
        keep |= self._used_by_instances()
        removable = self._orphans.deletable(names, keep, complete=complete, now=self._clock.now())
        self._orphans.delete_each(removable, self.remove)
        return removable

    def remove(self, name: str) -> None:
        """Take the role out of a profile and delete it; one that is not there is fine.

        Raises:
            CloudProviderError: IAM refused or did not answer.
        """
        profile = self._fetch(name)
        if profile is not None:
            self._detach(profile)
            with _ignore_not_found(), core_errors_of("iam:DeleteInstanceProfile"):
                self._clients.iam.delete_instance_profile(InstanceProfileName=name)
        self._read.drop(name)
        self._protected.drop(name)

    def _create(self, node_class: EC2NodeClass, role: str) -> str:
        missing = self._missing_roles.get(role)
        if missing is not None:
            raise CloudProviderError(str(missing)) from missing.__cause__
        self._fence.check()
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
        self._read.put(name, InstanceProfile(name=name, path=path, role=role))
        return name

    def _make(self, name: str, *, path: str, tags: Mapping[str, str]) -> InstanceProfile:
        """Make a profile; the SDK may have done so already, in an attempt whose reply was lost."""
        try:
            with core_errors_of("iam:CreateInstanceProfile"):
                self._clients.iam.create_instance_profile(
                    InstanceProfileName=name,
                    Path=path,
                    Tags=[{"Key": key, "Value": value} for key, value in sorted(tags.items())],
                )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            there = self._fetch(name) if failure and is_already_there(failure.code) else None
            if there is None:
                raise
            return there
        return InstanceProfile(name=name, path=path)

    def _attach(self, profile: InstanceProfile, role: str) -> None:
        """Give a profile its role, the only one that it can have."""
        if profile.role == role:
            return
        self._detach(profile)
        try:
            with core_errors_of("iam:AddRoleToInstanceProfile"):
                self._clients.iam.add_role_to_instance_profile(
                    InstanceProfileName=profile.name, RoleName=role
                )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            # Profile and role have one code; only the text tells which of them is missing.
            if failure and is_not_found(failure.code) and "role" in failure.message.lower():
                self._missing_roles.put(role, error)
            raise

    def _detach(self, profile: InstanceProfile) -> None:
        if profile.role:
            with _ignore_not_found(), core_errors_of("iam:RemoveRoleFromInstanceProfile"):
                self._clients.iam.remove_role_from_instance_profile(
                    InstanceProfileName=profile.name, RoleName=profile.role
                )

    def _fetch(self, name: str) -> InstanceProfile | None:
        with _ignore_not_found(), core_errors_of("iam:GetInstanceProfile"):
            answer = self._clients.iam.get_instance_profile(InstanceProfileName=name)
            return _profile(answer["InstanceProfile"])
        return None

    def _used_by_instances(self) -> set[str]:
        with core_errors_of("ec2:DescribeInstances"):
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "tag-key", "Values": [f"{CLUSTER_TAG_PREFIX}{self._cluster}"]}],
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
            arns = [
                instance.get("IamInstanceProfile", {}).get("Arn", "")
                for page in ending_pages(pages)
                for reservation in page["Reservations"]
                for instance in reservation.get("Instances", ())
                if instance.get("State", {}).get("Name") != "terminated"
            ]
        return {arn.rpartition("/")[2] for arn in arns if arn}

    def _list(self, prefix: str) -> list[InstanceProfile]:
        with core_errors_of("iam:ListInstanceProfiles"):
            pages = self._clients.iam.get_paginator("list_instance_profiles").paginate(
                PathPrefix=prefix
            )
            items = (item for page in ending_pages(pages) for item in page["InstanceProfiles"])
            return profiles_below(map(_profile, items), prefix)


@contextmanager
def _ignore_not_found() -> Generator[None]:
    """Let pass that what was asked for is not there."""
    try:
        yield
    except CloudProviderError as error:
        failure = refusal_behind(error)
        if failure is None or not is_not_found(failure.code):
            raise


def _profile(item: InstanceProfileTypeDef) -> InstanceProfile:
    roles = [role["RoleName"] for role in item["Roles"]]
    return InstanceProfile(
        name=item["InstanceProfileName"], path=item["Path"], role=roles[0] if roles else ""
    )
