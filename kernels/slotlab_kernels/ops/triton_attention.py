# mypy: ignore-errors
"""Paged attention in Triton, for prefill, chunk and decode: `attend`, or `attend_split` and then `reduce_splits`.

A program takes a piece: up to ROWS // GROUP_PAD neighbouring tokens of one row, with the GROUP query heads of one key head
(padded to a power of two). It walks over the keys in tiles from position 0 on, and sums each split of SPLIT keys by itself.
`attend` folds the splits as it goes; `attend_split` takes one split only and leaves its sum to `reduce_splits`, so that a few
tokens with long contexts keep a whole GPU busy. Both do the same arithmetic in the same order, which the positions of the
keys alone decide: neither the choice between them, nor the batch, nor how a prompt is cut into chunks changes a result.

In the suffixes M is a piece's rows (tokens by heads), K the keys of a tile, D the head dim, padded to a power of two.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "window"])
def attend(
    q_ptr, cache_ptr, out_ptr, tables_ptr, row_ptr, context_ptr, tokens, window, scale,
    stride_qt, stride_qh, stride_ot, stride_oh,
    stride_half: tl.int64, stride_block: tl.int64, stride_slot: tl.int64, stride_head: tl.int64, stride_row: tl.int64,
    GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Grid (pieces, key heads); see `_piece` for the pieces. `scale` holds log2(e) too."""
    row, token_M, context_M, oldest = _piece(row_ptr, context_ptr, tokens, window, ROWS, GROUP_PAD)
    if row >= 0:
        head = tl.program_id(1)
        end = tl.max(context_M, 0)
        q_MD, head_M, valid_MD = _queries(q_ptr, stride_qt, stride_qh, token_M, head, GROUP, GROUP_PAD, DIM, DIM_PAD, UPCAST)
        acc_MD, best_M, total_M = _nothing(ROWS, DIM_PAD)
        all_MD, all_best_M, all_total_M = _nothing(ROWS, DIM_PAD)
        for at in range(oldest // KEYS * KEYS, end, KEYS):
            k_DK, v_KD, at_K = _keys(
                cache_ptr + head * stride_head, tables_ptr + row * stride_row, stride_half, stride_block, stride_slot,
                at, oldest, end, KEYS, DIM, DIM_PAD, BLOCK_SIZE,
            )  # fmt: skip
            acc_MD, best_M, total_M = _add(q_MD, k_DK, v_KD, at_K, context_M, window, scale, acc_MD, best_M, total_M)
            if (at + KEYS) % SPLIT == 0:
                all_MD, all_best_M, all_total_M = _fold(all_MD, all_best_M, all_total_M, acc_MD, best_M, total_M)
                acc_MD, best_M, total_M = _nothing(ROWS, DIM_PAD)
        all_MD, all_best_M, all_total_M = _fold(all_MD, all_best_M, all_total_M, acc_MD, best_M, total_M)
        where_MD = (token_M.to(tl.int64) * stride_ot + head_M * stride_oh)[:, None] + tl.arange(0, DIM_PAD)[None, :]
        tl.store(out_ptr + where_MD, _mean(all_MD, all_total_M).to(out_ptr.dtype.element_ty), mask=valid_MD)


@triton.jit(do_not_specialize=["tokens", "window", "splits"])
def attend_split(
    q_ptr, cache_ptr, sums_ptr, stats_ptr, tables_ptr, row_ptr, context_ptr, tokens, window, splits, scale,
    stride_qt, stride_qh,
    stride_half: tl.int64, stride_block: tl.int64, stride_slot: tl.int64, stride_head: tl.int64, stride_row: tl.int64,
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Grid (pieces, key heads, splits). Fills sums [T, N, splits, DIM_PAD] and stats [T, N, splits, 2] where there are keys."""
    row, token_M, context_M, oldest = _piece(row_ptr, context_ptr, tokens, window, ROWS, GROUP_PAD)
    head, split = tl.program_id(1), tl.program_id(2)
    start = tl.maximum(oldest, split * SPLIT)
    end = tl.minimum(tl.max(context_M, 0), split * SPLIT + SPLIT)
    if start < end:
        q_MD, head_M, valid_MD = _queries(q_ptr, stride_qt, stride_qh, token_M, head, GROUP, GROUP_PAD, DIM, DIM_PAD, UPCAST)
        acc_MD, best_M, total_M = _nothing(ROWS, DIM_PAD)
        for at in range(start // KEYS * KEYS, end, KEYS):
            k_DK, v_KD, at_K = _keys(
                cache_ptr + head * stride_head, tables_ptr + row * stride_row, stride_half, stride_block, stride_slot,
                at, start, end, KEYS, DIM, DIM_PAD, BLOCK_SIZE,
            )  # fmt: skip
            acc_MD, best_M, total_M = _add(q_MD, k_DK, v_KD, at_K, context_M, window, scale, acc_MD, best_M, total_M)
        at_M = (token_M.to(tl.int64) * HEADS + head_M) * splits + split
        d_D = tl.arange(0, DIM_PAD)
        valid_M = tl.max(valid_MD.to(tl.int32), 1) > 0
        tl.store(sums_ptr + at_M[:, None] * DIM_PAD + d_D[None, :], acc_MD, mask=valid_M[:, None])
        tl.store(stats_ptr + 2 * at_M, best_M, mask=valid_M)
        tl.store(stats_ptr + 2 * at_M + 1, total_M, mask=valid_M)


@triton.jit(do_not_specialize=["window", "splits"])
def reduce_splits(
    sums_ptr, stats_ptr, out_ptr, context_ptr, window, splits, stride_ot, stride_oh,
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Grid (tokens, key heads). Reads only the splits in which the token has keys: the rest of the scratch was never written.

    The scalar offsets go onto the pointers and not into the tensors of offsets, because triton 3.5 and 3.6 miscompile the
    other form in a reducer of splits (InternLM/lmdeploy#4920).
    """
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    context = tl.load(context_ptr + token).to(tl.int32)
    g_M, d_D = tl.arange(0, GROUP_PAD), tl.arange(0, DIM_PAD)
    out_ptr += token * stride_ot + head * GROUP * stride_oh
    sums_ptr += (token * HEADS + head * GROUP) * splits * DIM_PAD
    stats_ptr += (token * HEADS + head * GROUP) * splits * 2
    all_MD, best_M, total_M = _nothing(GROUP_PAD, DIM_PAD)
    for split in range(tl.maximum(context - window, 0) // SPLIT, tl.cdiv(context, SPLIT)):
        at_M = g_M * splits + split
        acc_MD = tl.load(sums_ptr + at_M[:, None] * DIM_PAD + d_D[None, :], mask=(g_M < GROUP)[:, None], other=0.0)
        one_best_M = tl.load(stats_ptr + 2 * at_M, mask=g_M < GROUP, other=float("-inf"))
        one_total_M = tl.load(stats_ptr + 2 * at_M + 1, mask=g_M < GROUP, other=0.0)
        all_MD, best_M, total_M = _fold(all_MD, best_M, total_M, acc_MD, one_best_M, one_total_M)
    where_MD = g_M[:, None] * stride_oh + d_D[None, :]
    out_MD = _mean(all_MD, total_M).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + where_MD, out_MD, mask=(g_M < GROUP)[:, None] & (d_D < DIM)[None, :])


@triton.jit
def _piece(row_ptr, context_ptr, tokens, window, ROWS: tl.constexpr, GROUP_PAD: tl.constexpr):
    """This program's row (-1: nothing to do), its rows' tokens (-1: none) and contexts, and the oldest key that one may see.

    Pieces begin at every multiple of ROWS // GROUP_PAD tokens and at the first token of each row; the padding at the end
    counts as one more row. So there are at most cdiv(tokens, ROWS // GROUP_PAD) + rows + 1.
    """
    TOKENS: tl.constexpr = ROWS // GROUP_PAD
    index = tl.program_id(0)
    tiles = tl.cdiv(tokens, TOKENS)
    first = index * TOKENS
    if index >= tiles:
        first = _first_token(index - tiles, row_ptr, context_ptr, tokens)
        if first % TOKENS == 0:  # another program has it
            first = tokens
    token_M = first + tl.arange(0, ROWS) // GROUP_PAD
    inside_M = token_M < tl.minimum(tokens, (first // TOKENS + 1) * TOKENS)
    row = tl.load(row_ptr + first, mask=first < tokens, other=-1)
    oldest = tl.load(context_ptr + first, mask=first < tokens, other=0).to(tl.int32)
    row_M = tl.load(row_ptr + token_M, mask=inside_M, other=-1)
    context_M = tl.load(context_ptr + token_M, mask=inside_M, other=0).to(tl.int32)
    inside_M &= (row_M == row) & ((context_M > 0) == (oldest > 0))
    return row, tl.where(inside_M, token_M, -1), tl.where(inside_M, context_M, 0), tl.maximum(oldest - window, 0)


@triton.jit
def _first_token(row, row_ptr, context_ptr, tokens):
    """The first token of a row, by bisection: rows stand in order, and after them padding with context 0."""
    low = 0
    high = tokens
    while low < high:
        middle = (low + high) // 2
        if (tl.load(context_ptr + middle) > 0) & (tl.load(row_ptr + middle) < row):
            low = middle + 1
        else:
            high = middle
    return low


@triton.jit
def _queries(
    q_ptr, stride_qt, stride_qh, token_M, head,
    GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The queries of a piece, the head of each row, and which elements there are."""
    member_M = tl.arange(0, token_M.shape[0]) % GROUP_PAD
    head_M = head * GROUP + member_M
    d_D = tl.arange(0, DIM_PAD)
    valid_MD = ((token_M >= 0) & (member_M < GROUP))[:, None] & (d_D < DIM)[None, :]
    where_MD = (token_M.to(tl.int64) * stride_qt + head_M * stride_qh)[:, None] + d_D[None, :]
    q_MD = tl.load(q_ptr + where_MD, mask=valid_MD, other=0.0)
    if UPCAST:  # the interpreter takes the bits of bf16 for integers when it multiplies (triton#11584)
        q_MD = q_MD.to(tl.float32)
    return q_MD, head_M, valid_MD


@triton.jit
def _keys(
    cache_ptr, tables_ptr, stride_half, stride_block, stride_slot, at, start, end,
    KEYS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """K and V of the positions from `at`, 0 outside of start..end, where the cache may hold NaN; and the positions."""
    at_K = at + tl.arange(0, KEYS)
    d_D = tl.arange(0, DIM_PAD)
    inside_K = (at_K >= start) & (at_K < end)
    block_K = tl.load(tables_ptr + at_K // BLOCK_SIZE, mask=inside_K, other=0).to(tl.int32)  # takes fewer registers than int64
    where_K = block_K.to(tl.int64) * stride_block + (at_K % BLOCK_SIZE) * stride_slot
    k_DK = tl.load(cache_ptr + where_K[None, :] + d_D[:, None], mask=inside_K[None, :] & (d_D < DIM)[:, None], other=0.0)
    v_ptr = cache_ptr + stride_half
    v_KD = tl.load(v_ptr + where_K[:, None] + d_D[None, :], mask=inside_K[:, None] & (d_D < DIM)[None, :], other=0.0)
    return k_DK, v_KD, at_K


@triton.jit
def _nothing(ROWS: tl.constexpr, DIM_PAD: tl.constexpr):
    """The sum over no keys: weighted values, largest score, total of the weights relative to it."""
    return tl.zeros([ROWS, DIM_PAD], tl.float32), tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)


@triton.jit
def _add(q_MD, k_DK, v_KD, at_K, context_M, window, scale, acc_MD, best_M, total_M):
    """A tile of keys added to a sum: online softmax (Milakov & Gimelshein, 2018), base 2."""
    score_MK = tl.dot(q_MD, k_DK.to(q_MD.dtype), input_precision="ieee") * scale
    age_MK = context_M[:, None] - at_K[None, :]  # of a key: 1 for the query's own token
    score_MK = tl.where((age_MK > 0) & (age_MK <= window), score_MK, float("-inf"))
    top_M = tl.maximum(best_M, tl.max(score_MK, 1))
    base_M = tl.where(top_M == float("-inf"), 0.0, top_M)  # no key seen yet: -inf - -inf is NaN
    weight_MK = tl.exp2(score_MK - base_M[:, None])
    decay_M = tl.exp2(best_M - base_M)
    value_MD = tl.dot(weight_MK.to(q_MD.dtype), v_KD.to(q_MD.dtype), input_precision="ieee")
    return acc_MD * decay_M[:, None] + value_MD, top_M, total_M * decay_M + tl.sum(weight_MK, 1)


@triton.jit
def _fold(all_MD, all_best_M, all_total_M, acc_MD, best_M, total_M):
    """The sum of one split added to the sum of those before it. The fma is spelt out: both users must round alike."""
    top_M = tl.maximum(all_best_M, best_M)
    base_M = tl.where(top_M == float("-inf"), 0.0, top_M)
    old_M, new_M = tl.exp2(all_best_M - base_M), tl.exp2(best_M - base_M)
    folded_MD = tl.fma(acc_MD, tl.broadcast_to(new_M[:, None], acc_MD.shape), all_MD * old_M[:, None])
    return folded_MD, top_M, tl.fma(total_M, new_M, all_total_M * old_M)


@triton.jit
def _mean(all_MD, total_M):
    """The weighted mean; without any key zero."""
    return all_MD / tl.where(total_M == 0.0, 1.0, total_M)[:, None]
