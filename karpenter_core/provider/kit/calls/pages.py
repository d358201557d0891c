"""Reads listings that come in pages, by tokens or by page numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

__all__ = ["numbered_pages", "token_pages"]

Page = TypeVar("Page")
Token = TypeVar("Token", bound="Hashable")


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
        RuntimeError: a token came twice, so that the listing would never end.
    """
    seen: set[Token] = set()
    token = None
    while True:
        page = fetch(token)
        yield page
        token = next_token(page)
        if not token:
            return
        if token in seen:
            raise RuntimeError(f"{listing} repeats: {token_name} {token!r} came twice")
        seen.add(token)


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
