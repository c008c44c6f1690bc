"""What the studio and services have in common: who may ask, how much, and what an answer may do."""
