"""Headwise: the Transformer family in one toolkit."""

