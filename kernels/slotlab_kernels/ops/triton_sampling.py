# mypy: ignore-errors
"""The kernel that draws tokens: one program per row, by the noise of (key, entry), so that the batch cannot change it.

Where only the head of a row may be drawn, the head is found without sorting: every entry has a code that orders by logit and
then by index, and the smallest code of the head is found by bisection. Equals are so told apart (flashinfer#3774).
"""

import triton
import triton.language as tl

from slotlab_kernels import sampling

GOLDEN = tl.constexpr(sampling.GOLDEN)
MIX_1 = tl.constexpr(sampling.MIX_1)
MIX_2 = tl.constexpr(sampling.MIX_2)


@triton.jit
def sample(
    logits_ptr, temperature_ptr, keys_ptr, top_k_ptr, top_p_ptr, out_ptr, vocab, stride_logits, stride_temperature, stride_top_p,
    INDEX_BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Grid (rows,). See Sample in ops."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride_logits
    temperature = tl.load(temperature_ptr + row * stride_temperature)
    top_k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row * stride_top_p)
    lowest = tl.zeros([], tl.int64)
    if (temperature > 0.0) & ((top_k > 0) | (top_p < 1.0)):
        lowest = _lowest_code(logits_ptr, temperature, top_k, top_p, vocab, INDEX_BITS, TILE)
    key = tl.load(keys_ptr + row)
    best = float("-inf")
    token = 0
    for start in range(0, vocab, TILE):
        logits_V, entry_V = _logits(logits_ptr, start, vocab, TILE)
        score_V = logits_V
        if temperature > 0.0:
            score_V += temperature * _gumbel(key, entry_V)
        score_V = tl.where(_code(logits_V, entry_V, INDEX_BITS) >= lowest, score_V, float("-inf"))
        top = tl.max(score_V, 0)
        if top > best:
            best = top
            token = tl.min(tl.where(score_V == top, entry_V, vocab), 0)
    tl.store(out_ptr + row, token.to(tl.int64))


@triton.jit
def _lowest_code(logits_ptr, temperature, top_k, top_p, vocab, INDEX_BITS: tl.constexpr, TILE: tl.constexpr):
    """The code of the last entry of the head: of the first `top_k` entries the shortest list with `top_p` of their mass."""
    top = float("-inf")
    for start in range(0, vocab, TILE):
        logits_V, _ = _logits(logits_ptr, start, vocab, TILE)
        top = tl.maximum(top, tl.max(logits_V, 0))
    low = tl.zeros([], tl.int64)
    if top > float("-inf"):
        if (top_k > 0) & (top_k < vocab):
            low = _bisect(logits_ptr, top, temperature, low, top_k.to(tl.float64), False, vocab, INDEX_BITS, TILE)
        if top_p < 1.0:
            _, mass = _tally(logits_ptr, top, temperature, low, vocab, INDEX_BITS, TILE)
            low = _bisect(logits_ptr, top, temperature, low, top_p * mass, True, vocab, INDEX_BITS, TILE)
    return low


@triton.jit
def _bisect(
    logits_ptr, top, temperature, low, wanted, BY_MASS: tl.constexpr, vocab, INDEX_BITS: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """The largest code from which on up there are `wanted` entries, or that much mass; from `low` on up there are.

    It ends when one entry is left between the bounds: after 20 to 30 rounds over the row for normal fp32 logits of 49,152 to
    151,936 entries, 40 for such as were bf16, with many equals, and 32 + INDEX_BITS at most.
    """
    high = tl.full([], 1 << (32 + INDEX_BITS), tl.int64)
    count, _ = _tally(logits_ptr, top, temperature, low, vocab, INDEX_BITS, TILE)
    count_above = count * 0.0
    while count - count_above > 1.0:
        middle = low + (high - low) // 2
        middle_count, middle_mass = _tally(logits_ptr, top, temperature, middle, vocab, INDEX_BITS, TILE)
        found = middle_count
        if BY_MASS:
            found = middle_mass
        if found >= wanted:
            low = middle
            count = middle_count
        else:
            high = middle
            count_above = middle_count
    return low


@triton.jit
def _tally(logits_ptr, top, temperature, lowest, vocab, INDEX_BITS: tl.constexpr, TILE: tl.constexpr):
    """How many entries have at least this code, and their mass: the sum of exp((logit - top) / temperature). In fp64."""
    count = tl.zeros([], tl.float64)
    mass = tl.zeros([], tl.float64)
    for start in range(0, vocab, TILE):
        logits_V, entry_V = _logits(logits_ptr, start, vocab, TILE)
        chosen_V = (_code(logits_V, entry_V, INDEX_BITS) >= lowest) & (entry_V < vocab)
        weight_V = tl.where(chosen_V, tl.exp((logits_V - top) / temperature), 0.0)
        count += tl.sum(chosen_V.to(tl.int32), 0).to(tl.float64)
        mass += tl.sum(weight_V.to(tl.float64), 0)
    return count, mass


@triton.jit
def _logits(logits_ptr, start, vocab, TILE: tl.constexpr):
    """A tile of logits and their entries. NaN counts as -inf, so that it is never drawn; and -0 as 0."""
    entry_V = start + tl.arange(0, TILE)
    logits_V = tl.load(logits_ptr + entry_V, mask=entry_V < vocab, other=float("-inf"))
    logits_V = tl.where(logits_V == logits_V, logits_V, float("-inf"))
    return tl.where(logits_V == 0.0, 0.0, logits_V), entry_V


@triton.jit
def _code(logits_V, entry_V, INDEX_BITS: tl.constexpr):
    """A number from 0 to 2^(32 + INDEX_BITS) - 1 that is greater for a greater logit, and of equals for the lower entry."""
    bits_V = logits_V.to(tl.int32, bitcast=True)
    order_V = tl.where(bits_V < 0, bits_V ^ 0x7FFFFFFF, bits_V).to(tl.int64) + 0x80000000
    return (order_V << INDEX_BITS) + ((1 << INDEX_BITS) - 1 - entry_V)


@triton.jit
def _gumbel(key, entry_V):
    """-ln(-ln u) for u in (0, 1) on a grid of 2^-24 from SplitMix64 of (key, entry) (Steele et al., OOPSLA 2014)."""
    x_V = key.to(tl.uint64, bitcast=True) + (entry_V + 1).to(tl.uint64) * GOLDEN
    x_V = (x_V ^ (x_V >> 30)) * MIX_1
    x_V = (x_V ^ (x_V >> 27)) * MIX_2
    x_V = x_V ^ (x_V >> 31)
    u_V = ((x_V >> 40).to(tl.float32) + 0.5) * (1.0 / 16777216.0)
    u_V = tl.minimum(u_V, 1.0 - 1.0 / 16777216.0)  # the last 0.5 is rounded up, and the noise of 1 would be infinite
    return -tl.log(-tl.log(u_V))
