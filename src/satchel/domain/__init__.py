"""What things are, and which changes are legal. No I/O, no clock, no randomness."""
