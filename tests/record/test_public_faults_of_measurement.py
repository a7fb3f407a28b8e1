"""What other harnesses and simulators got wrong in public, each as the smallest case that would show it here."""

from __future__ import annotations

import time

import numpy as np
import pytest

from slotlab.record.latency import request_latencies, token_gaps
from slotlab.record.metrics import SLO, point_metrics, request_metrics


def figures(tables, **slo):
    caps = {"max_num_seqs": 4, "num_blocks": 10_000}
    return point_metrics(tables["requests"], tables["steps"], **caps, slo=SLO(**slo), weights={})


def test_the_wait_for_a_slot_is_part_of_the_latency(simulate):
    """vllm#54101: 506 ms instead of 1,932, for the client's queue was left out."""
    assert figures(simulate([1] * 10, slots=1))["e2e_mean"] == 5.5


def test_a_late_client_hides_nothing(simulate):
    """inference-perf#188, llm-d-benchmark#261: lag of the sender; here an arrival waits for the running step to end."""
    found = figures(simulate([3, 1], times=[0.0, 0.25]))
    assert (found["send_lag_max"], found["ttft_mean"]) == (0.75, (1 + 1.75) / 2)


def test_each_token_has_a_time_of_its_own(simulate):
    """sglang#12389: TTFT and ITL were 0, for the clock was read at the end. Jumps over many steps keep the times too."""
    tables = simulate([2000], cost="linear", per_step=0.01, per_token=0.0, per_context=0.0)
    assert token_gaps(tables["requests"]) == pytest.approx(0.01)
    assert figures(tables)["ttft_mean"] == pytest.approx(0.01)


def test_the_first_tokens_wait_is_no_gap_between_tokens(requests_of):
    """llmperf#99: ITL was E2E over tokens."""
    found = request_metrics(requests_of({"times": [1.0, 1.01, 1.02]}), slo=SLO(), weights={})
    assert (found["ttft_mean"], found["itl_mean"], found["tpot_mean"]) == pytest.approx((1, 0.01, 0.01))


def test_steps_of_a_chunked_prompt_emit_nothing_and_divide_by_nothing(simulate):
    """sglang#26497: ZeroDivisionError at a chunk without tokens."""
    tables = simulate([2], prompts=100, tokens=16)
    assert list(tables["requests"]["token_times"][0]) == [7.0, 8.0]
    assert figures(tables)["itl_mean"] == 1


@pytest.mark.parametrize(("prompt", "steps"), [(1, 1), (16, 1), (17, 2), (100, 7)])
def test_a_single_token_takes_as_many_steps_as_its_prompt(simulate, prompt, steps):
    """sched-sim: one more, for the first token came from an extra decode."""
    assert len(simulate([1], prompts=prompt, tokens=16)["steps"]) == steps


def test_requests_that_break_off_before_their_first_token_have_no_ttft(requests_of, no_steps):
    """guidellm#216: -1.7e12 seconds, for a missing time counted as 0."""
    lost = {"status": "aborted", "started": 1.7e9, "arrival": 1.7e9}
    found = figures({"requests": requests_of(lost, {"times": [1.7e9 + 1], "arrival": 1.7e9}), "steps": no_steps})
    assert (found["ttft_mean"], found["aborted"]) == (1, 1) and "adj_ttft_p90" not in found


def test_failing_slow_requests_makes_no_tail_shorter(requests_of, no_steps):
    """aiperf#688, #1333: percentiles over survivors fell as the slowest requests failed."""
    times = np.linspace(1, 100, 100)
    whole = [{"times": [t]} for t in times]
    cut = [row if row["times"][0] <= 95 else {"status": "aborted"} for row in whole]
    before, after = (request_metrics(requests_of(*rows), slo=SLO(), weights={}) for rows in (whole, cut))
    assert after["ttft_p99"] < before["ttft_p99"]
    assert after["adj_ttft_p90"] >= before["adj_ttft_p90"]
    assert before["adj_ttft_p99"] == before["ttft_p99"] and "adj_ttft_p99" not in after, "infinite"


def test_no_hidden_limit_cuts_a_long_request(simulate):
    """inference-sim#1115: throughput was wrong 45-fold, for requests died of a default timeout."""
    tables = simulate([30_000], cost="linear", per_step=1.0)
    assert figures(tables)["makespan"] > 30_000 and tables["requests"]["output_tokens"][0] == 30_000


def test_preempted_requests_count_once_and_keep_their_first_token(simulate):
    """inference-sim#1122, #1095, #1098: counted twice, and TTFT overwritten, on the way through the queue again."""
    tables = simulate([9, 9, 9], prompts=4, blocks=7)
    requests, found = tables["requests"], figures(tables)
    assert found["preemptions"] > 0 and (found["offered"], found["finished"]) == (3, 3)
    assert requests["output_tokens"].to_list() == [9, 9, 9] and requests["token_times"].map(len).to_list() == [9, 9, 9]
    assert (requests["first_token"] == requests["token_times"].str[0]).all()
    assert request_latencies(requests)["ttft"].max() < found["makespan"] / 2


def test_a_longer_prompt_takes_longer(simulate):
    """inference-sim#489: a fit had made prefill free."""
    short, long = (figures(simulate([1], prompts=n, tokens=8192, cost="linear"))["ttft_mean"] for n in (16, 4096))
    assert long > 2 * short


def test_requests_of_one_instant_keep_their_order_and_start_together(simulate):
    """BurstGPT#2: rows of one second were sent one after the other."""
    requests = simulate([3] * 4, times=[7.0] * 4)["requests"]
    assert requests["seq"].to_list() == requests["id"].to_list() == [0, 1, 2, 3]
    assert set(requests["started"]) == {7.0}


def test_every_load_point_begins_with_an_empty_engine(slotlab):
    """guidellm#431, #88: requests of one rate ran on into the next."""
    from slotlab.record.schema import read_table

    folder = slotlab("engine=simulated", "load.rates=[50,100,1000]").folder
    steps, requests = (read_table(folder / f"{name}.parquet") for name in ("steps", "requests"))
    first = steps.groupby("point").first()
    assert (first["step"] == 0).all() and (first["running"] == first["started"]).all() and (first["preempted"] == 0).all()
    assert set(requests.groupby("point").size()) == {64} and (requests["cached_tokens"] == 0).all()


def test_a_wall_clock_that_is_set_back_moves_no_time(monkeypatch):
    """sglang#6178, openvino.genai#1244: latencies jumped with NTP, or were a date."""
    from slotlab.clock import WallClock

    clock = WallClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= before <= clock.now() < 60
