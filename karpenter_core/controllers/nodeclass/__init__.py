"""Resolves, hashes and finalises NodeClasses."""
