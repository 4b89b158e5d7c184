"""``satchel chat``: a person talks to an agent in the terminal."""
