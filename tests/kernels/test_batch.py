import pytest
import torch

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.sampling import GREEDY, Sampling

LIMITS = Limits(block_size=4, num_blocks=10, vocab=100, max_context=12)


def pack(*rows: Row, padding: int = 0) -> Batch:
    return Batch.pack(rows, LIMITS, torch.device("cpu"), padding)


def test_a_mixed_batch_is_packed_without_gaps() -> None:
    decode = Row([41], 5, [7, 2], Sampling(0.5, 1, 2))
    chunk = Row([50, 51, 52], 3, [9, 0, 8], None)
    prompt = Row([60, 61], 0, [5], GREEDY)
    batch = pack(decode, chunk, prompt, padding=2)
    assert batch.ids_T.tolist() == [41, 50, 51, 52, 60, 61, 0, 0]
    assert batch.positions_T.tolist() == [5, 3, 4, 5, 0, 1, 0, 0]
    assert batch.context_T.tolist() == [6, 4, 5, 6, 1, 2, 0, 0]
    assert batch.row_T.tolist() == [0, 1, 1, 1, 2, 2, 0, 0]
    assert batch.slots_T.tolist() == [9, 39, 0, 1, 20, 21, -1, -1]
    assert batch.tables_SB.tolist() == [[7, 2], [9, 0], [5, 0]]
    assert batch.logits_rows == [0, 2]
    assert batch.logits_R.tolist() == [0, 5]
    assert batch.temperature_R.tolist() == [0.5, 0.0]
    assert batch.max_context == 6 and not batch.greedy


def test_no_wanted_logits_is_no_row_of_logits() -> None:
    batch = pack(Row([1], 0, [0], None))
    assert batch.logits_rows == [] and len(batch.logits_R) == 0 and batch.greedy


@pytest.mark.parametrize(
    ("row", "why"),
    (
        (Row([], 0, [0], None), "each row needs tokens"),
        (Row([1], -1, [0], None), "each row needs tokens"),
        (Row([1], 4, [0], None), "row 1 needs 2 blocks and has 1"),
        (Row([1], 0, [10], None), r"a block is not in 0\.\.9"),
        (Row([1], 0, [-1], None), r"a block is not in 0\.\.9"),
        (Row([100], 0, [0], None), r"a token id is not in 0\.\.99"),
        (Row([1], 12, [0, 1, 2, 3], None), "a row ends at 13, past 12"),
        (Row([1], 0, [5], None), "the same slot"),
    ),
)
def test_a_row_that_breaks_an_invariant_is_named(row: Row, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        pack(Row([1], 0, [5], None), row)
