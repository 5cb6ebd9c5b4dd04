"""The panes of the lab."""
