"""What each figure means: the documentation is made from this table."""

from __future__ import annotations

_STATISTICS = "mean, p50, p90, p95 and p99 (linear interpolation)"

METRICS: dict[str, str] = {
    # counts
    "offered": "requests of the load point",
    "finished": "requests that emitted their last token",
    "rejected": "requests refused by admission, or that can never fit",
    "aborted": "requests still under way when the run was stopped",
    "tpot_undefined": "finished requests with a single output token: they have no tpot and no itl",
    # rates; span = last output token of anybody - first scheduled arrival
    "makespan": "span [time]",
    "request_throughput": "finished / span [1/time]",
    "output_throughput": "output tokens emitted / span [tokens/time]",
    "total_throughput": "(output tokens emitted + prompt tokens of requests with a first token) / span [tokens/time]",
    "offered_rate": "(offered - 1) / (last - first scheduled arrival): n arrivals make n - 1 gaps [1/time]",
    "achieved_rate": "(offered - 1) / (last - first submission) [1/time]",
    "send_lag_mean": "mean of submission - scheduled arrival [time]",
    "send_lag_max": "largest submission - scheduled arrival [time]",
    # latencies
    "queueing_*": f"first start - scheduled arrival, of finished requests: {_STATISTICS} [time]",
    "ttft_*": f"first token - scheduled arrival, of finished requests: {_STATISTICS} [time]",
    "tpot_*": f"(last - first token) / (n - 1), of finished requests with n > 1 output tokens: {_STATISTICS} [time]",
    "itl_*": f"gaps between neighbouring output tokens, pooled over finished requests: {_STATISTICS} [time]",
    "e2e_*": f"last token - scheduled arrival, of finished requests: {_STATISTICS} [time]",
    "adj_ttft_*": "percentiles of ttft over all offered requests, infinite for those that did not finish [time]",
    "adj_e2e_*": "percentiles of e2e over all offered requests, infinite for those that did not finish [time]",
    "goodput": "finished requests that met every limit of the SLO / span [1/time]",
    "goodput_fraction": "finished requests that met every limit of the SLO / offered",
    # how full it was; sums over steps are weighted by the steps' durations
    "slot_utilisation": "sum(slots that computed x duration) / (max_num_seqs x span)",
    "batch_efficiency": "sum over steps of slots that computed / sum over steps of slots held",
    "kv_utilisation": "sum(blocks that hold computed tokens x duration) / (num_blocks x span)",
    "running_mean": "sum(running requests x duration) / span",
    "concurrency_mean": "time average of requests that have arrived and not finished, without the rejected",
    "queue_depth_mean": "time average of requests that have arrived and not started for the first time, without the rejected",
    "queue_depth_max": "most requests that had arrived and not started for the first time",
    # work
    "step_tokens_mean": "tokens computed / steps: tokens per reading of the weights",
    "recompute_tax": "tokens computed again / all tokens computed",
    "preemptions": "times that a running request was evicted",
    "bypassed_max": "most later starts that one skipped request saw",
    "prefix_hit_rate": "prompt tokens saved by prefix hits at the first start / prompt tokens, of requests that started",
    # tenants: only where there are two or more
    "tenant_*_ttft_mean": "mean ttft of the tenant's finished requests [time]",
    "tenant_*_e2e_mean": "mean e2e of the tenant's finished requests [time]",
    "tenant_*_service": "prompt tokens computed for the first time (if a first token came) + 2 x output tokens emitted",
    "tenant_*_output_throughput": "output tokens that the tenant was sent / span [tokens/time]",
    "jain_index": "(sum x)^2 / (tenants x sum x^2) of x = service / weight: 1 is even",
    "fairness_gap": "largest difference of service / weight between two tenants over an interval in which both have a"
    " request that waits for its first start [tokens]",
    # repeats
    "*_lo": "smallest value among the repeats",
    "*_hi": "largest value among the repeats",
    # scalars of a curve
    "max_throughput": "largest output_throughput of the curve [tokens/time]",
    "goodput_at_slo": "largest goodput of the curve [1/time]",
    "knee_rate": "largest offered_rate whose verdict is stable [1/time]",
    "ttft_p99_at_ref_rate": "ttft_p99 at the reference point (load.ref_rate; default: the middle point) [time]",
}
