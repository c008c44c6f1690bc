"""Configs: frozen, validated values, importable without torch."""
