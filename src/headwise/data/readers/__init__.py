"""Readers of text formats, one module for each; `readers/tables.py` maps `data.format` to its reader."""
