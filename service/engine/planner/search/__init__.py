"""Which candidates exist, where their tensors go, and which of them are placed."""
