"""The mutants of `make mutants` still fit the code they break."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import MUTANTS, Mutant, apply, tree


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_finds_its_place(mutant: Mutant, tmp_path: Path) -> None:
    copy = tree(tmp_path)
    apply(copy, mutant)
    assert all((copy / edit.path).read_text("utf-8").count(edit.new) >= 1 for edit in mutant.edits if edit.new)
