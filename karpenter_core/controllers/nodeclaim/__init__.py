"""The life of a claim, and the collection of what fell out of it."""
