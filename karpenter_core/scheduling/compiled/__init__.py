"""A problem as integers and columns, compiled once for all plans of a pass."""
