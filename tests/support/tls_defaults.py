"""Default TLS contexts as Pythons of distributions make them."""

from __future__ import annotations

import ssl

__all__ = ["follow_the_system"]


def follow_the_system(monkeypatch, minimum=ssl.TLSVersion.MINIMUM_SUPPORTED):
    """Let contexts have the oldest version that OpenSSL's configuration permits; return those made.

    Debian's Python is built so. Python's own builds permit TLS 1.2 or newer.
    """
    default, made = ssl.create_default_context, []

    def of_distribution(*arguments, **options):
        context = default(*arguments, **options)
        context.minimum_version = minimum
        made.append(context)
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_distribution)
    return made
