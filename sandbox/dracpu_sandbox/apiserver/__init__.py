"""The API server: objects in memory, served over HTTP as kubectl and controllers expect."""
