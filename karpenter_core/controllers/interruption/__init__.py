"""Handles interruptions that clouds announce for instances."""
