"""Announces interruptions of instances: reclaims, system events, stops."""
