"""Schedules pods onto nodes and new claims at the lowest price (pure)."""
