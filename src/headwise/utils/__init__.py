"""Atomic files, CPU count, optional dependencies, plug-ins."""
