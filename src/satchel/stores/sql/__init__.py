"""What the stores on database servers share: the doors, the pool, what is known without asking, rows as structs."""
