"""What AWS announces about instances: messages of a queue, status checks, blocks that end."""
