"""Other programs' models in and out: Hugging Face folders, GGUF files, CTranslate2, ARPA."""
