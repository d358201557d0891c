"""Handles launch templates."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.launch_checks import launch_mistakes
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import (
    check_tags,
    list_page,
    slice_page,
    tag_list,
    tags_for,
)
from karpenter_simulated_aws.server import dry_run_success

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        CreateLaunchTemplateRequestTypeDef,
        CreateLaunchTemplateVersionRequestTypeDef,
        DeleteLaunchTemplateRequestTypeDef,
        DescribeLaunchTemplatesRequestTypeDef,
        DescribeLaunchTemplateVersionsRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.selection import TagSpecification

__all__ = ["USER_DATA_BYTES", "LaunchTemplate", "LaunchTemplates", "check_user_data"]

USER_DATA_BYTES: Final = 16_384
"""Maximum size of user data, before base64."""
_PAGE: Final = 200
_NAME: Final = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")


@dataclass(slots=True, kw_only=True)
class LaunchTemplate:
    """A launch template with its versions."""

    id: str
    name: str
    created_at: datetime
    creator: str
    tags: dict[str, str]
    versions: list[RequestLaunchTemplateDataTypeDef]
    default_version: int = 1

    def version(self, wanted: str | None) -> tuple[int, RequestLaunchTemplateDataTypeDef]:
        """Return a version by number, `$Latest` or `$Default`."""
        latest = len(self.versions)
        match wanted:
            case "$Latest":
                number = latest
            case "$Default" | "" | None:
                number = self.default_version
            case _:
                number = int(wanted) if wanted.isdigit() else 0
        if not 1 <= number <= latest:
            raise AwsError(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find the specified version {wanted} for the launch template {self.id}.",
            )
        return number, self.versions[number - 1]


def check_user_data(encoded: str | None) -> None:
    """Refuse user data that is not base64, or too much."""
    if not encoded:
        return
    try:
        decoded = b64decode(encoded, validate=True)
    except Base64Error:
        raise AwsError(
            "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."
        ) from None
    if len(decoded) > USER_DATA_BYTES:
        raise AwsError(
            "InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES} bytes"
        )


@final
class LaunchTemplates:
    """The launch templates of an account."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._templates: dict[str, LaunchTemplate] = {}
        self._tokens: dict[str, str] = {}

    @property
    def all(self) -> Sequence[LaunchTemplate]:
        """Every launch template, by id."""
        return [self._templates[template_id] for template_id in sorted(self._templates)]

    def clear(self) -> None:
        """Forget all launch templates."""
        self._templates.clear()
        self._tokens.clear()

    def find(self, *, template_id: str = "", name: str = "") -> LaunchTemplate:
        """Return a launch template by id or name; refuse when there is none."""
        if template_id:
            found = self._templates.get(template_id)
            if found is None:
                raise AwsError(
                    "InvalidLaunchTemplateId.NotFound",
                    f"The specified launch template, with template ID {template_id}, does not exist.",
                )
            return found
        for template in self._templates.values():
            if template.name == name:
                return template
        raise AwsError(
            "InvalidLaunchTemplateName.NotFoundException",
            "At least one of the launch templates specified in the request does not exist.",
        )

    def tagged(self, template_id: str) -> dict[str, str] | None:
        """Return the tags of a launch template, to be changed in place."""
        found = self._templates.get(template_id)
        return None if found is None else found.tags

    def create(self, request: CreateLaunchTemplateRequestTypeDef) -> Mapping[str, object]:
        """Answer CreateLaunchTemplate."""
        name = request["LaunchTemplateName"]
        data = request.get("LaunchTemplateData", {})
        if not _NAME.fullmatch(name):
            raise AwsError(
                "InvalidLaunchTemplateName.MalformedException",
                "A launch template name must be between 3 and 128 characters, and may contain"
                f" letters, numbers, and the following characters: - ( ) . / _: '{name}'",
            )
        tags = _tags(request, "launch-template")
        check_tags(tags)
        check_user_data(data.get("UserData"))
        if request.get("DryRun"):
            raise dry_run_success()
        made_before = self._tokens.get(request.get("ClientToken", ""))
        if made_before in self._templates:
            return {"LaunchTemplate": self._described(self._templates[made_before])}
        if any(template.name == name for template in self._templates.values()):
            raise AwsError(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                "Launch template name already in use.",
            )
        template = LaunchTemplate(
            id=self._account.ids.new("lt"),
            name=name,
            created_at=self._account.clock(),
            creator=self._account.global_arn("iam", "root"),
            tags=tags,
            versions=[data],
        )
        self._templates[template.id] = template
        if token := request.get("ClientToken"):
            self._tokens[token] = template.id
        return {"LaunchTemplate": self._described(template), "Warning": _warning(data)}

    def create_version(
        self,
        request: CreateLaunchTemplateVersionRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer CreateLaunchTemplateVersion."""
        template = self._named(request)
        data = request["LaunchTemplateData"]
        check_user_data(data.get("UserData"))
        if source := request.get("SourceVersion"):
            data = cast("RequestLaunchTemplateDataTypeDef", {**template.version(source)[1], **data})
        template.versions.append(data)
        number = len(template.versions)
        return {
            "LaunchTemplateVersion": self._version(template, number, data),
            "Warning": _warning(data),
        }

    def describe(self, request: DescribeLaunchTemplatesRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeLaunchTemplates."""
        ids: Sequence[str] = request.get("LaunchTemplateIds", ())
        names: Sequence[str] = request.get("LaunchTemplateNames", ())
        wanted = [self.find(template_id=template_id) for template_id in ids]
        wanted += [self.find(name=name) for name in names]

        def values(template: LaunchTemplate, name: str) -> Sequence[str] | None:
            return {
                "launch-template-name": (template.name,),
                "launch-template-id": (template.id,),
            }.get(name)

        shown, token = list_page(
            request,
            wanted or ([] if ids or names else self.all),
            values=values,
            tags=lambda template: template.tags,
            maximum=_PAGE,
        )
        return {
            "LaunchTemplates": [self._described(template) for template in shown],
            "NextToken": token,
        }

    def describe_versions(
        self,
        request: DescribeLaunchTemplateVersionsRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer DescribeLaunchTemplateVersions of one template."""
        template = self._named(request)
        numbers: Sequence[str] = request.get("Versions", ()) or [
            str(number + 1) for number in range(len(template.versions))
        ]
        shown, token = slice_page(
            [template.version(number) for number in numbers],
            size=request.get("MaxResults"),
            token=request.get("NextToken"),
            maximum=_PAGE,
        )
        return {
            "LaunchTemplateVersions": [
                self._version(template, number, data) for number, data in shown
            ],
            "NextToken": token,
        }

    def delete(self, request: DeleteLaunchTemplateRequestTypeDef) -> Mapping[str, object]:
        """Answer DeleteLaunchTemplate."""
        template = self._named(request)
        del self._templates[template.id]
        return {"LaunchTemplate": self._described(template)}

    def _named(self, request: object) -> LaunchTemplate:
        names = cast("Mapping[str, str]", request)
        return self.find(
            template_id=names.get("LaunchTemplateId", ""),
            name=names.get("LaunchTemplateName", ""),
        )

    def _described(self, template: LaunchTemplate) -> Mapping[str, object]:
        return {
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "CreateTime": template.created_at,
            "CreatedBy": template.creator,
            "DefaultVersionNumber": template.default_version,
            "LatestVersionNumber": len(template.versions),
            "Tags": tag_list(template.tags),
        }

    def _version(
        self,
        template: LaunchTemplate,
        number: int,
        data: RequestLaunchTemplateDataTypeDef,
    ) -> Mapping[str, object]:
        return {
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "VersionNumber": number,
            "CreateTime": template.created_at,
            "CreatedBy": template.creator,
            "DefaultVersion": number == template.default_version,
            "LaunchTemplateData": data,
        }


def _warning(data: RequestLaunchTemplateDataTypeDef) -> Mapping[str, object] | None:
    """Return what EC2 says of a template from which nothing can be launched, which it takes."""
    errors = [{"Code": each.code, "Message": each.message} for each in launch_mistakes(data)]
    return {"Errors": errors} if errors else None


def _tags(request: CreateLaunchTemplateRequestTypeDef, kind: str) -> dict[str, str]:
    return tags_for(kind, cast("Sequence[TagSpecification]", request.get("TagSpecifications", ())))
