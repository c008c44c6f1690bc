"""What the catalogue lists, in the order of years. No torch here."""
