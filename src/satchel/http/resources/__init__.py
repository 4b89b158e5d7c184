"""One module for each resource: handlers that decode, make one call of a manager, and encode; and their routes."""
