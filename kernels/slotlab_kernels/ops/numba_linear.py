"""The matrix product on the CPU in numba. Every output is one sum over K in one fixed order, whatever else is computed.

An output begins with its bias and adds its products one after the other, each by a fused multiply-add of fp32 (on a processor
without one by a product and a sum). Outputs are lanes of vectors and never parts of one sum, so neither the number of rows,
nor a row's place among them, nor the number of threads has a say in how one is rounded. Weights are packed in panels of 16
outputs: [N / 16, K, 16], so that a panel is read from memory once, in order, and stays in the cache for all rows.
Shape suffixes: P panels, K inputs, L lanes of a panel, R rows of a tile.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from slotlab_kernels.ops.numba_math import Array, compiled, narrow, widen

PANEL = 16
ROWS = 6
"""Rows that are multiplied with a panel at once: in vectors of 8 their sums fill 12 of the 16 registers."""

_F32, _I16, _I32, _I64 = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_LANES = ir.VectorType(_F32, PANEL)


def _multiply(typing: Any, sums: Any, x: Any, row: Any, count: Any, weight: Any, panel: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums_p, x_p, weight_p = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 4))
        units = builder.extract_value(context.make_array(x)(context, builder, args[1]).shape, 1)
        x_p = builder.gep(x_p, [builder.mul(args[2], units)])
        weight_p = builder.gep(weight_p, [builder.mul(args[5], builder.mul(units, _I64(PANEL)))])
        done = builder.append_basic_block("done")
        choice = builder.switch(args[3], done)
        for rows in range(1, ROWS + 1):
            with builder.goto_block(block := builder.append_basic_block(f"rows_{rows}")):
                _tile(builder, rows, sums_p, x_p, weight_p, units)
                builder.branch(done)
            choice.add_case(_I64(rows), block)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(sums, x, types.intp, types.intp, weight, types.intp), build


def _tile(builder: ir.IRBuilder, rows: int, sums_p: ir.Value, x_p: ir.Value, weight_p: ir.Value, units: ir.Value) -> None:
    """A loop over K, which is not empty; the sums, one vector per row, stay in registers."""
    places = [builder.bitcast(builder.gep(sums_p, [_I64(row * PANEL)]), _LANES.as_pointer()) for row in range(rows)]
    fused = builder.module.declare_intrinsic(f"llvm.fmuladd.v{PANEL}f32", fnty=ir.FunctionType(_LANES, [_LANES] * 3))
    before, start = [builder.load(place, align=4) for place in places], builder.block
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    unit, sums = builder.phi(_I64), [builder.phi(_LANES) for _ in range(rows)]
    lanes, after = _widened(builder, builder.gep(weight_p, [builder.mul(unit, _I64(PANEL))])), []
    for row, total in enumerate(sums):
        one = builder.load(builder.gep(x_p, [builder.add(builder.mul(units, _I64(row)), unit)]))
        single = builder.insert_element(ir.Constant(_LANES, ir.Undefined), one, _I32(0))
        spread = builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(_I32, PANEL), [0] * PANEL))
        after.append(builder.call(fused, [spread, lanes, total]))
    following = builder.add(unit, _I64(1))
    builder.cbranch(builder.icmp_signed("<", following, units), loop, end)
    for phi, first, then in zip([unit, *sums], [_I64(0), *before], [following, *after], strict=True):
        phi.add_incoming(first, start)
        phi.add_incoming(then, loop)
    builder.position_at_end(end)
    for place, then in zip(places, after, strict=True):
        builder.store(then, place, align=4)


def _widened(builder: ir.IRBuilder, weight_p: ir.Value) -> ir.Value:
    """The 16 weights of one input in fp32; a bf16 is the upper half of its fp32."""
    if weight_p.type.pointee == _F32:
        return builder.load(builder.bitcast(weight_p, _LANES.as_pointer()), align=4)
    wide = ir.VectorType(_I32, PANEL)
    half = builder.load(builder.bitcast(weight_p, ir.VectorType(_I16, PANEL).as_pointer()), align=2)
    return builder.bitcast(builder.shl(builder.zext(half, wide), ir.Constant(wide, [16] * PANEL)), _LANES)


multiply: Any = intrinsic(_multiply)
"""multiply(sums_RL, x_TK, row, count, weight_PKL, panel): adds to the first `count` (1 to ROWS) sums the products of the rows
from `row` on with a panel."""


@compiled(parallel=True)
def linear(x_TK: Array, weight_PKL: Array, bias_N: Array, out_TN: Array) -> None:
    """x times the weights, plus the bias unless that is empty; a panel is computed by one thread, for all rows."""
    tokens, outputs = out_TN.shape
    for panel in numba.prange(len(weight_PKL)):
        start_L, sums_RL = np.zeros(PANEL, np.float32), np.empty((ROWS, PANEL), np.float32)
        first = panel * PANEL
        for lane in range(min(PANEL, len(bias_N) - first)):
            start_L[lane] = widen(bias_N[first + lane])
        for row in range(0, tokens, ROWS):
            count = min(ROWS, tokens - row)
            sums_RL[:] = start_L
            multiply(sums_RL, x_TK, row, count, weight_PKL, panel)
            for r in range(count):
                for lane in range(min(PANEL, outputs - first)):
                    out_TN[row + r, first + lane] = narrow(sums_RL[r, lane], out_TN[0, 0])
