"""The continuous batching of transformers in its own environment: `python serve_transformers.py FOLDER REQUESTS bf16|fp32`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from jobs import SLOTS, TOKENS_PER_STEP, read
from protocol import answer
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaForCausalLM

BLOCKS, BLOCK_SIZE = 512, 32


def main(folder: Path, jobs_file: Path, how: str) -> None:
    """Serve whenever told to."""
    jobs = read(jobs_file)
    model = LlamaForCausalLM.from_pretrained(folder, dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[how]).eval()
    model.set_attn_implementation("paged|sdpa")
    greedy = GenerationConfig(do_sample=False, max_new_tokens=128, eos_token_id=-1, pad_token_id=0)
    config = ContinuousBatchingConfig(
        page_size=BLOCK_SIZE,
        num_blocks=BLOCKS,
        max_batch_tokens=TOKENS_PER_STEP,
        max_requests_per_batch=SLOTS,
        allow_block_sharing=False,
    )
    manager = model.init_continuous_batching(greedy, config)
    manager.start()

    def once() -> dict[str, Any]:
        ids = [manager.add_request(job.prompt, max_new_tokens=job.output, eos_token_id=-1) for job in jobs]
        done: dict[str, list[int]] = {}
        while len(done) < len(jobs):
            result = manager.get_result(timeout=600)
            assert result is not None and result.error is None, f"no result: {result}"
            if result.is_finished():
                done[result.request_id] = result.generated_tokens
        return {"outputs": [list(done[id]) for id in ids]}

    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "threads": str(torch.get_num_threads())}
    answer(once, versions)
    manager.stop(block=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
