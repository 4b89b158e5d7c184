"""A Redis Cluster that is killed server by server, and is to the programs what one server is."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Self

from satchel.servers import RedisCluster, RedisServer

MASTERS = 3
NODE_TIMEOUT = 1.0  # seconds until the others hold one for dead


class Fleet:
    """``kill`` kills a master; ``start_again`` brings it back, each second time only when its replica has taken its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster = RedisCluster(masters=MASTERS, node_timeout=NODE_TIMEOUT)
        self._turns = itertools.count()
        self._killed: list[RedisServer] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def url(self) -> str:
        return self._cluster.url() + "?connect_timeout=30"

    @property
    def pid(self) -> int:
        return self._cluster.servers[0].pid

    def start(self) -> None:
        former, tempfile.tempdir = tempfile.tempdir, str(self._folder)
        try:
            self._cluster.start()
        finally:
            tempfile.tempdir = former

    def kill(self) -> None:
        masters = self._cluster.masters()
        self._killed.append(masters[next(self._turns) % len(masters)])
        self._killed[-1].kill()

    def start_again(self) -> None:
        """Returns once it is whole: the next to be killed has a replica."""
        if len(self._killed) % 2:
            self._cluster.wait_until(
                lambda: len(self._cluster.masters()) == MASTERS, "no replica takes the place of the killed master"
            )
        self._killed[-1].start_again()
        self._cluster.wait_until(self._cluster.is_whole, "the killed one does not come back")

    def stop(self) -> None:
        self._cluster.stop()
