"""What a candidate costs: bytes, seconds, whether it fits, and the bound before it is placed."""
