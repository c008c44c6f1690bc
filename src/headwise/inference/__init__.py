"""A trained model, ready to use: translate, generate, classify, tag, detect."""
