"""Ends listings of botocore's paginators whose pages go in a circle.

A paginator notices a token that comes twice in a row, and follows a longer circle for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from karpenter_core.provider.kit.calls.pages import MOST_PAGES

__all__ = ["ending_pages"]

Page = TypeVar("Page", bound=Mapping[str, object])


def ending_pages(pages: Iterable[Page]) -> Iterator[Page]:
    """Yield the pages of a paginator.

    Raises:
        botocore.exceptions.PaginationError: a token came twice, or there are more than `MOST_PAGES` pages.
    """
    from botocore.exceptions import PaginationError

    seen: set[object] = set()
    for page in pages:
        yield page
        token = page.get("NextToken") or page.get("Marker")  # the latter is IAM's
        if not token:
            continue
        if token in seen or len(seen) >= MOST_PAGES:
            raise PaginationError(
                message=f"the listing does not end: after {len(seen)} pages {token!r}"
            )
        seen.add(token)
