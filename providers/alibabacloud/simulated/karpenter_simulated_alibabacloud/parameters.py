"""Reads the parameters of a call with the types of the API.

All parameters of RPC arrive as text; bodies of ACK have numbers and booleans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["RequestParameters", "read_tags"]


@final
class RequestParameters(Mapping[str, object]):
    """Parameters under the names of the API: text, mappings and lists of these."""

    def __init__(self, values: Mapping[str, object], *, under: str = "") -> None:
        self._values: Final = values
        self._under: Final = under

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def _named(self, name: str) -> str:
        return f"{self._under}{name}"

    def text(self, name: str, default: str = "") -> str:
        """Return a text; what is empty is not given."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, Mapping | list):
            raise CloudError(
                "InvalidParameter", f"The parameter {self._named(name)} must be a single value."
            )
        return str(value) or default

    def required(self, name: str) -> str:
        """Return a text that must be given."""
        value = self.text(name)
        if not value:
            raise CloudError(
                f"MissingParameter.{self._named(name)}",
                f"The input parameter {self._named(name)} that is mandatory for processing this"
                " request is not supplied.",
            )
        return value

    def choice(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """Return a text that must be one of some."""
        value = self.text(name, default)
        if value and value not in allowed:
            raise self.invalid(name, value)
        return value

    def invalid(self, name: str, value: object) -> CloudError:
        """Return the refusal of a value."""
        return CloudError(
            f"InvalidParameter.{self._named(name)}",
            f'The specified parameter {self._named(name)} is not valid: "{value}".',
        )

    def integer(self, name: str, default: int = 0) -> int:
        """Return a whole number."""
        value = self.text(name)
        if not value:
            return default
        try:
            return int(value)
        except ValueError:
            raise self.invalid(name, value) from None

    def number(self, name: str, default: float = 0) -> float:
        """Return a number."""
        value = self.text(name)
        if not value:
            return default
        try:
            return float(value)
        except ValueError:
            raise self.invalid(name, value) from None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a truth value."""
        value = self.choice(name, ("true", "false", "True", "False"))
        return value.lower() == "true" if value else default

    def texts(self, name: str, *, most: int | None = None) -> Sequence[str]:
        """Return a list of texts (`InstanceId.1`); one that is given without a number counts."""
        value = self._values.get(name)
        if value is None or value == "":
            return ()
        given = cast("list[object]", value) if isinstance(value, list) else [value]
        if most is not None and len(given) > most:
            raise CloudError(
                f"InvalidParameter.{self._named(name)}",
                f"The parameter {self._named(name)} has {len(given)} values, at most {most} are"
                " allowed.",
            )
        return [str(each) for each in given]

    def json_texts(self, name: str, *, most: int) -> Sequence[str] | None:
        """Return a list of texts that is given as one text of JSON; None when it is not given."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = cast("object", json.loads(text))
        except ValueError:
            raise self.invalid(name, text) from None
        if not isinstance(value, list):
            raise self.invalid(name, text)
        items = [str(each) for each in cast("list[object]", value)]
        if len(items) > most:
            raise self.invalid(name, f"{len(items)} values, at most {most}")
        return items

    def within(self, name: str) -> RequestParameters:
        """Return the parameters below a name (`SystemDisk.Size`)."""
        value = self._values.get(name)
        if value is None:
            return RequestParameters({})
        if not isinstance(value, Mapping):
            raise self.invalid(name, value)
        return RequestParameters(cast("Mapping[str, object]", value), under=f"{self._named(name)}.")

    def json_within(self, name: str) -> RequestParameters:
        """Return the parameters below a name that are given as one text of JSON, or one by one."""
        value = self._values.get(name)
        if not isinstance(value, str):
            return self.within(name)
        try:
            read = cast("object", json.loads(value or "{}"))
        except ValueError:
            raise self.invalid(name, value) from None
        if not isinstance(read, dict):
            raise self.invalid(name, value)
        return RequestParameters(cast("dict[str, object]", read), under=f"{self._named(name)}.")

    def items_of(self, name: str, *, most: int | None = None) -> Sequence[RequestParameters]:
        """Return the parameters below each number below a name (`DataDisk.1.Size`)."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.invalid(name, value)
        found = cast("list[object]", value)
        if most is not None and len(found) > most:
            raise CloudError(
                f"InvalidParameter.{self._named(name)}",
                f"The parameter {self._named(name)} has {len(found)} items, at most {most} are"
                " allowed.",
            )
        if not all(isinstance(each, Mapping) for each in found):
            raise self.invalid(name, found)
        return [
            RequestParameters(
                cast("Mapping[str, object]", each), under=f"{self._named(name)}.{number}."
            )
            for number, each in enumerate(found, start=1)
        ]


_MOST_TAGS: Final = 20
_LONGEST: Final = 128


def read_tags(parameters: RequestParameters, name: str = "Tag") -> dict[str, str]:
    """Return tags to set, as they are allowed to be."""
    given = parameters.items_of(name)
    if len(given) > _MOST_TAGS:
        raise CloudError(
            "InvalidParameter.TagCount",
            f"The tag count {len(given)} exceeds the maximum of {_MOST_TAGS}.",
        )
    tags: dict[str, str] = {}
    for each in given:
        key, value = each.text("Key"), each.text("Value")
        if key in tags:
            raise CloudError("Duplicate.TagKey", f"The tag key {key} is given twice.")
        if not key or len(key) > _LONGEST or _is_reserved(key):
            raise CloudError("InvalidTagKey.Malformed", f'The tag key "{key}" is not valid.')
        if len(value) > _LONGEST or _is_reserved(value):
            raise CloudError("InvalidTagValue.Malformed", f'The tag value "{value}" is not valid.')
        tags[key] = value
    return tags


def _is_reserved(text: str) -> bool:
    return text.startswith(("aliyun", "acs:")) or "http://" in text or "https://" in text
