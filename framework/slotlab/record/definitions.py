"""What each figure means: the documentation is made from this table."""

from __future__ import annotations

from slotlab.record.bounds import BOUNDS, ORACLE
from slotlab.record.hardware import HARDWARE

_STATISTICS = "mean, p50, p90, p95 and p99 (linear interpolation)"

SECTIONS: dict[str, dict[str, str]] = {
    "Counts": {
        "offered": "requests of the load point",
        "finished": "requests that emitted their last token",
        "rejected": "requests refused by admission, or that can never fit",
        "aborted": "requests still under way when the run was stopped",
        "tpot_undefined": "finished requests with a single output token: they have no tpot and no itl",
    },
    "Rates (span = last output token of anybody - first scheduled arrival)": {
        "makespan": "span [time]",
        "request_throughput": "finished / span [1/time]",
        "output_throughput": "output tokens emitted / span [tokens/time]",
        "total_throughput": "(output tokens emitted + prompt tokens of requests with a first token) / span [tokens/time]",
        "offered_rate": "(offered - 1) / (last - first scheduled arrival): n arrivals make n - 1 gaps [1/time]",
        "achieved_rate": "(offered - 1) / (last - first submission) [1/time]",
        "send_lag_mean": "mean of submission - scheduled arrival [time]",
        "send_lag_max": "largest submission - scheduled arrival [time]",
    },
    "Latencies": {
        "queueing_*": f"first start - scheduled arrival, of finished requests: {_STATISTICS} [time]",
        "ttft_*": f"first token - scheduled arrival, of finished requests: {_STATISTICS} [time]",
        "tpot_*": f"(last - first token) / (n - 1), of finished requests with n > 1 output tokens: {_STATISTICS} [time]",
        "itl_*": f"gaps between neighbouring output tokens, pooled over finished requests: {_STATISTICS} [time]",
        "e2e_*": f"last token - scheduled arrival, of finished requests: {_STATISTICS} [time]",
        "slowdown_*": f"e2e / (last token - first start), of finished requests: {_STATISTICS}; 1 = never waited"
        " for its first start (not e2e over that of an idle engine, which would have to be measured request by request)",
        "prefill_mean": "mean time from the first start to the first token, of finished requests, if nobody was preempted [time]",
        "stalled_mean": "mean over finished requests of the time, after the first token, that others' prefill took: per step, its"
        " duration x (prompt tokens + recomputed tokens) / all tokens computed; if nobody was preempted [time]",
        "decode_mean": "mean of e2e - queueing - prefill - stalled: what remains, time between steps included [time]",
        "adj_ttft_*": "percentiles of ttft over all offered requests, infinite for those that did not finish [time]",
        "adj_e2e_*": "percentiles of e2e over all offered requests, infinite for those that did not finish [time]",
        "goodput": "finished requests that met every limit of the SLO / span [1/time]",
        "goodput_fraction": "finished requests that met every limit of the SLO / offered",
    },
    "How full it was (sums over steps are weighted by the steps' durations)": {
        "slot_utilisation": "sum(slots that computed x duration) / (max_num_seqs x span)",
        "batch_efficiency": "sum over steps of slots that computed / sum over steps of slots held",
        "kv_utilisation": "sum(blocks that hold computed tokens x duration) / (num_blocks x span)",
        "running_mean": "sum(running requests x duration) / span",
        "concurrency_mean": "time average of requests that have arrived and not finished, without the rejected",
        "queue_depth_mean": "time average of requests that have arrived and not started for the first time, without the rejected",
        "queue_depth_max": "most requests that had arrived and not started for the first time",
    },
    "Work": {
        "step_tokens_mean": "tokens computed / steps: tokens per reading of the weights",
        "padding_waste": "tokens computed and thrown away, to make the batch a rectangle / all tokens computed, those included",
        "recompute_tax": "tokens computed again / all tokens computed",
        "preemptions": "times that a running request was evicted",
        "swapped_blocks": "KV blocks copied between device and host, out and back",
        "bypassed_max": "most later starts that one skipped request saw",
        "prefix_hit_rate": "prompt tokens that prefix hits saved from ever being computed / prompt tokens, of requests that"
        " started: what is computed again after a preemption never counts as a hit",
    },
    "Tenants (where there are two or more; in MLflow's keys `@` in a name is `:40`, as `slotlab.names.escape` does it)": {
        "tenant_*_ttft_mean": "mean ttft of the tenant's finished requests [time]",
        "tenant_*_e2e_mean": "mean e2e of the tenant's finished requests [time]",
        "tenant_*_slowdown_mean": "mean slowdown of the tenant's finished requests",
        "tenant_*_service": "prompt tokens computed for the first time (if a first token came) + 2 x output tokens emitted",
        "tenant_*_output_throughput": "output tokens that the tenant was sent / span [tokens/time]",
        "jain_index": "(sum x)^2 / (tenants x sum x^2) of x = service / weight: 1 is even",
        "fairness_gap": "largest difference of service / weight between two tenants over an interval in which both have a"
        " request that waits for its first start [tokens]",
    },
    "Repeats": {
        "repeats": "times that the point was served, each on another draw of the workload",
        "ended_early": "true if any of them was cut at load.max_seconds; else missing",
        "*_lo": "smallest value among the repeats",
        "*_hi": "largest value among the repeats",
    },
    "The whole curve": {
        "max_throughput": "largest output_throughput of the curve [tokens/time]",
        "goodput_at_slo": "largest goodput of the curve [1/time]",
        "knee_rate": "largest offered_rate whose verdict is stable [1/time]",
        "ttft_p99_at_ref_rate": "ttft_p99 at the reference point (load.ref_rate; default: the middle point) [time]",
    },
    "Which limit kept requests waiting": BOUNDS,
    "Hardware (of real engines)": HARDWARE,
    "What an oracle would have reached (on a virtual clock)": ORACLE,
}

METRICS: dict[str, str] = {key: meaning for section in SECTIONS.values() for key, meaning in section.items()}


def as_markdown() -> str:
    """All sections as tables, for docs/metrics.md."""
    parts = []
    for title, section in SECTIONS.items():
        rows = [f"| `{key}` | {meaning} |" for key, meaning in section.items()]
        parts.append("\n".join([f"### {title}", "", "| key | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)
