"""Compiles a problem into integers and columns, once for a pass."""
