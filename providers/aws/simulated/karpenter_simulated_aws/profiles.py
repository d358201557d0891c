"""Lists moto's instance profiles by path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast, final

from karpenter_simulated_aws.selection import slice_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from types_boto3_iam.type_defs import ListInstanceProfilesRequestTypeDef

    from karpenter_simulated_aws.account import Account

__all__ = ["SimulatedProfile", "SimulatedProfiles"]

_PAGE: Final = 1000
_DEFAULT_PAGE: Final = 100


class _Role(Protocol):
    id: str
    name: str
    arn: str
    path: str
    create_date: datetime
    assume_role_policy_document: str


class SimulatedProfile(Protocol):
    """An instance profile."""

    id: str
    name: str
    arn: str
    path: str
    roles: Sequence[_Role]
    create_date: datetime
    tags: Sequence[Mapping[str, str]]


class _Backend(Protocol):
    def get_instance_profiles(self) -> Iterable[SimulatedProfile]: ...


@final
class SimulatedProfiles:
    """The instance profiles of an account."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account

    def all(self) -> dict[str, SimulatedProfile]:
        """Return every instance profile by its name."""
        from moto.iam.models import iam_backends

        backend = cast("_Backend", iam_backends[self._account.id][self._account.partition])
        return {profile.name: profile for profile in list(backend.get_instance_profiles())}

    def list_instance_profiles(
        self,
        request: ListInstanceProfilesRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer ListInstanceProfiles; as in AWS, without tags."""
        prefix = request.get("PathPrefix", "/")
        found = sorted(
            (profile for profile in self.all().values() if profile.path.startswith(prefix)),
            key=lambda profile: profile.name,
        )
        shown, marker = slice_page(
            found,
            size=request.get("MaxItems", _DEFAULT_PAGE),
            token=request.get("Marker"),
            maximum=_PAGE,
        )
        return {
            "InstanceProfiles": [_profile(profile) for profile in shown],
            "IsTruncated": marker is not None,
            "Marker": marker,
        }


def _profile(profile: SimulatedProfile) -> Mapping[str, object]:
    return {
        "Path": profile.path,
        "InstanceProfileName": profile.name,
        "InstanceProfileId": profile.id,
        "Arn": profile.arn,
        "CreateDate": profile.create_date,
        "Roles": [
            {
                "Path": role.path,
                "RoleName": role.name,
                "RoleId": role.id,
                "Arn": role.arn,
                "CreateDate": role.create_date,
                "AssumeRolePolicyDocument": role.assume_role_policy_document,
            }
            for role in profile.roles
        ],
    }
