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
        differs = warm_up(runner, *engine.most)
    told = {"dtype": str(dtype).removeprefix("torch."), "weights": model.origin()}
    return runner, {**told, **facts(engine, runner, device, ops), **invariance(engine, runner, differs)}


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


def warm_up(runner: ModelRunner, seqs: int, tokens: int) -> str | None:
    """Steps of its own, so that no request pays for compiling; on CUDA the largest too. What `batch_dependence` says of them."""
    from slotlab_kernels.invariance import batch_dependence
    from slotlab_kernels.memory import rehearsal_blocks, rehearse

    limits = runner.limits
    if runner.model.device.type == "cuda" and limits.num_blocks >= rehearsal_blocks(tokens, seqs, limits.block_size):
        rehearse(runner, tokens, seqs)
    return batch_dependence(runner)


def facts(engine: Paged, runner: ModelRunner, device: torch.device, ops: Ops) -> Mapping[str, str]:
    """The device, which implementation of each op runs, and the modes."""
    import torch

    cuda = device.type == "cuda"
    foreign = getattr(runner.model, "ops", None)  # a model that is not ours calls some of them only
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads",
        "num_blocks": str(engine.num_blocks),
        "graphs": "decode" if runner.graphs else "none",
        "overlap": "one step in flight" if engine.overlaps(device) else "none",
        **{f"op.{op}": name for op, name in runner.ops.names.items() if foreign is None or op in foreign},
        **fallbacks(engine, ops),
    }


def fallbacks(engine: Paged, ops: Ops) -> dict[str, str]:
    """What the kernels had to remark, and whether an op runs in place of a faster one that cannot run here."""
    from slotlab_kernels.ops import IMPLEMENTATIONS

    order = [*IMPLEMENTATIONS]
    last = max((order.index(name.split()[0]) for op, name in ops.names.items() if op not in engine.ops), default=-1)
    faster = [name for name in ops.remarks if order.index(name.split()[0]) <= last]
    missing = [f"{name} {why}" for name in faster if (why := ops.remarks[name]).startswith("cannot run here")]
    told = {f"ops.{name}": remark for name, remark in ops.remarks.items()}
    return told | ({"remark.fallback_ops": f"slower ops run, for {'; '.join(missing)}"} if missing else {})


def invariance(engine: Paged, runner: ModelRunner, differs: str | None) -> dict[str, str]:
    """Within what a token's numbers are the same: no more than is both meant to be so and was found so at the start."""
    if runner.model.device.type == "cuda" and not engine.deterministic:
        return {"deterministic": "equal batches only"}
    if differs is None:
        foreign = hasattr(runner.model, "ops")  # what its own layers do is known from the trial alone
        return {"deterministic": "the batches tried at the start" if foreign else "any batch"}
    why = f"computed {differs}, a request's logits or K and V are other bytes than alone"
    return {"deterministic": "equal batches only", "remark.not_deterministic": f"tokens may depend on the policy here: {why}"}
