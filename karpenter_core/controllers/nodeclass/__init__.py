"""NodeClasses: what they refer to, and their end."""
