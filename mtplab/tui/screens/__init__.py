"""The screens of the lab."""
