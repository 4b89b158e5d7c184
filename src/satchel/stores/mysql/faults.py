"""What the errors of a server and of the driver mean."""

from __future__ import annotations

from asyncmy import errors

from satchel.errors import InvalidInput, SatchelError, StoreBusy, StoreCorrupt, StoreUnavailable
from satchel.stores.mysql.address import Address
from satchel.stores.sql.pool import Faults
from satchel.stores.sql.reaching import (
    NotReached,
    no_database,
    no_right,
    no_right_to,
    refused,
    shown_place,
    silent,
    unreached,
)

DEADLOCK = 1213
DUPLICATE = 1062

LOCK_WAIT = 1205

_AGAIN = frozenset({DEADLOCK, LOCK_WAIT, 1020})  # the last: a row that changed meanwhile
_CLIENT = range(2000, 3000)  # the driver's own: the server cannot be reached, or went away
_LOST = frozenset({1053, 1077, 1079, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031})
_INTERRUPTED = frozenset({1317, 3024, 1969})  # somebody ended the statement: nothing of it is there
_FULL_OF_CONNECTIONS = frozenset({1040, 1203, 1226})
_READ_ONLY = frozenset({1290, 1836, 1792})
_NOT_READY = frozenset({1047})  # a node that has lost its cluster
_DISK_FULL = frozenset({1021, 1114})
_CORRUPT = frozenset({1034, 1035, 1194, 1195, 1712, 1877})
_TOO_LARGE = frozenset({1118, 1153, 1301, 1406})
_REFUSED = frozenset({1045, 1251, 1698, 1524, 1130})  # the password, the user, how it proves itself, whence it comes
_NO_RIGHT = 1044
_NO_RIGHTS = frozenset({_NO_RIGHT, 1142, 1143, 1227, 1370})
_NO_DATABASE = 1049
_VALUES = ("22", "23")  # SQLSTATE: a value that a column does not take, a key that is there

GONE = (OSError, TimeoutError)
DRIVER_ERRORS = (errors.MySQLError, *GONE)


def code_of(error: BaseException) -> int:
    """The server's or the driver's; 0 when there is none."""
    found = error.args[0] if isinstance(error, errors.MySQLError) and error.args else 0
    return found if isinstance(found, int) else 0


def _state_of(error: BaseException) -> str:
    found = getattr(error, "sqlstate", None)
    return found if isinstance(found, str) else ""


def is_lost(error: BaseException) -> bool:
    """Nobody knows what became of the statement."""
    if isinstance(error, errors.MySQLError):
        code = code_of(error)
        # Without a code it is the driver that cannot go on: not connected, packets out of order.
        return code == 0 or code in _CLIENT or code in _LOST
    return isinstance(error, GONE)


def is_worth_another_try(error: BaseException) -> bool:
    """Nothing was stored, and the same may succeed. At a COMMIT too: what was decided on a revision lands at most once."""
    return code_of(error) in _AGAIN or code_of(error) in _INTERRUPTED


def is_waited_for(error: BaseException) -> bool:
    """A lock that somebody kept for as long as a statement waits."""
    return code_of(error) == LOCK_WAIT


def is_duplicate(error: BaseException) -> bool:
    return code_of(error) == DUPLICATE


def is_read_only(error: BaseException) -> bool:
    """The server takes no writes: it became a replica, or lost its cluster."""
    return code_of(error) in _READ_ONLY or code_of(error) in _NOT_READY


def is_bad_change(error: BaseException) -> bool:
    """It cannot be stored, however often it is tried: a key that is there, a value that is none, a row that is too large."""
    return code_of(error) in _TOO_LARGE or _state_of(error)[:2] in _VALUES


def leaves_usable(error: BaseException) -> bool:
    """The connection is at rest after ``error``: the server refused a statement, or the fault was ours."""
    return isinstance(error, Exception) and not is_lost(error) and not is_read_only(error)


def may_pass(error: BaseException) -> bool:
    """Wrong passwords and missing databases stay as they are."""
    if isinstance(error, NotReached):
        return error.may_pass
    code = code_of(error)
    return is_lost(error) or code in _FULL_OF_CONNECTIONS or code in _NOT_READY


def not_reached(error: BaseException, address: Address) -> NotReached | None:
    """What was met when connecting, if it is known what to do about it."""
    code = code_of(error)
    if code in _REFUSED:
        return refused(has_password=bool(address.password))
    if code == _NO_DATABASE:
        return no_database(address.database, mend=f"CREATE DATABASE `{address.database}`;")
    if code == _NO_RIGHT:
        grant = f"GRANT ALL ON `{address.database}`.* TO the user of the store's address;  (or CREATE DATABASE first)"
        return no_right_to(address.database, mend=grant)
    if code and code not in _CLIENT:
        return None
    return unreached(error, place=address.unix_socket or shown_place(address.host, address.port), host=address.host)


def meaning_of(error: BaseException) -> SatchelError:
    """What a caller hears: no text of the server's, which may show statements and values."""
    if isinstance(error, NotReached):
        return error.meaning()
    code = code_of(error)
    if is_worth_another_try(error):
        return StoreBusy("other transactions kept the rows; nothing was stored")
    if code in _FULL_OF_CONNECTIONS:
        return StoreBusy("the server takes no more connections; nothing was stored")
    if code in _NO_RIGHTS:
        return no_right(mend="GRANT ALL ON the store's database TO the user of its address;")
    if code in _CORRUPT:
        return StoreCorrupt("the database")
    if code in _DISK_FULL:
        return StoreUnavailable("the disk is full")
    if is_read_only(error):
        return StoreUnavailable("no server takes writes now")
    if is_bad_change(error):
        return InvalidInput(f"holds a value that this store cannot look for ({code})", field="request")
    if isinstance(error, TimeoutError):
        return silent()
    if code and not is_lost(error):
        return StoreUnavailable(f"the server says {type(error).__name__.removesuffix('Error')} ({code})")
    return StoreUnavailable(f"the server cannot be reached ({code or type(error).__name__})")


FAULTS = Faults(
    errors=DRIVER_ERRORS,
    meaning_of=meaning_of,
    is_lost=is_lost,
    is_worth_another_try=is_worth_another_try,
    is_read_only=is_read_only,
    is_bad_change=is_bad_change,
    leaves_usable=leaves_usable,
    may_pass=may_pass,
)
