"""The workflows that need no Python of their own: a Task names one and gives its input."""
