"""The code blocks of README.md and docs/: found (`blocks`), read (`commands`), run (`running`), written (`writing`)."""
