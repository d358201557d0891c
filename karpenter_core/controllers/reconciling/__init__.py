"""Runs controllers: queues, loops, waits, failure counts and freshness."""
