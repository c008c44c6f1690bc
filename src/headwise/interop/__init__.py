"""Import and export of models: Hugging Face folders, GGUF files, CTranslate2, ARPA."""
