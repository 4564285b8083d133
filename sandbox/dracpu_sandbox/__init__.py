"""The sandbox: a whole cluster in one process, for newcomers and for tests."""
