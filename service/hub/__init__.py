"""The Hugging Face Hub, and GGUF files in general: list, pin, read headers by byte ranges."""
