"""Commands of both engines: written for today's builds, read in any spelling seen in the wild."""
