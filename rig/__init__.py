"""The measuring rig: an engine with the host code of its CUDA back end, on cards whose memory is only addresses.

`python -m rig.build` makes it of a source tree, `python -m rig.measure` measures with it: docs/rig.md.
"""
