"""Launching: what is asked of EC2, what comes of it, and whose an instance then is."""
