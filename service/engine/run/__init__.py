"""The resolved run: what a command is once an engine of one build, on one machine, has understood it.

`resolved.ResolvedRun` is one frozen value that has for every tensor its device, its type after loading, the device that
computes with it, and whether it crosses to another; for every cache its device and type; for every setting its value
and where that came from; the order of the devices; what is page-locked and copied. Memory, speed, rules, planner and
`check` read it.

`weights`: tensors after loading, and where they are used. `copies`: which of them go from RAM to a GPU for a batch.
"""
