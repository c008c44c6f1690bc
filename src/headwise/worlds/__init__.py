"""Environments to act in, small pixel worlds of our own among them, and logs of episodes."""
