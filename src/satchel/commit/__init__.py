"""Group commit: decisions that wait at the same time share one commit of the store."""

from satchel.commit.batch import Seen
from satchel.commit.committer import Committer
from satchel.commit.waiting import Committed

__all__ = ["Committed", "Committer", "Seen"]
