"""Computes conditions and status of CapacityBuffers."""
