"""Reads the provider's settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.kit.setting_values import SettingReader
from karpenter_provider_kwok.instance_store import MEMORY

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext

__all__ = ["SETTINGS", "KwokSettings"]

STATE_FILE_NAME: Final = "kwok.sqlite3"

SETTINGS: Final = (
    SettingSpec(
        flag="--instance-types-file",
        env="INSTANCE_TYPES_FILE",
        default="",
        help="Catalogue of the simulated cloud (JSON); empty = the shipped catalogue.",
    ),
    SettingSpec(
        flag="--kwok-state-file",
        env="KWOK_STATE_FILE",
        default="",
        help="File that keeps the instances of the simulated cloud; empty = kwok.sqlite3 in the "
        "cache folder, :memory: = no file.",
    ),
    SettingSpec(
        flag="--kwok-faults-file",
        env="KWOK_FAULTS_FILE",
        default="",
        help="Faults to inject (JSON); the file is read again when it changes; empty = no faults.",
    ),
    SettingSpec(
        flag="--kwok-launch-latency",
        env="KWOK_LAUNCH_LATENCY",
        default=timedelta(),
        help="Duration of each launch call.",
    ),
    SettingSpec(
        flag="--kwok-registration-delay",
        env="KWOK_REGISTRATION_DELAY",
        default=timedelta(),
        help="Time from a launch until the Node appears; a KWOKNodeClass can override it.",
    ),
    SettingSpec(
        flag="--kwok-termination-delay",
        env="KWOK_TERMINATION_DELAY",
        default=timedelta(),
        help="Time from the start of a termination until the instance is gone.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KwokSettings:
    """The settings, read."""

    instance_types_file: Path | None
    state_file: str
    faults_file: Path | None
    launch_latency: timedelta
    registration_delay: timedelta
    termination_delay: timedelta

    @classmethod
    def from_context(cls, context: ProviderContext) -> KwokSettings:
        """Read what the core hands over.

        Raises:
            SettingsError: a delay is negative.
        """
        read = SettingReader(context)
        types_file, faults_file = read.text("instance-types-file"), read.text("kwok-faults-file")
        launch_latency = read.duration("kwok-launch-latency")
        registration_delay = read.duration("kwok-registration-delay")
        termination_delay = read.duration("kwok-termination-delay")
        read.finish()
        return cls(
            instance_types_file=Path(types_file) if types_file else None,
            state_file=read.text("kwok-state-file") or str(_default_state_file(context)),
            faults_file=Path(faults_file) if faults_file else None,
            launch_latency=launch_latency,
            registration_delay=registration_delay,
            termination_delay=termination_delay,
        )

    @property
    def keeps_state(self) -> bool:
        """Whether instances outlive the process."""
        return self.state_file != MEMORY


def _default_state_file(context: ProviderContext) -> Path:
    context.cache_folder.mkdir(parents=True, exist_ok=True)
    return context.cache_folder / STATE_FILE_NAME
