"""A small scheduler that follows the rules of Dynamic Resource Allocation."""
