"""Node images: families, galleries, versions."""
