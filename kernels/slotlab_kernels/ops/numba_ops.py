"""Every op on the CPU in numba: the same arithmetic for a row wherever it stands in the batch, at any number of threads."""

import torch

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops import numba_rows
from slotlab_kernels.ops.numba_attention import attend
from slotlab_kernels.ops.numba_math import array


def store_kv(k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """See StoreKV."""
    slots_T = array(slots)
    for new, half in ((k, cache[0]), (v, cache[1])):
        numba_rows.store(array(new), array(half.flatten(0, 1)), slots_T)


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch) -> torch.Tensor:
    """See PagedAttention."""
    out = torch.empty(q.shape, dtype=q.dtype)
    tables_SB, row_T, context_T = array(batch.tables_SB), array(batch.row_T), array(batch.context_T)
    k, v = array(cache[0]), array(cache[1])
    attend(array(q), k, v, tables_SB, row_T, context_T, array(out), torch.get_num_threads())
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See RMSNorm."""
    out = torch.empty_like(x)
    numba_rows.rms_norm(array(x), array(weight), eps, array(out))
    return out


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """See Rope."""
    numba_rows.rope(array(x), array(cos), array(sin))


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    numba_rows.silu_mul(array(gate_up), array(out))
    return out


def sample(logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """See Sample."""
    out = torch.empty(len(logits), dtype=torch.int64)
    numba_rows.sample(array(logits), array(temperature), array(keys).view("u8"), array(out))
    return out
