"""Reads listings that come in pages, by tokens or by page numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

__all__ = ["MOST_PAGES", "EndlessListingError", "numbered_pages", "token_pages"]

MOST_PAGES: Final = 10_000
"""Bound of the pages of one listing: a million items where a page has a hundred."""

Page = TypeVar("Page")
Token = TypeVar("Token", bound="Hashable")


class EndlessListingError(RuntimeError):
    """The pages of a listing do not end."""


def token_pages(
    fetch: Callable[[Token | None], Page],
    next_token: Callable[[Page], Token | None],
    *,
    listing: str = "the listing",
    token_name: str = "page token",  # noqa: S107 - no password
) -> Iterator[Page]:
    """Yield the pages of a listing whose pages name the next one: a token, a link or an offset.

    `fetch` gets None for the first page; `listing` and `token_name` are for the error's text. A token that is empty, zero or None ends the listing.

    Raises:
        EndlessListingError: a token came twice, or there are more than `MOST_PAGES` pages.
    """
    seen: set[Token] = set()
    token = None
    while len(seen) < MOST_PAGES:
        page = fetch(token)
        yield page
        token = next_token(page)
        if not token:
            return
        if token in seen:
            raise EndlessListingError(f"{listing} repeats: {token_name} {token!r} came twice")
        seen.add(token)
    raise EndlessListingError(f"{listing} does not end: there are more than {MOST_PAGES} pages")


def numbered_pages(
    fetch: Callable[[int], Page],
    items: Callable[[Page], Sequence[object]],
    *,
    size: int,
    total: Callable[[Page], int | None] = lambda _: None,
    last: int,
) -> Iterator[Page]:
    """Yield the pages of a listing by page number, from 1 to `last` at most.

    A page with less than `size` items ends the listing, as does the `total` of a page: if an item was
    deleted meanwhile, a full page may be the last one.
    """
    for number in range(1, last + 1):
        page = fetch(number)
        yield page
        count = total(page)
        if len(items(page)) < size or (count is not None and count <= number * size):
            return
