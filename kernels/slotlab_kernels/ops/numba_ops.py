"""The ops on the CPU in numba: the same arithmetic for a row wherever it stands in the batch, at any number of threads.

Numba has a pool of threads of its own. It is told to use as many as torch does, and the two never work at the same time, so the
processors are not oversubscribed; what is lost is the time in which the threads of one pool still wait for more.
"""

import numba
import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops import numba_linear, numba_rows
from slotlab_kernels.ops.numba_attention import attend
from slotlab_kernels.ops.numba_linear import PANEL
from slotlab_kernels.ops.numba_math import array

_MOST_THREADS = numba.get_num_threads()  # as many as it has started with


def pack(weight: torch.Tensor) -> torch.Tensor:
    """See Pack: panels of 16 outputs, each input by input; zeros fill the last one."""
    outputs, inputs = weight.shape
    panels_PLK = F.pad(weight, (0, 0, 0, -outputs % PANEL)).view(-1, PANEL, inputs)
    return panels_PLK.transpose(1, 2).contiguous().view(-1, inputs)[:outputs]


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False) -> torch.Tensor:
    """See Linear."""
    _share_threads()
    outputs, inputs = weight.shape
    weight_PKL = weight.as_strided((-(-outputs // PANEL), inputs, PANEL), (PANEL * inputs, PANEL, 1))
    out = torch.empty(len(x), outputs, dtype=torch.float32 if wide else x.dtype)
    bias = x.new_empty(0) if bias is None else bias
    numba_linear.linear(array(x.float().contiguous()), array(weight_PKL), array(bias), array(out))
    return out


def rope_store(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:  # fmt: skip
    """See RopeStore."""
    keys, values = array(cache[0].flatten(0, 1)), array(cache[1].flatten(0, 1))
    numba_rows.rope_store(array(q), array(k), array(v), array(cos), array(sin), keys, values, array(slots))


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
    """See PagedAttention."""
    _share_threads()
    out = torch.empty(q.shape, dtype=q.dtype)
    tables_SB, row_T, context_T = array(batch.tables_SB), array(batch.row_T), array(batch.context_T)
    k, v = array(cache[0]), array(cache[1])
    attend(array(q), k, v, tables_SB, row_T, context_T, window, array(out), torch.get_num_threads())
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See RMSNorm."""
    out = torch.empty(x.shape, dtype=x.dtype)
    heads = (x.shape[0], -1, x.shape[-1])
    numba_rows.rms_norm(array(x.view(heads)), array(weight), eps, array(out.view(heads)))
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See AddRMSNorm."""
    out = torch.empty_like(residual)
    numba_rows.add_rms_norm(array(x), array(residual), array(weight), eps, array(out))
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    numba_rows.silu_mul(array(gate_up), array(out))
    return out


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """See Sample."""
    _share_threads()
    out = torch.empty(len(logits), dtype=torch.int64)
    unsigned = array(keys).view("u8")
    numba_rows.sample(array(logits), array(temperature), unsigned, array(top_k), array(top_p), array(out))
    return out


def _share_threads() -> None:
    """As many as torch has, or as there are processors, if that is less."""
    numba.set_num_threads(min(torch.get_num_threads(), _MOST_THREADS))
