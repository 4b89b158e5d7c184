"""Two nodes of a Galera cluster, each with a store open on it: what the docs say of such a cluster."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import satchel
from satchel import SessionManager, StoreBusy, StoreUnavailable
from satchel.servers import MariadbServer
from satchel.servers.program import free_port
from tests.servers.mysql import server
from tests.stores.on_a_server import ADA, said

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def node(port: int, *peers: int) -> MariadbServer:
    provider = next((path for path in PROVIDERS if Path(path).exists()), None)
    if provider is None or shutil.which("rsync") is None:
        pytest.skip("there is no Galera here: install the packages galera-4 and rsync")
    own = f"gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{free_port()};gcache.size=32M"
    return MariadbServer(
        settings={
            "wsrep_on": "ON",
            "wsrep_provider": provider,
            "wsrep_cluster_name": "satchel",
            "wsrep_cluster_address": "gcomm://" + ",".join(f"127.0.0.1:{peer}" for peer in peers),
            "wsrep_node_address": f"127.0.0.1:{port}",
            "wsrep_provider_options": own,
            "wsrep_sst_method": "rsync",
            "wsrep_sst_receive_address": f"127.0.0.1:{free_port()}",
            "binlog_format": "ROW",
            "innodb_autoinc_lock_mode": "2",
            "wsrep_slave_threads": "2",
        }
    )


@pytest.fixture
def nodes() -> Iterator[tuple[MariadbServer, MariadbServer]]:
    server()  # installs, or skips
    ports = free_port(), free_port()
    with node(ports[0]) as first, node(ports[1], ports[0]) as second:
        yield first, second


async def test_a_cluster_keeps_every_write_once_whichever_node_it_comes_to_and_outlives_a_node(
    nodes: tuple[MariadbServer, MariadbServer],
) -> None:
    first, second = nodes
    option = "?connect_timeout=1"
    async with satchel.open(first.url() + option) as one, satchel.open(second.url() + option) as other:
        here, there = SessionManager(one, ADA), SessionManager(other, ADA)
        session_id = (await here.create_session()).session_id

        # Both nodes change one session at once: what conflicts is found at the COMMIT, and decided again.
        async def write(manager: SessionManager, name: str) -> None:
            for turn in range(40):
                await manager.append_message(session_id, said(f"{name}-{turn}"))

        await asyncio.gather(*(write(who, f"{n}{k}") for n, who in enumerate((here, there)) for k in range(5)))
        for manager in (here, there):
            session = await manager.get_session(session_id, include=())
            assert session.version == session.last_seq == session.message_count == 400

        # One key at both at once is one message.
        for turn in range(20):
            both = await asyncio.gather(
                *(who.append_message(session_id, said("same"), idempotency_key=f"k{turn}") for who in (here, there))
            )
            assert both[0].seq == both[1].seq

        # Who hears of a write at one node finds it at the other.
        for turn in range(50):
            written = await here.append_message(session_id, said(str(turn)))
            assert (await there.get_session(session_id, include=())).version >= written.version

        # A node is killed; the other, which alone is no majority, refuses everything until somebody says that it is the cluster.
        acknowledged: list[str] = []

        async def write_until_it_dies(name: str) -> None:
            for turn in range(100_000):
                await here.append_message(session_id, said(f"last {name}-{turn}"), idempotency_key=f"{name}-{turn}")
                acknowledged.append(f"last {name}-{turn}")

        writers = [asyncio.create_task(write_until_it_dies(str(n))) for n in range(8)]
        while len(acknowledged) < 100:  # noqa: ASYNC110  # a test may look now and then
            await asyncio.sleep(0.02)
        await asyncio.to_thread(first.kill)
        assert all(
            isinstance(found, satchel.OutcomeUnknown | StoreUnavailable | StoreBusy)
            for found in await asyncio.gather(*writers, return_exceptions=True)
        )
        async with asyncio.timeout(30):
            while True:
                try:
                    await there.append_message(session_id, said("alone"))
                except (StoreUnavailable, StoreBusy):
                    break
                await asyncio.sleep(0.1)
        shell = second.shell("mysql")
        shell.communicate(b"SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES';")
        async with asyncio.timeout(30):
            while True:
                try:
                    await there.append_message(session_id, said("the cluster"))
                    break
                except (StoreUnavailable, StoreBusy):
                    await asyncio.sleep(0.1)
        stored: list[str] = []
        after = 0
        while page := (await there.messages(session_id, after=after, limit=1000)).items:
            stored += [str(message.content) for message in page]
            after = page[-1].seq
        assert set(acknowledged) <= set(stored)
        assert len({text for text in stored if text.startswith("last")}) == sum(
            text.startswith("last") for text in stored
        )
