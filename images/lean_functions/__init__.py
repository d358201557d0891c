"""Functions that take the place of larger ones in images; see lean_modules.py."""
