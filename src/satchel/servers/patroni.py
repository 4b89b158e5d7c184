"""A private PostgreSQL cluster that Patroni looks after: nodes of which one leads, and an etcd that knows which."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from satchel.servers.postgres import DATABASE, creation_of, programs, removal_of, tell
from satchel.servers.program import (
    STOP_PATIENCE,
    ServerMissing,
    account,
    children,
    end_watch,
    free_port,
    new_folder,
    remove,
    start,
    watch_over,
)

USER = "satchel"
PATIENCE = 90.0  # seconds for what a cluster does by itself
_HERE = "127.0.0.1"
_TRUST = ["local all all trust", f"host all all {_HERE}/32 trust", f"host replication all {_HERE}/32 trust"]
_SETTINGS: Mapping[str, str] = {
    "max_connections": "60",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
    "hot_standby": "on",
    "wal_log_hints": "on",  # by which a former leader finds back into the line
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}


def program(name: str) -> Path:
    """Raises ServerMissing."""
    found = shutil.which(name)
    if found is None:
        package = {"etcd": "etcd-server", "patroni": "patroni (with python3-etcd and python3-psycopg2)"}[name]
        raise ServerMissing(f"there is no {name} here: install the package {package}")
    return Path(found)


class PatroniNode:
    """One of them: Patroni, and the PostgreSQL that it starts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = free_port()
        self._rest = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def configure(self, *, bootstrap: Mapping[str, Any], etcd: int, bin_dir: Path) -> None:
        """JSON is YAML."""
        (self._folder / f"{self.name}.yml").write_text(
            json.dumps(
                {
                    "scope": "satchel",
                    "name": self.name,
                    "restapi": {"listen": f"{_HERE}:{self._rest}", "connect_address": f"{_HERE}:{self._rest}"},
                    "etcd": {"hosts": [f"{_HERE}:{etcd}"]},
                    "bootstrap": bootstrap,
                    "postgresql": {
                        "listen": f"{_HERE}:{self.port}",
                        "connect_address": f"{_HERE}:{self.port}",
                        "data_dir": str(self._data),
                        "bin_dir": str(bin_dir),
                        "pgpass": str(self._folder / f"{self.name}.pgpass"),
                        "authentication": {
                            "superuser": {"username": USER, "password": "-"},
                            "replication": {"username": "replicator", "password": "-"},
                            "rewind": {"username": "rewinder", "password": "-"},
                        },
                        "parameters": {"unix_socket_directories": str(self._folder)},
                        "pg_hba": _TRUST,
                    },
                }
            )
        )

    @property
    def _data(self) -> Path:
        return self._folder / self.name

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once: the cluster says when it is there."""
        self._process = start(
            [program("patroni"), self._folder / f"{self.name}.yml"],
            folder=self._folder,
            owner=account("postgres"),
            log=self._folder / f"{self.name}.log",
        )
        self._watcher = watch_over(self._process, self._data, signal_name="TERM")

    def ask(self, path: str, *, post: Mapping[str, str] | None = None, patience: float = 2.0) -> tuple[int, str]:
        """The status, and what was answered. Raises OSError."""
        connection = http.client.HTTPConnection(_HERE, self._rest, timeout=patience)
        try:
            if post is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(post), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        return answer.status, said

    def told(self) -> dict[str, Any]:
        """What its Patroni says of it; nothing, if nobody answers."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self.ask("/patroni")[1])
            return found
        return {}

    def followers(self) -> dict[str, str]:
        """How each that follows it does so, by name: `sync`, or `async`."""
        streams = self.told().get("replication", ())
        return {one["application_name"]: one["sync_state"] for one in streams if one["state"] == "streaming"}

    def says(self, path: str) -> bool:
        """`/primary`, `/sync`, `/replica`: whether it is one."""
        if not self.is_running:
            return False
        with contextlib.suppress(OSError):
            return self.ask(path)[0] == 200
        return False

    @property
    def postmaster(self) -> int | None:
        try:
            return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None

    def _processes(self, title: str) -> list[int]:
        """Those of its PostgreSQL that call themselves so."""
        found = []
        for pid in children(self.postmaster or 0):
            with contextlib.suppress(OSError):
                if title in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                    found.append(pid)
        return found

    def pause_senders(self) -> int:
        """What is committed here reaches no standby any more; how many standbys that are."""
        senders = self._processes("walsender")
        for pid in senders:
            os.kill(pid, signal.SIGSTOP)
        return len(senders)

    def _all(self) -> list[int]:
        assert self._process is not None, "it was not started"
        postmaster = self.postmaster
        return [self._process.pid, *([] if postmaster is None else [postmaster, *children(postmaster)])]

    def freeze(self) -> None:
        """It says nothing any more and closes no connection, as a machine that hangs, until it is thawed."""
        _kill(self._all(), signal.SIGSTOP)

    def thaw(self) -> None:
        _kill(self._all(), signal.SIGCONT)

    def kill(self) -> None:
        """Patroni and the whole of PostgreSQL, as by `kill -9`: as when the machine dies."""
        assert self._process is not None
        if self._watcher is not None:
            end_watch(self._watcher)
            self._watcher = None
        self.freeze()  # it starts nothing any more
        _kill(reversed(self._all()), signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """In peace; twice is fine."""
        if not self.is_running:
            return
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def log(self) -> str:
        path = self._folder / f"{self.name}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""


def _kill(pids: Iterable[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


class PatroniCluster:
    """``synchronous``: no commit is acknowledged before a standby has it. ``settings`` are those of `postgresql.conf`. Use it
    as a context manager, or ``start`` and ``stop``. Its database `satchel` is there from the start."""

    def __init__(self, *, nodes: int = 3, synchronous: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._count = nodes
        self._synchronous = synchronous
        self._settings = {**_SETTINGS, **(settings or {})}
        self._folder: Path | None = None
        self._etcd: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self.nodes: list[PatroniNode] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def url(self, database: str = DATABASE) -> str:
        """Names all nodes; of these the leader is used."""
        hosts = ",".join(f"{_HERE}:{node.port}" for node in self.nodes)
        return f"postgresql://{USER}@{hosts}/{database}?target_session_attrs=read-write"

    def start(self) -> None:
        """Raises ServerMissing, RuntimeError (with the servers' own words)."""
        bin_dir = programs()
        program("patroni")
        etcd = program("etcd")
        self._folder = folder = new_folder("satchel-patroni-", account("postgres"))
        try:
            port = self._start_etcd(etcd, folder)
            for number in range(self._count):
                node = PatroniNode(f"n{number + 1}", folder)
                node.configure(bootstrap=self._bootstrap(), etcd=port, bin_dir=bin_dir)
                self.nodes.append(node)
            first, *others = self.nodes
            first.start()
            self.wait_until(lambda: self.leader() is first, "no node leads")
            for node in others:
                node.start()
            self.wait_until(self.is_whole, "the standbys do not follow")
            self.create_database(DATABASE)  # before they were made, their copies would wait for a checkpoint
        except BaseException:
            self.stop()
            raise

    def create_database(self, name: str) -> str:
        """Its address; one that is there is left as it is."""
        tell(self.url("postgres"), creation_of(name), by=programs())
        return self.url(name)

    def drop_database(self, name: str) -> None:
        tell(self.url("postgres"), removal_of(name), by=programs())

    def _start_etcd(self, etcd: Path, folder: Path) -> int:
        port, peers = free_port(), free_port()
        here, there = f"http://{_HERE}:{port}", f"http://{_HERE}:{peers}"
        self._etcd = start(
            [
                *(etcd, "--name", "e1", "--data-dir", str(folder / "etcd"), "--initial-cluster", f"e1={there}"),
                "--enable-v2",  # Patroni reads it as it is; of the newer interface it keeps a copy that may be old
                *("--listen-client-urls", here, "--advertise-client-urls", here),
                *("--listen-peer-urls", there, "--initial-advertise-peer-urls", there),
            ],
            folder=folder,
            owner=account("postgres"),
            log=folder / "etcd.log",
        )
        self._watcher = watch_over(self._etcd, folder / "etcd", signal_name="TERM")
        return port

    def _bootstrap(self) -> dict[str, Any]:
        return {
            "dcs": {
                "ttl": 20,  # seconds that a leader which says nothing stays one; Patroni takes no less
                "loop_wait": 2,
                "retry_timeout": 3,
                "maximum_lag_on_failover": 1 << 20,
                "master_start_timeout": 0,  # who dies is not waited for
                "synchronous_mode": self._synchronous,
                "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": self._settings},
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums", {"auth": "trust"}],
            "pg_hba": _TRUST,
        }

    def leader(self) -> PatroniNode | None:
        return next((node for node in self.nodes if node.says("/primary")), None)

    def is_whole(self) -> bool:
        """One leads, all others follow it, and one of them has everything that is acknowledged."""
        leader = self.leader()
        if leader is None:
            return False
        others = [node for node in self.nodes if node.is_running and node is not leader]
        following = leader.followers()
        timeline = leader.told().get(
            "timeline"
        )  # a former leader follows a little while on its own, and is rewound then
        return all(node.name in following and node.told().get("timeline") == timeline for node in others) and (
            not self._synchronous or any(following[node.name] == "sync" and node.says("/sync") for node in others)
        )

    def switch_over(self) -> PatroniNode:
        """As planned, to a standby that Patroni chooses: the new leader."""
        former = self.leader()
        assert former is not None, "no node leads"
        status, said = former.ask("/switchover", post={"leader": former.name}, patience=PATIENCE)
        if status != 200:
            raise RuntimeError(f"no switchover: {said}")
        return self.wait_for_another(former)

    def wait_for_another(self, former: PatroniNode) -> PatroniNode:
        self.wait_until(lambda: self.leader() not in (None, former), "nobody takes the lead")
        found = self.leader()
        assert found is not None
        return found

    def wait_until(self, is_so: Callable[[], bool], otherwise: str, *, patience: float = PATIENCE) -> None:
        """Raises RuntimeError."""
        deadline = time.monotonic() + patience
        while not is_so():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{otherwise}: {self.log()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """For good; twice is fine."""
        for node in self.nodes:
            if node.is_running:
                node.kill()  # nobody takes over while the others are stopped one by one
        if self._watcher is not None:
            end_watch(self._watcher)
            self._watcher = None
        if self._etcd is not None and self._etcd.poll() is None:
            self._etcd.terminate()
            try:
                self._etcd.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self._etcd.kill()
                self._etcd.wait()
        if self._folder is not None:
            remove(self._folder)
            self._folder = None

    def keep_logs(self, folder: Path) -> None:
        """A copy of all that the nodes said, for after their end."""
        assert self._folder is not None
        for log in self._folder.glob("*.log"):
            shutil.copy(log, folder)

    def log(self) -> str:
        """What the nodes said."""
        return "\n".join(f"{node.name}: {node.log()}" for node in self.nodes)
