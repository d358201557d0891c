"""Voluntary disruption: look, wait, look again, act."""
