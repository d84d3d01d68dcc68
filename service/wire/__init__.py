"""The Structs that cross a boundary: the public API and the agent protocol."""
