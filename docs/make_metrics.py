"""Writes docs/metrics.md: `.venv/bin/python docs/make_metrics.py`. A test fails where the file is not current.

The formulas of the other tools are written here from their documentation and source; no code is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from slotlab.record.definitions import as_markdown
from slotlab.record.metrics import SLO, request_metrics
from slotlab.record.schema import REQUESTS

SLO_TTFT, SLO_TPOT = 1.0, 0.6  # seconds


@dataclass(frozen=True)
class Reply:
    """What a client saw of one request, in seconds."""

    name: str
    scheduled: float  # when it should have been sent
    sent: float
    tokens: Sequence[float]  # when each output token came
    status: str = "finished"

    @property
    def ttft(self) -> float:
        """From the sending, as clients count."""
        return self.tokens[0] - self.sent

    @property
    def e2e(self) -> float:
        """From the sending."""
        return self.tokens[-1] - self.sent

    @property
    def n(self) -> int:
        """Output tokens."""
        return len(self.tokens)


RECORD = (
    Reply("A", 0.0, 0.0, (1.0, 1.1, 1.2, 1.3, 1.4)),
    Reply("B", 0.5, 0.5, (1.2,)),
    Reply("C", 1.0, 2.0, (2.5, 2.6, 2.7, 4.7, 4.8)),
    Reply("D", 1.5, 1.5, (2.0, 2.4)),
    Reply("E", 2.0, 2.0, (2.5, 2.6, 2.7), "aborted"),
    Reply("F", 2.5, 2.5, (), "rejected"),
)
DONE = [reply for reply in RECORD if reply.status == "finished"]
LONG = [reply for reply in DONE if reply.n > 1]
GAPS = [gap for reply in DONE for gap in np.diff(reply.tokens)]
DURATION = max(reply.tokens[-1] for reply in DONE) - min(reply.sent for reply in RECORD)
ROWS = ("ttft mean", "tpot mean", "itl mean", "itl p99", "e2e mean", "e2e p50", "e2e p99", "requests/s", "tokens/s", "goodput/s")


def ours() -> dict[str, float]:
    """slotlab's own figures."""
    rows = [
        {
            **{field.name: None if field.nullable else 0 for field in REQUESTS},
            **{"id": i, "tenant": "", "predictor": "", "status": reply.status, "token_times": list(reply.tokens)},
            **{"scheduled_arrival": reply.scheduled, "submitted": reply.sent, "output_tokens": reply.n},
            "started": reply.sent if reply.tokens else None,
            "first_token": reply.tokens[0] if reply.tokens else None,
            "finish": reply.tokens[-1] if reply.status == "finished" else None,
        }
        for i, reply in enumerate(RECORD)
    ]
    requests = pa.Table.from_pylist(rows, schema=REQUESTS).to_pandas()
    found = request_metrics(requests, slo=SLO(ttft=SLO_TTFT, tpot=SLO_TPOT), weights={})
    names = {"requests/s": "request_throughput", "tokens/s": "output_throughput", "goodput/s": "goodput"}
    return {row: found[names.get(row, row.replace(" ", "_"))] for row in ROWS}


def vllm() -> dict[str, float]:
    """vllm bench serve: from the sending; the requests that succeeded; a reply of one token passes any TPOT limit."""
    good = [reply for reply in DONE if reply.ttft <= SLO_TTFT and (reply.n < 2 or _vllm_tpot(reply) <= SLO_TPOT)]
    return {
        "ttft mean": _mean([reply.ttft for reply in DONE]),
        "tpot mean": _mean([_vllm_tpot(reply) for reply in LONG]),
        "itl mean": _mean(GAPS),
        "itl p99": _linear(GAPS, 99),
        "e2e mean": _mean([reply.e2e for reply in DONE]),
        "e2e p50": _linear([reply.e2e for reply in DONE], 50),
        "e2e p99": _linear([reply.e2e for reply in DONE], 99),
        "requests/s": len(DONE) / DURATION,
        "tokens/s": sum(reply.n for reply in DONE) / DURATION,
        "goodput/s": len(good) / DURATION,
    }


def _vllm_tpot(reply: Reply) -> float:
    return (reply.e2e - reply.ttft) / (reply.n - 1)


def sglang() -> dict[str, float]:
    """sglang.bench_serving: as vLLM's, without goodput."""
    return {row: value for row, value in vllm().items() if row != "goodput/s"}


def guidellm() -> dict[str, float]:
    """GuideLLM: TPOT includes the first token's wait; ITL is one mean per request; percentiles by nearest rank."""
    itl = [(reply.tokens[-1] - reply.tokens[0]) / (reply.n - 1) for reply in LONG]
    return {
        "ttft mean": _mean([reply.ttft for reply in DONE]),
        "tpot mean": _mean([reply.e2e / reply.n for reply in DONE]),
        "itl mean": _mean(itl),
        "itl p99": _nearest(itl, 99),
        "e2e mean": _mean([reply.e2e for reply in DONE]),
        "e2e p50": _nearest([reply.e2e for reply in DONE], 50),
        "e2e p99": _nearest([reply.e2e for reply in DONE], 99),
    }


