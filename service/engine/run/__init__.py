"""The resolved run: what a command is once an engine of one build, on one machine, has understood it.

`resolved.ResolvedRun` is the one frozen value that says of every tensor its device, its type after loading, the device
that computes with it and what crosses; of every cache its place and type; of every setting its value and where that
came from; the order of the devices; what is pinned and copied. Memory, speed, rules, planner and `check` read it.

`weights`: tensors after loading, and where they are used. `copies`: which of them go from RAM to a GPU for a batch.
"""
