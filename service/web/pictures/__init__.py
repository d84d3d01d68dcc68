"""Pictures drawn on the server as SVG: no script, no style of their own, colours by classes of the style sheet."""
