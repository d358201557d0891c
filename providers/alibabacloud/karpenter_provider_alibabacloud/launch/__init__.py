"""Launching: what is asked of ECS, and what comes of it."""
