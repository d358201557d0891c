"""Makes several plans for one problem and keeps the cheapest valid one."""
