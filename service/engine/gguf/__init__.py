"""GGUF: what a file says of itself before its weights begin."""
