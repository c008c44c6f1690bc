"""How much one request may ask for."""

MOST_CHARACTERS = 20_000  # of a text
MOST_TOKENS = 1024  # of a text, read and written
MOST_JUDGED = 128  # tokens of an output
