"""Data that the package ships."""
