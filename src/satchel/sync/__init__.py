"""The same managers for blocking code: every method as in ``satchel``, without ``await``.

    from satchel.sync import SessionManager, open

    with open("sqlite:///agent.db") as store:
        manager = SessionManager(store, Principal.agent("shop", tenant_id="acme", acting_for="ada"))

``connect("http://…", key)`` gives them over HTTP.

The work is done on one daemon thread that the first call starts. Any number of threads may use one manager: their writes
share commits. A call waits for its answer; Ctrl-C ends the waiting and the work. Inside a running event loop a call blocks
that loop, as any blocking call does: use the managers of ``satchel`` there. In a process that was forked after the first
call, open the store again and make new managers; the old ones raise StoreMisused.
"""

from satchel.sync.connecting import Connection, connect
from satchel.sync.opening import OpenStore, open
from satchel.sync.plain import Iteration
from satchel.sync.runs import RunManager
from satchel.sync.sessions import SessionManager
from satchel.sync.sweeper import Sweeper
from satchel.sync.working import RunContext

__all__ = [
    "Connection",
    "Iteration",
    "OpenStore",
    "RunContext",
    "RunManager",
    "SessionManager",
    "Sweeper",
    "connect",
    "open",
]
