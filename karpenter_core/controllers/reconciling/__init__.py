"""The machinery that runs controllers: queues, loops, waits, failure counts and freshness."""
