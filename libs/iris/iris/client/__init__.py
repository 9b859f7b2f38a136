"""The Python SDK. Its public names are those of `iris`; see also `iris.cli`, the command line."""
