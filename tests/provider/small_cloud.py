"""A small cloud whose instances the kit looks after, and the clock of its tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Instance, LaunchedInstance, TerminationStatus
from karpenter_core.provider.kit.claim_tags import ClaimTags
from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
from karpenter_core.provider.kit.instances.described import DescribedInstances
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims, TaggedClaims
from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunch, RecentLaunches
from karpenter_core.provider.kit.reservation_counts import ReservationCounts

START = datetime(2026, 1, 1, tzinfo=UTC)
PREFIX = "small:///"

CLAIM_TAGS = ClaimTags(
    key="claims",
    own_key="claim",
    pool_key="pool",
    call_key="",
    max_characters=200,
    max_tags=10,
    max_claim_tags=5,
    later_tags=2,
    write=lambda claim, _: f"{claim.name}:{claim.uid}",
    read=lambda entry, _: ClaimRef(name=entry.split(":")[0], uid=entry.split(":")[1]),
)


class Clock:
    """A clock that tests set forward."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return START + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds


@dataclass(frozen=True)
class SmallInstance:
    """An instance of the cloud."""

    id: str
    claims: tuple[str, ...] = ()
    instance_type: str = "small"
    zone: str = "a"
    capacity_type: str = "on-demand"
    image_id: str = "image-1"
    reservation_id: str = ""
    launched_at: datetime = START
    is_leaving: bool = False
    is_gone: bool = False
    tags: dict[str, str] = field(default_factory=dict)


class SmallCloud:
    """Its instances, the reader and the terminator of them, and one process that looks after them."""

    def __init__(self, *, shows_terminated=False, is_tagged=False):
        self.clock = Clock()
        self.launched: dict[str, SmallInstance] = {}
        self.unseen: set[str] = set()
        """Ids of instances that are not shown yet."""
        self.others: set[str] = set()
        """Ids of instances of other clusters."""
        self.problem = ""
        self.cached: DescribedInstances[SmallInstance] | None = None
        """The answer to listings, if they are cached."""
        self.is_down = False
        self.reads: list[str] = []
        self.terminated: list[str] = []
        self.kept: list[frozenset[str]] = []
        self.listed: list[list[str]] = []
        self.claims_of_launches: dict[str, ClaimRef] = {}
        self.recent = RecentLaunches(self.clock)
        self.counts = ReservationCounts(self.clock)
        claims = TaggedClaims(CLAIM_TAGS, lambda: self.claims_of_launches)
        self.instances = ClusterInstances(
            self.clock,
            service="Small",
            reader=self,
            terminator=self,
            claims=claims if is_tagged else SingleClaims(_claim_of),
            recent=self.recent,
            shown_within=None if shows_terminated else timedelta(minutes=1),
            reservation_counts=self.counts,
            on_listed=lambda listed: self.listed.append([each.id for each in listed]),
        )

    # -- what tests do -----------------------------------------------------------------------------

    def launch(self, name, *claims, is_recent=False, **fields):
        """Launch an instance for claims; return its provider ID."""
        owners = [
            ClaimRef(name=each, uid=f"uid-{each}") for each in claims or (f"claim-of-{name}",)
        ]
        tags = CLAIM_TAGS.tags_for(owners, other_tags=0)
        self.launched[name] = SmallInstance(
            id=name, claims=tuple(each.name for each in owners), tags=tags, **fields
        )
        if is_recent:
            provider_id = f"{PREFIX}{name}"
            self.recent.add(
                RecentLaunch(
                    instance_id=name,
                    owner=owners[0],
                    instance=Instance(
                        provider_id=provider_id, token=owners[0].uid, created=self.clock.now()
                    ),
                    outcome=LaunchedInstance(
                        provider_id=provider_id,
                        instance_type="small",
                        zone="a",
                        capacity_type="on-demand",
                        capacity={},
                        allocatable={},
                    ),
                )
            )
        return f"{PREFIX}{name}"

    def change(self, name, **fields):
        """Change an instance."""
        self.launched[name] = replace(self.launched[name], **fields)

    # -- InstanceReader ----------------------------------------------------------------------------

    def of_ids(self, ids):
        self._read("of_ids")
        return {n: m for n, m in self._shown().items() if n in set(ids)}

    def of_cluster(self):
        self._read("of_cluster")
        shown = [m for n, m in self._shown().items() if n not in self.others]
        if self.cached is not None:
            return self.cached
        return DescribedInstances(instances=tuple(shown), problem=self.problem)

    def cache_listing(self):
        """Answer listings with the instances of this moment from now on."""
        listing = self.of_cluster()
        self.cached = replace(listing, as_of=self.clock.now())

    def is_ours(self, instance):
        return instance.id not in self.others

    def instance_id(self, provider_id):
        if not provider_id.startswith(PREFIX):
            raise CloudProviderError(f'"{provider_id}" is no instance')
        return provider_id.removeprefix(PREFIX)

    def provider_id(self, instance):
        return f"{PREFIX}{instance.id}"

    def _shown(self):
        return {n: m for n, m in self.launched.items() if n not in self.unseen}

    def _read(self, call):
        self.reads.append(call)
        if self.is_down:
            raise CloudProviderError("no answer")

    # -- Terminator --------------------------------------------------------------------------------

    def start(self, instances):
        self.terminated += instances
        return dict.fromkeys(instances, TerminationStatus.STARTED)

    def forget(self, instance_id):
        pass

    def keep_only(self, instance_ids):
        self.kept.append(frozenset(instance_ids))


def _claim_of(instance):
    name = instance.claims[0]
    return ClaimRef(name=name, uid=f"uid-{name}")
