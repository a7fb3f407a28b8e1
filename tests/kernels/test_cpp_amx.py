"""The AMX path on a machine without AMX: the very same source with tiles in plain C++, and what the real flags compile to."""

import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch

from slotlab_kernels.ops import Ops, choose_ops, cpp_build
from slotlab_kernels.ops.cpp_build import COMMON, SOURCES
from slotlab_kernels.ops.cpp_ops import CppOps
from slotlab_kernels.ops.cpp_paths import TARGETS, here
from slotlab_kernels.runner import ModelRunner

CPU = torch.device("cpu")
AMX, BF16, *_ = TARGETS
EMULATED = ("-DSLOTLAB_EMULATE_AMX", *TARGETS[here()[0]].flags)
master = SimpleNamespace(**run_path(str(Path(__file__).parent / "test_batch_invariance.py")))


@pytest.fixture(scope="module")
def cpp() -> CppOps:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return CppOps(cpp_build.build("cpp (amx, emulated)", EMULATED))


@pytest.fixture(scope="module")
def ops(cpp: CppOps) -> Ops:
    return replace(choose_ops(CPU), linear=cpp.linear, pack=cpp.pack, paged_attention=cpp.paged_attention)


@pytest.mark.parametrize(("inputs", "outputs"), ((96, 72), (24, 40), (2, 5), (70, 32)))
@pytest.mark.parametrize("wide", (False, True))
def test_a_product_in_tiles_is_right_and_rows_are_the_same_among_any_others(
    cpp: CppOps, inputs: int, outputs: int, wide: bool
) -> None:
    """Also where inputs do not fill the last step, outputs the last panel, rows the last tile; and NaN lies past the inputs."""
    generator = torch.Generator().manual_seed(0)
    buffer = torch.full((45 * inputs + 64,), torch.nan, dtype=torch.bfloat16)
    x = buffer[: 45 * inputs].view(45, inputs)
    x.copy_(torch.randn(45, inputs, generator=generator))
    weight = (torch.randn(outputs, inputs, generator=generator) / inputs**0.5).bfloat16()
    bias, packed = torch.randn(outputs, generator=generator).bfloat16(), cpp.pack(weight)
    together = cpp.linear(x, packed, bias, wide=wide)
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    tolerance = 1e-5 if wide else 1e-2
    torch.testing.assert_close(together.double(), exact, rtol=tolerance, atol=tolerance)
    for rows in (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 44):
        assert torch.equal(cpp.linear(x[:rows], packed, bias, wide=wide), together[:rows])


def test_logits_in_tiles_do_not_depend_on_the_batch_the_chunks_or_preemption(ops: Ops) -> None:
    """The master test on this path."""
    runner, lengths = (
        ModelRunner(master.model("tiny", torch.bfloat16), master.NUM_BLOCKS, master.BLOCK_SIZE, ops),
        (1, 16, 33, 100),
    )
    alone = master.run_alone(runner, lengths)
    assert master.run_all(runner, lengths, master.whole, seed=1) == alone
    assert master.run_all(runner, lengths, master.mixed(random.Random(3)), seed=3, preempt=0.3) == alone


@pytest.mark.parametrize(("path", "instruction", "absent"), ((AMX, "tdpbf16ps", ""), (BF16, "vdpbf16ps", "tdpbf16ps")))
def test_the_flags_of_a_path_compile_to_its_instructions(tmp_path: Path, path: str, instruction: str, absent: str) -> None:
    """Compiled and not run: it needs another processor."""
    if shutil.which("g++") is None or os.uname().machine != "x86_64":
        pytest.skip("there is no g++ for x86-64")
    command = ["g++", *COMMON, *TARGETS[path].flags, "-O1", "-S", str(SOURCES / "linear.cpp"), "-o", str(tmp_path / "linear.s")]
    subprocess.run(command, check=True)
    text = (tmp_path / "linear.s").read_text()
    assert instruction in text and (not absent or absent not in text)
