"""The command line: options.py parses it, and each command except `run` has a module of its own."""
