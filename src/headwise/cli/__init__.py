"""The command line: a thin module for each command, over the Python API."""
