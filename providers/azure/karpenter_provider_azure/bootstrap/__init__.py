"""What a node runs at its first boot."""
