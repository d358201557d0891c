"""Builds the file systems of the container images, with or without a container engine."""
