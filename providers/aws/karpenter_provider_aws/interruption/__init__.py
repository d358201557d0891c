"""Announces interruptions of instances: messages, checks, block ends."""
