"""The same run gives the same results, in another process too."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import hashlib
from slotlab import Point, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.laws.tenants import TenantTraffic as Tenant
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.preemption.victims import LowestRank
from slotlab_plugins.workloads.synthetic import Synthetic

tenants = [Tenant("ann"), Tenant("bob", share=2.0, weight=3.0), Tenant("cyd", priority=1), Tenant("dee")]
workload = Synthetic(requests=120, tenants=tenants)
for policy in (VTC(), Priority(aging=0.1, displace=True)):
    arrivals = list(workload.draw(Streams(5, 1)))
    engine, recorder = Simulated(num_blocks=60), Recorder()
    engine.begin(arrivals, Streams(5, 1))
    scheduler = Scheduler(BlockPool(60, 16), policy, Continuous(8, 64), Prompt(0.05), LowestRank())
    serve(source(arrivals, Point(rate=40.0)), scheduler, engine, engine.clock(), recorder)
    assert any(row["preempted"] for row in recorder.steps)
    print(hashlib.sha256(repr([recorder.requests(), [str(row) for row in recorder.steps]]).encode()).hexdigest())
"""


def test_results_do_not_depend_on_the_hash_seed():
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "4242")
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].split())) == 2
