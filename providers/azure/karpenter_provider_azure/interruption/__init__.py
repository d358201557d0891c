"""Evictions and other announced events."""
