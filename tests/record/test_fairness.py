"""What tenants got."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotlab.record.fairness import fairness_gap, jain_index
from slotlab.record.metrics import SLO, point_metrics

EVEN = {"a": 1.0, "b": 1.0}


def test_the_gap_by_hand(requests_of):
    """Both wait until 4, when a's last request starts. Until then a is sent prompt 10 and 3 tokens, b prompt 4 and 1 token."""
    requests = requests_of(
        {"tenant": "a", "times": [1, 2, 3], "started": 0.0, "prompt_tokens": 10},
        {"tenant": "b", "times": [3, 9], "started": 2.0, "prompt_tokens": 4},
        {"tenant": "a", "times": [5, 6], "started": 4.0, "prompt_tokens": 100},
        {"tenant": "b", "times": [8], "started": 7.0, "prompt_tokens": 1},
    )
    assert fairness_gap(requests, EVEN) == 10 + 2 * 2  # at 2; from 3 on b catches up
    assert fairness_gap(requests, {"a": 2.0, "b": 1.0}) == 7


def test_the_gap_counts_any_interval_not_only_from_the_start(requests_of):
    """a leads by 7 at 2, b by 7 at 4: over (2, 4] b got 14 more."""
    requests = requests_of(
        {"tenant": "a", "times": [2], "prompt_tokens": 5},
        {"tenant": "b", "times": [4], "prompt_tokens": 12},
        {"tenant": "a", "times": [10]},
        {"tenant": "b", "times": [10]},
    )
    assert fairness_gap(requests, EVEN) == 14


def test_service_outside_a_common_backlog_is_no_unfairness(requests_of):
    requests = requests_of(
        {"tenant": "a", "times": [float(t) for t in range(2, 50)], "arrival": 0.0},
        {"tenant": "b", "times": [3, 4], "arrival": 1.5},
    )
    assert fairness_gap(requests, EVEN) is None  # a has started when b comes


def test_rejected_requests_are_no_backlog_and_unserved_ones_are(requests_of):
    served = {"tenant": "a", "times": [2, 3]}, {"tenant": "a", "times": [9]}
    assert fairness_gap(requests_of(*served, {"tenant": "b"}), EVEN) is None
    starved = {"tenant": "b", "status": "aborted"}
    assert fairness_gap(requests_of(*served, starved), EVEN) == 1 + 2 * 2


def test_cached_prompt_tokens_are_no_service(requests_of, no_steps):
    requests = requests_of(
        {"tenant": "a", "times": [1, 2], "prompt_tokens": 10, "cached_tokens": 8}, {"tenant": "b", "times": [2]}
    )
    found = point_metrics(requests, no_steps, max_num_seqs=1, num_blocks=1, slo=SLO(), weights={"b": 0.5})
    expected = {
        "tenant_a_service": 2 + 2 * 2,
        "tenant_b_service": 1 + 2,
        "tenant_a_output_throughput": 1,
        "tenant_b_ttft_mean": 2,
        "tenant_a_e2e_mean": 2,
        "jain_index": 1,
    }
    assert {key: found[key] for key in expected} == expected


def test_a_single_tenant_has_no_tenant_figures(requests_of, no_steps):
    found = point_metrics(
        requests_of({"times": [1]}), no_steps, max_num_seqs=1, num_blocks=1, slo=SLO(), weights={"default": 1.0, "b": 1.0}
    )
    assert not [key for key in found if key.startswith(("tenant_", "jain", "fairness"))]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_jain_index_lies_between_one_nth_and_one(shares):
    index = jain_index(np.array(shares))
    if any(shares):
        assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9


@pytest.mark.parametrize(("shares", "index"), [([3, 3, 3], 1), ([5, 0], 0.5), ([1, 3], 0.8), ([0, 0], None)])
def test_jain_index_by_hand(shares, index):
    assert jain_index(np.array(shares, float)) == (index and pytest.approx(index))
