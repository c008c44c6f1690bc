"""Placement of operators on devices: operator graphs, a simulator of devices, and heuristics."""
