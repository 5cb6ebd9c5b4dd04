"""The command table: one thin line per command, each calling into a room."""
