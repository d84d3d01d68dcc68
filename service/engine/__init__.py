"""Pure knowledge: GGUF headers, models, hardware, memory, speed, placement, commands. No I/O, no clock."""
