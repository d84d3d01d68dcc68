"""Redis: the connection or an embedded server, enqueueing, progress. Nothing is kept here that cannot be lost."""
