"""Places pod classes on open nodes and on new claims."""
