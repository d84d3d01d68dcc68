"""The Structs of the public API and the agent protocol, with their text and Markdown forms."""
