"""What a call that is repeated under its key is told: its first answer. What no idempotency record holds, the log tells again."""
