"""How the paged engine comes by its model runner: device, dtype, ops, memory, graphs, and what the record says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slotlab import Model, UserError

if TYPE_CHECKING:
    import torch

    from slotlab_kernels.ops import Ops
    from slotlab_kernels.runner import ModelRunner
    from slotlab_plugins.engines.paged import Paged


def open_runner(engine: Paged, model: Model) -> tuple[ModelRunner, Mapping[str, str]]:
    """A warm runner for what `engine` asks, and the facts. UserError where that cannot be had, or does not fit into memory."""
    from slotlab_kernels.device import resolve_device, resolve_dtype
    from slotlab_kernels.ops import choose_ops

    with refusals():
        device = resolve_device(engine.device)
        dtype = resolve_dtype(engine.dtype, device)
        ops = choose_ops(device, engine.ops)
    if engine.gpu_memory_utilization is not None and device.type != "cuda":
        value = engine.gpu_memory_utilization
        raise UserError(f"engine.gpu_memory_utilization={value}: only on CUDA, here it must be null; choose engine.num_blocks")
    weights = model.load(device, dtype)
    with refusals():
        runner = build(engine, weights, device, ops)
        warm_up(runner, *engine.most)
    return runner, {"dtype": str(dtype).removeprefix("torch."), "weights": model.origin(), **facts(engine, runner, device, ops)}


@contextmanager
def refusals() -> Iterator[None]:
    """What the kernels cannot do here becomes a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"engine: {error}") from None


def build(engine: Paged, weights: Any, device: torch.device, ops: Ops) -> ModelRunner:
    """The runner; on CUDA with graphs, and with as many blocks as fit if the engine asks for a share of the memory."""
    from slotlab_kernels.graphs import Capture
    from slotlab_kernels.llama import Llama
    from slotlab_kernels.memory import CudaGauge, fit_num_blocks
    from slotlab_kernels.runner import ModelRunner

    seqs, tokens = engine.most
    capture = None
    if engine.graphs and device.type == "cuda" and isinstance(weights, Llama):
        capture = Capture(seqs, weights.shape.max_context, sampled=engine.temperature > 0)

    def make(num_blocks: int) -> ModelRunner:
        return ModelRunner(weights, num_blocks, engine.block_size, ops, capture, deterministic=engine.deterministic)

    if engine.gpu_memory_utilization is not None:
        share = engine.gpu_memory_utilization
        engine.num_blocks = fit_num_blocks(make, CudaGauge(device), share, tokens, seqs, engine.block_size)
    return make(engine.num_blocks)


def warm_up(runner: ModelRunner, seqs: int, tokens: int) -> None:
    """Prompts of its own, so that no request pays for compiling: a prefill, a decode, and both at once; on CUDA the largest."""
    from slotlab_kernels.batch import Row
    from slotlab_kernels.memory import rehearsal_blocks, rehearse
    from slotlab_kernels.sampling import Sampling

    limits, sampling = runner.limits, Sampling()
    if runner.model.device.type == "cuda" and limits.num_blocks >= rehearsal_blocks(tokens, seqs, limits.block_size):
        return rehearse(runner, tokens, seqs)
    fit = min(limits.num_blocks, 2)
    few, blocks = min(limits.block_size, limits.max_context - 1), list(range(fit))
    prefill, decode = Row([1] * few, 0, blocks[:1], sampling), Row([1], max(0, few - 1), blocks[:1], sampling)
    for rows in ([prefill], [decode], [decode, Row([1] * few, 0, blocks[1:], sampling)][:fit]):
        runner.step(rows)
    runner.reset()


def facts(engine: Paged, runner: ModelRunner, device: torch.device, ops: Ops) -> Mapping[str, str]:
    """The device, which implementation of each op runs, and the modes."""
    import torch

    cuda = device.type == "cuda"
    foreign = getattr(runner.model, "ops", None)  # a model that is not ours calls some of them only
    invariant = foreign is None and (engine.deterministic or not cuda)
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads",
        "num_blocks": str(engine.num_blocks),
        "graphs": "decode" if runner.graphs else "none",
        "overlap": "one step in flight" if engine.overlaps(device) else "none",
        "deterministic": "any batch" if invariant else "equal batches only",
        **{f"op.{op}": name for op, name in runner.ops.names.items() if foreign is None or op in foreign},
        **{f"ops.{name}": remark for name, remark in ops.remarks.items()},
    }
