"""Pieces of batches: their sizes, and that the columns have the same rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emi.batch import Rows, in_pieces, pieces


def test_columns_are_cut_at_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emi.batch.PIECE_ENTRIES", 12)
    wide, narrow = np.arange(35).reshape(7, 5), torch.arange(7)
    parts = list(pieces(wide, narrow, device="cpu"))
    assert [len(a) for a, _ in parts] == [2, 2, 2, 1]  # two rows of five entries fit into twelve
    assert torch.equal(torch.cat([a for a, _ in parts]), torch.from_numpy(wide))
    assert torch.equal(torch.cat([b for _, b in parts]), narrow)


def test_a_row_larger_than_a_piece_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emi.batch.PIECE_ENTRIES", 3)
    assert [len(part) for (part,) in pieces(np.zeros((2, 4)), device="cpu")] == [1, 1]


def test_the_sizes_of_pieces() -> None:
    (vectors,) = next(pieces(np.zeros((10_000, 20)), device="cpu"))
    assert len(vectors) == 8_192
    stacks = Rows(np.zeros((1, 4, 52, 52), np.uint8), np.zeros(1_000, np.int64))
    (images,) = next(pieces(stacks, device="cpu"))
    assert len(images) == 387


def test_a_function_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 2)
    out = in_pieces(lambda a, b: a + b, "cpu", torch.arange(5.0), np.ones(5, np.float32))
    assert out.tolist() == [1, 2, 3, 4, 5]
    weight = torch.ones(1, requires_grad=True)
    assert not in_pieces(lambda a: a * weight, "cpu", torch.ones(3)).requires_grad
