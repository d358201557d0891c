"""Launches, registers, drifts and terminates claims; collects garbage."""
