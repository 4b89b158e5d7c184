"""The one door to sessions, and its parts: one module for each thing a session has."""

from satchel.sessions.manager import SessionManager

__all__ = ["SessionManager"]
