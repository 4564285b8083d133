"""Stories: what happens in a cluster, told and checked step by step; one short file each."""
