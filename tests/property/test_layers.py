"""Patches one after another are one patch."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from satchel.domain.layer import then
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.memory import FIELDS, LISTS, WorkingMemory, admit_memory, admit_patch

items = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)
notes = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 2), max_size=3)


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


values = some(
    {"goal": st.sampled_from(["", "g", "h"]), "next_action": st.just("n"), "notes": notes} | dict.fromkeys(LISTS, items)
)
patches = some(
    {
        "clear": st.lists(st.sampled_from(FIELDS), max_size=2),
        "remove": some({"notes": items} | dict.fromkeys(LISTS, items)),
        "append": some(dict.fromkeys(LISTS, items)),
        "set": values,
    }
)


def fields(memory: WorkingMemory) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in FIELDS}


@given(memory=values, several=st.lists(patches, max_size=4))
def test_patches_one_after_another_are_one_patch(memory: dict[str, Any], several: list[dict[str, Any]]) -> None:
    held = admit_memory(memory, limits=DEFAULT_LIMITS)
    together = admit_patch({}, limits=DEFAULT_LIMITS)
    one_by_one = held
    for patch in several:
        admitted = admit_patch(patch, limits=DEFAULT_LIMITS)
        one_by_one = admitted.apply(one_by_one)
        together = then(together, admitted)
    stored = admit_patch(together.to_dict(), limits=DEFAULT_LIMITS)  # as it comes back from a store
    assert fields(stored.apply(held)) == fields(one_by_one)
