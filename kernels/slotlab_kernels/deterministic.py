"""Numbers of a token that do not depend on its batch, on a GPU as on a CPU (He, Defeating nondeterminism in LLM inference, 2025).

What each part needs. Attention: splits of a fixed size and one tiling for prefill and decode, which the Triton ops have when
torch's deterministic algorithms are on. Norms, RoPE, SiLU and sampling: nothing, a token is reduced in one order. Padding of
a CUDA graph: nothing, it selects no other kernel. Matrix products: cuBLAS chooses its kernel by the number of rows, so it gets
always the same. What is left to trust is that one kernel of cuBLAS treats all its rows alike: `invariance` tests it when an
engine opens, `experiments/gpu_check` at length.
"""

import os
from dataclasses import replace

import torch

from slotlab_kernels.ops import Ops
from slotlab_kernels.ops.tiles import in_tiles

ROWS = 128
"""Rows of every matrix product. Up to so many decodes cost hardly more than one, since the weights are read once; a prefill
reads them once for every so many tokens."""


def make_deterministic(ops: Ops) -> Ops:
    """These ops with matrix products in slices of ROWS rows, and torch's deterministic algorithms on, for the whole process.

    Call it before the first matrix product on CUDA: cuBLAS reads the size of its workspace only then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    names = ops.names | {"linear": f"{ops.names['linear']}, {ROWS} rows at a time"}
    return replace(ops, linear=in_tiles(ops.linear, ROWS), names=names)
