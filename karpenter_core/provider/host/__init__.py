"""Runs plug-ins: loads them, calls their hooks, checks and batches what passes."""
