"""All programs, in the order in which they are run."""

from __future__ import annotations

from tests.proof.chaos import CHAOS
from tests.proof.cut_off import CUT_OFF
from tests.proof.exactly_once import EXACTLY_ONCE
from tests.proof.failing_sync import FAILING_SYNC
from tests.proof.failover import FAILOVER
from tests.proof.full_disk import FULL_DISK
from tests.proof.full_memory import FULL_MEMORY
from tests.proof.hostile import HOSTILE
from tests.proof.kills import KILLS
from tests.proof.linearisable import LINEARISABLE
from tests.proof.power_cut import POWER_CUT
from tests.proof.program import Program
from tests.proof.soak import SOAK

PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        LINEARISABLE,
        KILLS,
        FAILOVER,
        CUT_OFF,
        POWER_CUT,
        FULL_DISK,
        FULL_MEMORY,
        FAILING_SYNC,
        EXACTLY_ONCE,
        CHAOS,
        HOSTILE,
        SOAK,
    )
}
