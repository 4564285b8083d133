"""What operator and agent share: the objects, their names and the cpuset notation."""
