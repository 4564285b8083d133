"""The version, in the one place that the build reads it from.

Asking `importlib.metadata` for it at run time would load modules of a mebibyte, for zip files and mail, on every node.
"""

__version__ = "0.1.0"
