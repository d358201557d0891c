"""Resolves, validates and finalizes ECSNodeClasses."""
