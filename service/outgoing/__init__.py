"""Everything that the server asks of others over HTTP goes out through here: to hosts that settings name, nowhere else.

The command line's client of a service (`service/cli/remote.py`) and the agent's own (`workers/agent/`) run on other
people's machines, for them, and are not part of this.
"""
