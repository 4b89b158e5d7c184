"""Sessions in this process's memory: private, gone with it."""

from satchel.stores.memory.store import MemoryStore, process_clock

__all__ = ["MemoryStore", "process_clock"]
