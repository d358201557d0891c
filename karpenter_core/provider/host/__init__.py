"""Runs plug-ins: loads them, calls hooks, checks values, batches calls."""
