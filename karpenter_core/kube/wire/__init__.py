"""Decodes the API server's bytes into lean records."""
