"""Evaluates NodeOverlays."""
