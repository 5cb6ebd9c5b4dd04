"""The command-line inference process that prints the token protocol."""
