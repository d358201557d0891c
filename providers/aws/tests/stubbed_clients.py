"""Real clients whose answers are given: requests and answers are checked against AWS's models.

Each query has a client of its own, so that calls of two threads find their own answers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES_OF = {
    "describe_instance_types": "ec2",
    "describe_instance_type_offerings": "ec2",
    "describe_spot_price_history": "ec2",
    "get_products": "pricing",
}


@cache
def _session() -> Any:
    import boto3.session

    return boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )


@cache
def _client(service: str, _operation: str, _of: str) -> Any:
    return _session().client(service)


class StubbedClients:
    """Stands in for `sdk.Clients`; answers are given before calls are made."""

    def __init__(self, region: str = "us-east-1") -> None:
        self.region = region
        self.called: list[str] = []
        self._answers: dict[tuple[str, str], list[Any]] = {}

    def page(
        self, operation: str, answer: Mapping[str, Any], request: Mapping[str, Any], of: str = ""
    ) -> None:
        """Expect a call and give its answer; `of` distinguishes two queries of one operation."""
        self._answers.setdefault((operation, of), []).append((answer, request))

    def fail(self, operation: str, code: str, of: str = "") -> None:
        """Refuse the next call."""
        self._answers.setdefault((operation, of), []).append(code)

    @property
    def ec2(self) -> Any:
        return self

    @property
    def pricing(self) -> Any:
        return self

    def get_paginator(self, operation: str) -> Any:
        return _Paginator(self, operation)

    def paginate(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        from botocore.stub import Stubber

        of = next((o for (op, o) in self._answers if op == operation and o in str(arguments)), "")
        answers = self._answers.pop((operation, of), [])
        self.called.append(operation)
        # Calls that may be open at the same time have clients of their own.
        client = _client(PAGES_OF[operation], operation, of)
        stub = Stubber(client)
        for answer in answers:
            if isinstance(answer, str):
                stub.add_client_error(operation, answer, "as told")
            else:
                stub.add_response(operation, *answer)
        with stub:
            yield from client.get_paginator(operation).paginate(**arguments)
            stub.assert_no_pending_responses()


class _Paginator:
    def __init__(self, clients: StubbedClients, operation: str) -> None:
        self._clients = clients
        self._operation = operation

    def paginate(self, **arguments: Any) -> Any:
        return self._clients.paginate(self._operation, arguments)
