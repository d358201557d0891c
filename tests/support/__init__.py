"""Machinery of this repository's own tests: control planes, processes, problems."""
