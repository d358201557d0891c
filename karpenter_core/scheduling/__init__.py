"""Pure: which pods may go where, and on which machines they are cheapest."""
