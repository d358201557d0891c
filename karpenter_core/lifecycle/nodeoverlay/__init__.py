"""Validates and evaluates NodeOverlays, and sets their conditions (pure)."""
