"""The rig's own tests: what needs no built engine."""
