"""Private database servers for tests, benchmarks and the demo: each in a temporary folder, on a free port of this machine,
stopped by whoever started it. No server that is already there is touched."""

from satchel.servers.mariadb import MariadbServer
from satchel.servers.patroni import PatroniCluster
from satchel.servers.postgres import PostgresServer
from satchel.servers.program import ServerMissing
from satchel.servers.redis import RedisServer
from satchel.servers.redis_cluster import RedisCluster

__all__ = ["MariadbServer", "PatroniCluster", "PostgresServer", "RedisCluster", "RedisServer", "ServerMissing"]
