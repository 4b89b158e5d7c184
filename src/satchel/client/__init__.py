"""The managers over HTTP: `satchel.connect("http://…", key)`. Needs the extra `client` (httpx), imported at the first use.

==================  ================================================================================================
``connecting``      `connect`: an address and a key         ``connection``   one service: managers, requests, retries
``sessions``        SessionManager, by its parts: ``reading``, ``lifecycle``, ``content``, ``log``
``runs``            RunManager; what it says while it says it: ``texts``
``following``       a stream that comes back where it was cut           ``frames``       server-sent events, taken apart
``snapshots``       JSON into the library's own snapshots               ``refusals``     problems into its own errors
``understanding``   an answer that is none of a service's
==================  ================================================================================================
"""

from satchel.client.connecting import connect

__all__ = ["connect"]
