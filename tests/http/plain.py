"""What a client needs that speaks plain HTTP only."""

from __future__ import annotations

import ssl

# Without a `verify` of its own each client reads the machine's certificates, which takes longer than most of the tests.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
