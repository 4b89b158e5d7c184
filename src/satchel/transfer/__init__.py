"""Sessions on the move: export, import, fork. All three go through the log: what is written is replayed from it.

The format is one JSON object a line: ``source``, ``licence``, ``session_id``, ``messages`` (OpenAI chat), ``meta``; and
``satchel``, with everything that these five lack. A message's text is copied byte for byte in both directions.
"""

from satchel.transfer.exporting import export_all, export_session
from satchel.transfer.forking import fork
from satchel.transfer.importing import import_sessions

__all__ = ["export_all", "export_session", "fork", "import_sessions"]
