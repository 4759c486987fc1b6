"""The command `suture`: everything of the lower layers, put together for a person at a terminal."""
