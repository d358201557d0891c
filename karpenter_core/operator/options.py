"""The table of options: source of flags, help, docs and parsing.

Names, variables and defaults are Karpenter's where Karpenter has the option. `settings` holds their
values; `settings_loader` reads them; `option_shapes` turns them into what they stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.operator.decision_options import DECISION_OPTIONS
from karpenter_core.operator.runtime_options import RUNTIME_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.operator.option_values import ProcessOption
    from karpenter_core.provider.contract import SettingSpec

__all__ = ["OPTIONS", "flag_name", "options_table"]

OPTIONS: Final = (*RUNTIME_OPTIONS, *DECISION_OPTIONS)


def flag_name(spec: SettingSpec) -> str:
    """Return a plug-in's flag without dashes in front."""
    return spec.flag.lstrip("-")


def options_table(options: Iterable[ProcessOption] = OPTIONS) -> str:
    """Return the options as the table of the reference documentation."""
    lines = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for option in options:
        choices = " \\| ".join(f"`{choice}`" for choice in option.choices if choice)
        meaning = f"{option.help} One of {choices}." if choices else option.help
        default = f"`{option.default_text}`" if option.default_text else ""
        lines.append(f"| `--{option.flag}` | `{option.env}` | {default} | {meaning} |")
    return "\n".join(lines)
