"""Runs the controller of CapacityBuffers."""
