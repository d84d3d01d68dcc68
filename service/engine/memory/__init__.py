"""Memory of every device from a header and flags: placement, cache, compute buffers, and what no engine prints.

The compute buffer of an engine is the high-water mark of a deterministic procedure: the graph of the worst-case batch
(`graphs/`), a device for every node and copies between devices (`scheduler`), and one best-fit arena for each device
(`allocator`). All three are replayed here.
"""
