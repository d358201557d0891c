"""Serves the dashboard, a read-only web page (`--dashboard-port`)."""
