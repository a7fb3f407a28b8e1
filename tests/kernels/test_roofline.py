"""What a forward pass costs, counted by hand for a shape small enough to do so."""

from __future__ import annotations

import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.roofline import Work, costs, measure_peaks
from slotlab_kernels.sampling import Sampling
from slotlab_kernels.shape import SMOLLM2_135M, LlamaShape

SMALL = LlamaShape(vocab=10, hidden=4, layers=2, heads=2, kv_heads=1, head_dim=2, intermediate=8)


def test_the_costs_of_a_small_shape():
    found = costs(SMALL, torch.bfloat16)
    weights = 2 * (4 * (2 + 2) * 2 + 4 * 4 + 3 * 4 * 8)  # layers x (qkv + output + gate, up and down)
    assert (found.flops_per_token, found.flops_per_logit) == (2 * weights, 2 * 4 * 10)
    assert found.flops_per_pair == 2 * 2 * (2 + 2) * 2, "layers x heads x (QK and PV) x 2 flops x head_dim"
    assert found.bytes_per_step == 2 * (weights + 40)
    assert found.bytes_per_kv == 2 * (2 * 2 * 1 * 2), "K and V of each layer"


def test_the_weights_of_smollm2_are_those_of_135_million_parameters():
    assert abs(costs(SMOLLM2_135M, torch.float32).bytes_per_step / 4 / 134.5e6 - 1) < 0.01


def test_work_counts_tokens_pairs_and_cache_traffic():
    work = Work()
    work.add([Row([1, 1, 1], 0, [0], None), Row([1], 5, [1], Sampling())], 0.5)
    assert (work.steps, work.tokens, work.logits, work.seconds) == (1, 4, 1, 0.5)
    assert work.pairs == (1 + 2 + 3) + 6
    assert work.kv == (3 + 3) + (6 + 1), "read once by each row, and written"
    found = costs(SMALL, torch.bfloat16)
    assert work.flops(found) == 4 * found.flops_per_token + found.flops_per_logit + 12 * found.flops_per_pair
    assert work.bytes(found) == found.bytes_per_step + 13 * found.bytes_per_kv


def test_peaks_are_measured_once_per_process():
    peaks = measure_peaks(torch.device("cpu"), torch.float32)
    assert peaks is measure_peaks(torch.device("cpu"), torch.float32)
    assert peaks.flops > 0 and peaks.bandwidth > 0 and "GB/s" in str(peaks)
