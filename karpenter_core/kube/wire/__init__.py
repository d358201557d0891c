"""From the API server's bytes to lean records, and nothing in between."""
