"""Instance types: what the region sells, what a node of each holds, how each can be bought."""
