"""The command line: options, and the commands that print."""
