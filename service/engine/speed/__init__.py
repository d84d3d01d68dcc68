"""Speed: PP and TG of a config at any depth, with intervals, and where the time goes."""
