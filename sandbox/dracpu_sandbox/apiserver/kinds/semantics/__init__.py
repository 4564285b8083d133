"""What the API server demands of built-in objects beyond their types, and what it fills in."""
