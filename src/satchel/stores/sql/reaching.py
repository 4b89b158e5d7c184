"""Why no connection to a server came about, in the same words on every store. Nothing of the server's own text is shown, and
no password."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator

from satchel.errors import StoreUnavailable

_NUMBERS = re.compile(r"\[Errno (-?\d+)\]")
_IN_ADDRESS = "in the store's address"
_IS_UP = "see that the server runs and that no firewall stands between"


class NotReached(ConnectionError):
    """What a driver's error means that was met when connecting. ``may_pass``: the same may succeed."""

    def __init__(self, reason: str, *, mend: str, may_pass: bool = False) -> None:
        self.reason = reason
        self.mend = mend
        self.may_pass = may_pass
        super().__init__(reason)

    def meaning(self) -> StoreUnavailable:
        return StoreUnavailable(self.reason, mend=self.mend)


def silent() -> StoreUnavailable:
    return StoreUnavailable("the server does not answer", mend=_IS_UP)


def no_database(name: str, *, mend: str) -> NotReached:
    return NotReached(f"there is no database {name!r}", mend=f"{mend}  (or name another {_IN_ADDRESS})")


def no_right_to(name: str, *, mend: str) -> NotReached:
    return NotReached(f"the user may not use the database {name!r}", mend=mend)


def no_right(*, mend: str) -> StoreUnavailable:
    """Of a statement that the server refused."""
    return StoreUnavailable(
        "the user lacks rights that the store needs",
        mend=f"{mend}  (and to make the tables, `satchel migrate up` with an account that may)",
    )


def refused(*, has_password: bool) -> NotReached:
    """``has_password``: the address gives one."""
    return NotReached(
        "the password (or user) was refused" + ("" if has_password else "; the address gives no password"),
        mend=f"put the user and the password {_IN_ADDRESS} right (@ / : % of them as %40 %2F %3A %25), or see that the"
        " server lets this user in from this machine",
    )


def no_tls(place: str) -> NotReached:
    return NotReached(f"{place} does not speak TLS, or not as we do", mend=f"mend the TLS options {_IN_ADDRESS}")


def other_server(place: str, kind: str) -> NotReached:
    return NotReached(
        f"what answers at {place} is no {kind} server",
        mend=f"mend the host and the port {_IN_ADDRESS}",
        may_pass=True,  # a proxy whose server is away closes the connection too
    )


def unreached(error: BaseException, *, place: str, host: str) -> NotReached | None:
    """What the system said, however the driver wrapped it; None: it said nothing. ``place``: host and port, or a socket's path."""
    for cause in _causes(error):
        if isinstance(cause, NotReached):
            return cause
        if isinstance(cause, OSError) and "AF_UNIX path too long" in str(cause):
            return NotReached(
                f"the path of the socket is longer than this system takes: {place}",
                mend=f"name a shorter one {_IN_ADDRESS}",
            )
        if isinstance(cause, socket.gaierror) or (isinstance(cause, UnicodeError) and "idna" in str(cause)):
            mend = f"mend the host's name {_IN_ADDRESS}, or see that this machine can look it up: getent hosts {host}"
            return NotReached(f"host not found: {host}", mend=mend, may_pass=True)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NotReached(
                f"the certificate of {place} was not accepted",
                mend=f"name the authority that signed it {_IN_ADDRESS}, and the host as the certificate does",
            )
        if isinstance(cause, ssl.SSLError):
            return no_tls(place)
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError) and (numbers := _numbers(cause)):
            if numbers <= {errno.ECONNREFUSED} or (place.startswith("/") and numbers <= {errno.ENOENT}):
                mend = f"start the server, or mend the host and the port {_IN_ADDRESS}"
                return NotReached(f"nobody listens at {place}", mend=mend, may_pass=True)
            if numbers <= {errno.ENOENT}:
                mend = f"mend the names of files (certificates, keys) {_IN_ADDRESS}"
                return NotReached("a file that the address names is not there", mend=mend)
            names = ", ".join(sorted(errno.errorcode.get(number, str(number)) for number in numbers))
            return NotReached(f"{place} cannot be reached ({names})", mend=_IS_UP, may_pass=True)
    return None


def shown_place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _numbers(error: OSError) -> frozenset[int]:
    """Of a host with several addresses each has its own; asyncio puts them into one text."""
    if error.errno is not None:
        return frozenset({error.errno})
    return frozenset(int(number) for number in _NUMBERS.findall(str(error)))
