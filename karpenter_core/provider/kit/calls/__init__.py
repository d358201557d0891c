"""Calls a cloud's API through any client: retries, pauses, pages, metrics."""
