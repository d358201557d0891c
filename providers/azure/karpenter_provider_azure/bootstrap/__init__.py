"""The first boot of nodes: custom data and the bootstrapping service."""
