"""The terminal lab: a viewer of a session's journal."""