def aiperf() -> dict[str, float]:
    """aiperf: ITL is one mean per request, and there is no TPOT beside it; good requests over the duration."""
    itl = {reply.name: _vllm_tpot(reply) for reply in LONG}
    good = [reply for reply in DONE if reply.ttft <= SLO_TTFT and itl.get(reply.name, 0.0) <= SLO_TPOT]
    return {
        **{row: value for row, value in vllm().items() if row not in ("tpot mean", "goodput/s")},
        "itl mean": _mean(list(itl.values())),
        "itl p99": _linear(list(itl.values()), 99),
        "goodput/s": len(good) / DURATION,
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _linear(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def _nearest(values: Sequence[float], percent: float) -> float:
    """The smallest value with at least this share of values up to it."""
    ordered = sorted(values)
    return ordered[int(np.searchsorted(np.arange(1, len(ordered) + 1) / len(ordered), percent / 100))]


TOOLS: dict[str, Callable[[], dict[str, float]]] = {
    "slotlab": ours,
    "vLLM": vllm,
    "SGLang": sglang,
    "GuideLLM": guidellm,
    "aiperf": aiperf,
}

TEXT = """# Metrics

Made by `docs/make_metrics.py` from `METRICS` in `framework/slotlab/record/definitions.py`; do not edit.

All times are on one monotonic clock per run and count from the *scheduled* arrival. What is undefined is left out: it is
never 0 and never NaN. A key with `*` stands for several.

{definitions}

## The same record by other tools' formulas

Six requests, in seconds. C was sent a second late, and stalls for 2 s in the middle. B has a single token. E breaks off,
F is refused. The limits are TTFT {slo_ttft:g} s and TPOT {slo_tpot:g} s.

{record}

{table}

A dash: the tool has no such figure, or gives a distribution over seconds instead (GuideLLM's rates). Where they part:

- **From when.** slotlab counts from the scheduled arrival, so C's late sending is in its TTFT and E2E. The others count
  from the sending, and the second is lost.
- **TPOT.** slotlab, vLLM and SGLang: (last - first) / (n - 1), without B, which has none. GuideLLM: (last - sent) / n, so
  the wait for the first token is in it, and B counts. aiperf has none beside its ITL.
- **ITL.** slotlab, vLLM and SGLang pool all gaps between tokens, so C's stall of 2 s is seen. GuideLLM and aiperf take one
  mean per request: no stall can be longer than its request's mean.
- **Percentiles.** GuideLLM takes the nearest rank, the others interpolate.
- **Who counts.** slotlab counts the tokens that E had emitted before it broke off, and divides by the span to the last token
  of anybody; the others count those of finished requests. A percentile over survivors gets better when requests fail:
  `adj_ttft_*` and `adj_e2e_*` count each failure as infinite (aiperf's idea), and `goodput_fraction` has all offered
  requests in the denominator.
- **Goodput.** B passes the TPOT limit everywhere, for it has no TPOT. C meets the TTFT limit if one counts from its sending,
  not from its schedule.

Formulas as in the benchmark scripts of vLLM and SGLang, GuideLLM at ee7a7745 and aiperf 0.13.0. Each token is taken to come
in a chunk of its own.

## What a request's time went into

`slotlab export` gives each finished request five parts that add up to its E2E: `queued` (to the first start), `prefill` (to
the first token), `decode`, `stalled` (the share of later steps that others' prefill took) and `preempted` (no slot, or
computing again what was lost). For preempted requests they are known only where the run has a table `slots`.

## Comparisons

`slotlab compare RUN RUN ...` refuses runs with different requests (`workload_digest`), load points or metric versions.
Latencies and `goodput_fraction` are paired by request, with a bootstrap over blocks of a tenth of the requests, for
neighbours in one queue are alike. Throughput, goodput and fairness exist once per repeat, so they are paired by repeat and
need several (`load.repeats`). A figure over all points is the mean over the load points of each point's figure. p99 needs 100
requests per point. An outcome counts as won or lost if the 95 % interval excludes zero and, on a real engine, the
difference exceeds all that two runs of the same composition allow (`slotlab experiment=a_a`, or `trial=1,2` in the sweep).
Ten figures at 95 % each: up to two in five comparisons of equals show one of them by chance. Look for the same sign at
neighbouring load points.
"""


def record_table() -> str:
    """The record, a row per request."""
    rows = []
    for reply in RECORD:
        times = ", ".join(f"{time:g}" for time in reply.tokens) or "-"
        rows.append(f"| {reply.name} | {reply.scheduled:g} | {reply.sent:g} | {times} | {reply.status} |")
    return "\n".join(["| request | scheduled | sent | tokens at | status |", "|---|---|---|---|---|", *rows])


def tool_table() -> str:
    """The figures, a column per tool."""
    columns = [tool() for tool in TOOLS.values()]
    rows = [f"| {row} | " + " | ".join(f"{c[row]:.4g}" if row in c else "-" for c in columns) + " |" for row in ROWS]
    return "\n".join([f"| figure | {' | '.join(TOOLS)} |", "|---" * (len(TOOLS) + 1) + "|", *rows])


def page() -> str:
    """The whole file."""
    parts = {"definitions": "## Definitions\n\n" + as_markdown(), "record": record_table(), "table": tool_table()}
    return TEXT.format(**parts, slo_ttft=SLO_TTFT, slo_tpot=SLO_TPOT)


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page())
