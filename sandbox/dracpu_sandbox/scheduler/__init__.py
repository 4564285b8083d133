"""A small scheduler that implements Dynamic Resource Allocation."""
