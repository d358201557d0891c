"""Reads listings that come in pages, by tokens or by page numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = ["MOST_PAGES", "EndlessListingError", "ending_pages", "numbered_pages", "token_pages"]

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
    pages = _followed(fetch, next_token)
    return ending_pages(pages, next_token, listing=listing, token_name=token_name)


def ending_pages(
    pages: Iterable[Page],
    next_token: Callable[[Page], Hashable],
    *,
    listing: str = "the listing",
    token_name: str = "page token",  # noqa: S107 - no password
) -> Iterator[Page]:
    """Yield the pages that the paginator of an SDK reads; arguments and errors as for `token_pages`.

    Paginators follow a circle of tokens for ever.
    """
    seen: set[Hashable] = set()
    for page in pages:
        yield page
        token = next_token(page)
        if not token:
            continue
        if token in seen:
            raise EndlessListingError(f"{listing} repeats: {token_name} {token!r} came twice")
        seen.add(token)
        if len(seen) >= MOST_PAGES:
            raise EndlessListingError(
                f"{listing} does not end: there are more than {MOST_PAGES} pages"
            )


def _followed(
    fetch: Callable[[Token | None], Page], next_token: Callable[[Page], Token | None]
) -> Iterator[Page]:
    page = fetch(None)
    yield page
    while token := next_token(page):
        page = fetch(token)
        yield page


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
