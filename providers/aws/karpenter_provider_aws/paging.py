"""Ends listings of botocore's paginators whose pages go in a circle.

A paginator notices a token that comes twice in a row, and follows a longer circle for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from karpenter_core.provider.kit.calls import pages as kit

__all__ = ["ending_pages"]

Page = TypeVar("Page", bound=Mapping[str, object])


def ending_pages(pages: Iterable[Page]) -> Iterator[Page]:
    """Yield the pages of a paginator.

    Raises:
        EndlessListingError: a token came twice, or there are more than `MOST_PAGES` pages.
    """
    # The latter is IAM's.
    return kit.ending_pages(pages, lambda page: page.get("NextToken") or page.get("Marker"))
