"""Checks a node's kubelet settings, and computes what they amount to."""
