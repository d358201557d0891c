"""Launches of virtual machines."""
