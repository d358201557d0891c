"""Generates the parts of the charts that follow from the code: `python -m charts.generate`."""
