"""Which contender comes first, among predictions, measurements and the command in use."""
