"""The imperative shell: watch state, call pure functions, act on what they say."""
