"""Executes runs that wait for an agent: any session's, several at once, in as many processes as one likes."""

from satchel.worker.agents import Served, load_agent
from satchel.worker.threads import is_code_left
from satchel.worker.worker import GRACE, Worker

__all__ = ["GRACE", "Served", "Worker", "is_code_left", "load_agent"]
