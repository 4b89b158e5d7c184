"""The databases that Satchel can keep sessions in; each implements ``satchel.store.Store``."""
