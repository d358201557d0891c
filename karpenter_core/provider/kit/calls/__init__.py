"""Makes calls to a cloud's API: retries, pauses, pages and metrics, with any client."""
