"""RunManager: the one door to runs."""

from __future__ import annotations

from satchel.access import access_to
from satchel.domain.principal import Principal
from satchel.opened import OpenStore
from satchel.runs.asking import RunAsking
from satchel.runs.attempts import RunAttempts
from satchel.texts import RunTexts


class RunManager(RunAsking, RunAttempts, RunTexts):
    """Runs of the sessions that its principal may see.

    Every method that writes takes ``idempotency_key`` and, where others could have changed what it builds on,
    ``expected_version``. ``attempt`` names the run that writes: ``Attempt(run_id, attempt)``.
    """

    def __init__(self, store: OpenStore | None = None, principal: Principal | None = None) -> None:
        self._access = access_to(store, principal, None)

    @property
    def principal(self) -> Principal:
        return self._access.principal
