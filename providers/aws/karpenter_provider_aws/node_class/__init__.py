"""Resolves, validates and finalizes EC2NodeClasses."""
