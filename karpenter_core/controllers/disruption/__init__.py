"""Disrupts nodes voluntarily: plan, wait, validate, execute."""
