"""The one door to runs, and its parts: what becomes of a run from the moment when it is added."""

from satchel.runs.checks import LEASE, checked_duration, checked_lease, checked_text
from satchel.runs.manager import RunManager

__all__ = ["LEASE", "RunManager", "checked_duration", "checked_lease", "checked_text"]
