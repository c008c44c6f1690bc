"""See a Transformer think, in the browser: `headwise studio`."""
