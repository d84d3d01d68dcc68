"""All outgoing HTTP of the server passes through here: to hosts that settings name, and nowhere else.

The command line's client of a service (`service/cli/remote.py`) and the agent's own (`workers/agent/`) run on other
people's machines, on their behalf, and are not part of this.
"""
