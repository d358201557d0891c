"""Creates launch templates when needed, and deletes unused ones.

A template is needed only while a fleet is requested, so an unused one is litter. Yet deleting one
that a launch is about to name would make that launch fail. So a launch holds its templates (`run`),
and one thread at a time creates or deletes a template of a name, while the others wait for it and
none holds a lock.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_provider_aws.codes import api_failure, is_launch_template_missing
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import to_tag_list
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NODE_CLASS_TAG
from karpenter_provider_aws.launch.template_data import NAME_PREFIX
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from types_boto3_ec2.type_defs import FilterTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate
    from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["ClusterLaunchTemplates"]

T = TypeVar("T")

_PAGE_SIZE: Final = 200
"""The most that DescribeLaunchTemplates gives."""
_ALREADY_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
_ATTEMPTS: Final = 2
_MAKERS: Final = 8
"""Largest number of templates that one launch makes at once."""


@final
class ClusterLaunchTemplates:
    """The launch templates of one cluster; callable from any thread.

    What is known to exist is kept in memory, by name; a name is a digest of the content, so what is
    known is right as long as it exists.
    """

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        cluster: str,
        sizes: UserDataSizes,
        unused_after: timedelta = timedelta(minutes=1),
    ) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._sizes: Final = sizes
        self._unused_seconds: Final = unused_after.total_seconds()
        self._lock: Final = Lock()
        self._last_used: Final[dict[str, float]] = {}
        """By name, of those that exist: monotonic seconds."""
        self._holds: Final[Counter[str]] = Counter()
        self._busy: Final[dict[str, Future[None]]] = {}
        """By name: making or deleting it is under way."""

    def run(self, templates: Sequence[LaunchTemplate], call: Callable[[], T]) -> T:
        """Call with these templates in place, once more when EC2 says that one does not exist.

        A user may have deleted one, or EC2 may not show yet what it has just made. What else the
        call raises is passed on.

        Raises:
            CloudProviderError: a template can be neither found nor made.
        """
        names = [template.name for template in templates]
        attempt = 1
        while True:
            with self._in_use(names):
                self.ensure(templates)
                try:
                    return call()
                except Exception as error:
                    if attempt == _ATTEMPTS or not _is_template_missing(error):
                        raise
            self.invalidate(names)
            attempt += 1

    def ensure(self, templates: Iterable[LaunchTemplate]) -> None:
        """Have EC2 know these templates; several threads that need the same one make it once.

        Raises:
            CloudProviderError: one can be neither found nor made; the others are there.
        """
        wanted = {template.name: template for template in templates}
        for template in wanted.values():
            self._sizes.record(template.node_class, template.user_data_bytes)
        while wanted:
            ours, others = self._claim(wanted)
            # Our own work comes before waiting for others': callers never wait in a circle.
            self._find_or_make([wanted[name] for name in ours])
            for future in others.values():
                future.result()
            # Templates that other calls were deleting are created now.
            wanted = {name: wanted[name] for name in others}

    def invalidate(self, names: Iterable[str]) -> None:
        """Forget templates that EC2 says it does not know; nothing is deleted."""
        with self._lock:
            for name in names:
                self._last_used.pop(name, None)

    def hydrate(self) -> None:
        """Take in what an earlier process left, so that `sweep` deletes what stays unused.

        Call it when this process begins to lead.

        Raises:
            CloudProviderError: they cannot be listed.
        """
        names = self._list()
        now = self._clock.monotonic()
        with self._lock:
            for name in names:
                self._last_used.setdefault(name, now)

    def sweep(self) -> tuple[str, ...]:
        """Delete the templates that no launch has needed for a while; return their names, sorted.

        One that cannot be deleted now is tried again the next time.

        Raises:
            CloudProviderError: what the last one failed with.
        """
        with self._lock:
            candidates = sorted(self._last_used)
        deleted: list[str] = []
        problem: CloudProviderError | None = None
        for name in candidates:
            last_used = self._take_idle(name)
            if last_used is None:
                continue
            try:
                self._delete(name)
                deleted.append(name)
            except CloudProviderError as error:
                problem = error
                with self._lock:
                    self._last_used[name] = last_used
            finally:  # those who wait look again, and find it there, or make it
                self._finish(name).set_result(None)
            if isinstance(problem, ThrottledError):
                break
        if problem is not None:
            raise problem
        return tuple(deleted)

    def delete_all(self, node_class: str) -> None:
        """Delete every template that was made for a NodeClass, by this process or another.

        Raises:
            CloudProviderError: some are left; what the last one failed with.
        """
        problem: CloudProviderError | None = None
        for name in self._list(node_class):
            self.invalidate([name])
            try:
                self._delete(name)
            except CloudProviderError as error:
                problem = error
        if problem is not None:
            raise problem
        self._sizes.forget(node_class)

    @contextmanager
    def _in_use(self, names: Sequence[str]) -> Generator[None]:
        with self._lock:
            self._holds.update(names)
        try:
            yield
        finally:
            now = self._clock.monotonic()
            with self._lock:
                for name in names:
                    self._holds[name] -= 1
                    if not self._holds[name]:
                        del self._holds[name]
                    if name in self._last_used:
                        self._last_used[name] = now

    def _take_idle(self, name: str) -> float | None:
        """Forget a template that was unused for a while, and say that it is being deleted.

        Returns when it was used last; None for one that stays.
        """
        with self._lock:
            last_used = self._last_used.get(name)
            if last_used is None or self._holds[name] or name in self._busy:
                return None
            if self._clock.monotonic() - last_used < self._unused_seconds:
                return None
            del self._last_used[name]
            self._busy[name] = Future()
            return last_used

    def _finish(self, name: str) -> Future[None]:
        with self._lock:
            return self._busy.pop(name)

    def _claim(self, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Future[None]]]:
        """Return which of these this thread is to make, and which others work on just now."""
        ours: list[str] = []
        others: dict[str, Future[None]] = {}
        now = self._clock.monotonic()
        with self._lock:
            for name in names:
                if name in self._last_used:
                    self._last_used[name] = now
                elif name in self._busy:
                    others[name] = self._busy[name]
                else:
                    self._busy[name] = Future()
                    ours.append(name)
        return tuple(ours), others

    def _find_or_make(self, templates: Sequence[LaunchTemplate]) -> None:
        """Do what was claimed, and tell those who wait how it went."""
        if not templates:
            return
        try:
            existing = self._existing([template.name for template in templates])
        except BaseException as error:
            for template in templates:
                self._finish(template.name).set_exception(error)
            raise
        missing = [template for template in templates if template.name not in existing]
        for template in templates:
            if template.name in existing:
                self._settle(template.name, None)
        if not missing:
            return
        with ThreadPoolExecutor(_MAKERS, "aws-launch-templates") as pool:
            errors = list(pool.map(self._made, missing))
        for error in errors:
            if error is not None:
                raise error

    def _made(self, template: LaunchTemplate) -> BaseException | None:
        """Make one template and say what went wrong, if anything did."""
        try:
            self._make(template)
        except BaseException as error:
            self._settle(template.name, error)
            return error
        self._settle(template.name, None)
        return None

    def _settle(self, name: str, error: BaseException | None) -> None:
        """Note that a template exists, unless there was an error, and tell those who wait."""
        if error is not None:
            self._finish(name).set_exception(error)
            return
        with self._lock:
            self._last_used[name] = self._clock.monotonic()
        self._finish(name).set_result(None)

    def _existing(self, names: Sequence[str]) -> frozenset[str]:
        """Return which of these EC2 knows, asking once for all of them."""
        return frozenset(self._describe([{"Name": "launch-template-name", "Values": names}]))

    def _make(self, template: LaunchTemplate) -> None:
        if template.left_out:
            structlog.get_logger("aws").warning(
                "settings that Bottlerocket does not know are left out of its user data",
                node_class=template.node_class,
                settings=[f"settings.kubernetes.{name}" for name in template.left_out],
            )
        tags = to_tag_list(template.tags)
        try:
            with core_errors_of("ec2:CreateLaunchTemplate"):
                self._clients.ec2.create_launch_template(
                    LaunchTemplateName=template.name,
                    LaunchTemplateData=template.data,
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
                )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or failure.code != _ALREADY_EXISTS:  # another process was faster
                raise
            return
        structlog.get_logger("aws").debug("launch template made", launch_template=template.name)

    def _delete(self, name: str) -> None:
        try:
            with core_errors_of("ec2:DeleteLaunchTemplate"):
                self._clients.ec2.delete_launch_template(LaunchTemplateName=name)
        except CloudProviderError as error:
            if not _is_template_missing(error):
                raise
        structlog.get_logger("aws").debug("launch template deleted", launch_template=name)

    def _list(self, node_class: str = "") -> tuple[str, ...]:
        """Return the names of ours, of one NodeClass or of all, sorted.

        Others may carry the cluster's tag too; only a name of our making is taken for ours.
        """
        filters: list[FilterTypeDef] = [
            {"Name": f"tag:{EKS_CLUSTER_NAME_TAG}", "Values": [self._cluster]},
            {"Name": f"tag:{NODE_CLASS_TAG}", "Values": [node_class]}
            if node_class
            else {"Name": "tag-key", "Values": [NODE_CLASS_TAG]},
        ]
        names = self._describe(filters)
        return tuple(sorted(name for name in names if name.startswith(NAME_PREFIX)))

    def _describe(self, filters: Sequence[FilterTypeDef]) -> list[str]:
        with core_errors_of("ec2:DescribeLaunchTemplates"):
            pages = self._clients.ec2.get_paginator("describe_launch_templates").paginate(
                Filters=filters, PaginationConfig={"PageSize": _PAGE_SIZE}
            )
            return [
                template.get("LaunchTemplateName", "")
                for page in ending_pages(pages)
                for template in page["LaunchTemplates"]
            ]


def _is_template_missing(error: BaseException) -> bool:
    """Whether an error, of boto3 or made of one, says that a launch template does not exist."""
    failure = api_failure(error) or refusal_behind(error)
    return failure is not None and is_launch_template_missing(failure.code)
