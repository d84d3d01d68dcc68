"""The Structs that cross a boundary, and their text and Markdown forms."""
