"""Reads `--commitments`: capacity that is paid for in advance.

A mistake stops the start: a commitment that is silently dropped would buy nodes at list prices.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import CPU, MEMORY, NODES, PRICE_PER_HOUR
from karpenter_core.api.names import label_value_error
from karpenter_core.api.prices import DEFAULT_CURRENCY
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_amount, parse_quantity
from karpenter_core.errors import SettingsError
from karpenter_core.operator.scheduler_config import checked_mapping, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.nodeclaim import RequirementSpec

__all__ = ["parse_commitments"]

_SOURCE: Final = "commitments"
_FIELDS: Final = frozenset(
    {"name", "requirements", "resource", "amount", "price", "discount", "currency"}
)
_SPEND: Final = "spend"
_RESOURCES: Final = {CPU: CPU, MEMORY: MEMORY, NODES: NODES, _SPEND: PRICE_PER_HOUR}
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_CURRENCY_LETTERS: Final = 3


def parse_commitments(text: str) -> tuple[Commitment, ...]:
    """Read the option's YAML or JSON list; empty text means none.

    Raises:
        SettingsError: it cannot be read, names unknown fields, or breaks a rule.
    """
    document = read_document(text, _SOURCE) if text.strip() else None
    if document is None:
        return ()
    if not isinstance(document, list):
        raise SettingsError(f"{_SOURCE}: must be a list, not {document!r}".replace("'", '"'))
    rows = cast("list[object]", document)
    found = tuple(_commitment(row, f"{_SOURCE}: [{index}]") for index, row in enumerate(rows))
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingsError(f'{_SOURCE}: name "{twice[0]}" stands twice')
    return found


def _commitment(value: object, where: str) -> Commitment:
    from karpenter_core.api.commitments import Commitment

    row = checked_mapping(value, where, _FIELDS)
    name = row.get("name")
    if not isinstance(name, str) or not name or label_value_error(name):
        raise SettingsError(f"{where}.name must be a name that a label may have, not {name!r}")
    resource = row.get("resource")
    if not isinstance(resource, str) or resource not in _RESOURCES:
        raise SettingsError(
            f"{where}.resource must be one of {', '.join(_RESOURCES)}, not {resource!r}"
        )
    price, discount = row.get("price"), row.get("discount")
    if (price is None) == (discount is None):
        raise SettingsError(f"{where}: set either price or discount")
    if resource == _SPEND and discount is None:
        raise SettingsError(f"{where}: a commitment to spend needs discount, not price")
    share = 0.0 if discount is None else _discount(discount, f"{where}.discount")
    currency = row.get("currency", DEFAULT_CURRENCY)
    if (
        not isinstance(currency, str)
        or len(currency) != _CURRENCY_LETTERS
        or not (currency.isascii() and currency.isalpha() and currency.isupper())
    ):
        raise SettingsError(f"{where}.currency must be a currency such as USD, not {currency!r}")
    return Commitment(
        name=name,
        requirements=_requirements(row.get("requirements"), f"{where}.requirements"),
        resource=_RESOURCES[resource],
        amount=_amount(resource, row.get("amount"), share, f"{where}.amount"),
        price=None if price is None else _number(price, f"{where}.price"),
        discount=share,
        currency=currency,
    )


def _amount(resource: str, value: object, discount: float, where: str) -> int:
    """Return the amount; of spend the list price that it pays for."""
    text = _written(value)
    if resource == _SPEND:
        text = f"{_number(value, where) / (1 - discount):.6f}"
    try:
        amount = parse_amount(_RESOURCES[resource], text)
    except ValueError:
        amount = -1
    if not 0 <= amount < LARGEST_AMOUNT:
        raise SettingsError(f"{where} must be a quantity from 0, not {value!r}")
    if resource == NODES and parse_quantity(text) != amount:
        raise SettingsError(f"{where}: nodes are a whole number, not {value!r}")
    return amount


def _number(value: object, where: str) -> float:
    try:
        number = float(Decimal(_written(value)))
    except (InvalidOperation, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise SettingsError(f"{where} must be a number from 0, not {value!r}")
    return number


def _written(value: object) -> str:
    """Return a number or its text as text; empty for other values."""
    is_number = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_number else ""


def _discount(value: object, where: str) -> float:
    text = value.strip() if isinstance(value, str) else ""
    percent = _number(text.removesuffix("%"), where) if text.endswith("%") else -1.0
    if not 0 < percent < 100:  # noqa: PLR2004 - percents
        raise SettingsError(f"{where} must be a percentage between 0% and 100%, not {value!r}")
    return percent / 100


def _requirements(value: object, where: str) -> tuple[RequirementSpec, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise SettingsError(f"{where} must be a list, not {value!r}")
    rows = cast("list[object]", value)
    return tuple(_requirement(row, f"{where}[{index}]") for index, row in enumerate(rows))


def _requirement(value: object, where: str) -> RequirementSpec:
    from karpenter_core.api.nodeclaim import RequirementSpec

    row: Mapping[str, object] = checked_mapping(
        value, where, frozenset({"key", "operator", "values"})
    )
    key, operator = row.get("key"), row.get("operator")
    values: object = row.get("values", [])
    if not isinstance(key, str) or not key:
        raise SettingsError(f"{where}.key must be a label, not {key!r}")
    if operator not in _OPERATORS:
        raise SettingsError(
            f"{where}.operator must be one of {', '.join(_OPERATORS)}, not {operator!r}"
        )
    listed = cast("list[object]", values) if isinstance(values, list) else [None]
    if not all(isinstance(each, str) for each in listed):
        raise SettingsError(f"{where}.values must be a list of texts, not {values!r}")
    if (operator in {"Exists", "DoesNotExist"}) is bool(listed):
        raise SettingsError(f"{where}.values do not suit the operator {operator}: {values!r}")
    if operator in {"Gt", "Lt", "Gte", "Lte"} and not (
        len(listed) == 1 and str(listed[0]).isdecimal()
    ):
        raise SettingsError(f"{where}.values must be one number, not {values!r}")
    return RequirementSpec.model_validate({"key": key, "operator": operator, "values": listed})
