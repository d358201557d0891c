"""Bootstraps nodes: ACK's attach script, kubelet settings, user data."""
