"""Redis: the connection or an embedded server, enqueueing, progress. Losing everything in it does no lasting harm."""
