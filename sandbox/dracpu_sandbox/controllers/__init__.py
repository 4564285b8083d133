"""What a controller manager does for claims and pods."""
