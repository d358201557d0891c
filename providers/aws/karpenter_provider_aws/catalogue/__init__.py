"""What a region sells: facts of instance types, what nodes of them hold, and their offerings."""
