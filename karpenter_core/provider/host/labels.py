"""Combines the label classes of all providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.errors import PluginError
from karpenter_core.provider.contract import LabelClasses

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["merge_label_classes"]


def merge_label_classes(classes: Mapping[str, LabelClasses]) -> LabelClasses:
    """Return the labels of all providers together, by provider name.

    Raises:
        PluginError: two providers mean different things by one spelling.
    """
    well_known: set[str] = set()
    restricted: set[str] = set()
    settable: set[str] = set()
    aliases: dict[str, str] = {}
    values: dict[str, dict[str, str]] = {}
    values_by_key: dict[str, frozenset[str]] = {}
    topology_keys: set[str] = set()
    provisioners: set[str] = set()
    said: dict[tuple[str, str], str] = {}
    for name, labels in classes.items():
        well_known |= labels.well_known
        restricted |= labels.restricted_domains
        settable |= labels.settable
        topology_keys |= labels.unsupported_topology_keys
        provisioners |= labels.unsupported_provisioners
        for key, possible in labels.known_values.items():
            values_by_key[key] = values_by_key.get(key, frozenset()) | possible
        for alias, key in labels.aliases.items():
            _agree(aliases, alias, key, ("", alias), name, said)
        for key, spellings in labels.value_aliases.items():
            for alias, value in spellings.items():
                _agree(values.setdefault(key, {}), alias, value, (key, alias), name, said)
    return LabelClasses(
        well_known=frozenset(well_known),
        restricted_domains=frozenset(restricted),
        settable=frozenset(settable),
        aliases=aliases,
        value_aliases=values,
        known_values=values_by_key,
        unsupported_topology_keys=frozenset(topology_keys),
        unsupported_provisioners=frozenset(provisioners),
    )


def _agree(
    meaning_by_alias: dict[str, str],
    alias: str,
    meaning: str,
    spelling: tuple[str, str],
    name: str,
    said: dict[tuple[str, str], str],
) -> None:
    first = meaning_by_alias.setdefault(alias, meaning)
    if first != meaning:
        where = f'value "{alias}" of label {spelling[0]}' if spelling[0] else f'label "{alias}"'
        raise PluginError(
            f'{where} stands for "{first}" to plug-in "{said[spelling]}" '
            f'and for "{meaning}" to plug-in "{name}"'
        )
    said.setdefault(spelling, name)
