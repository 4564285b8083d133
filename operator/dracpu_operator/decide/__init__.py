"""Pure decisions: which config a node follows, which nodes change next, what a status says. No I/O and no clock."""
