// Matrix product with packed weights. Every output is one sum over K in one fixed order, whatever else is computed.
//
// Weights are packed in panels of two vectors of outputs: [N / PANEL][K units][PANEL], so that a panel is read from memory once,
// in order, and stays in the cache for all rows.
#include <omp.h>

#include "linear_amx.h"
#include "simd.h"

namespace slotlab {

constexpr int PANEL = 2 * LANES;
constexpr int ROWS = REGISTERS == 32 ? 12 : 6;  // rows that are multiplied with a panel at once: their sums fill the registers
constexpr int AHEAD = 8;  // units of a panel that are fetched before they are needed

template <class T, int M, class Out>
inline void tile(const uint32_t* x, long stride, const uint32_t* panel, long units, const Floats* bias, Out* out, long ldo) {
    Floats sum[M][2];
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) sum[m][0] = bias[0], sum[m][1] = bias[1];
    for (long u = 0; u < units; u++, panel += PANEL) {
        __builtin_prefetch(panel + AHEAD * PANEL);
        __builtin_prefetch(panel + AHEAD * PANEL + LANES);
        Units left = load<Units>(panel), right = load<Units>(panel + LANES);
#pragma GCC unroll 16
        for (int m = 0; m < M; m++) {
            Units one = Units{} + x[m * stride + u];
            sum[m][0] = multiply_add<T>(sum[m][0], one, left);
            sum[m][1] = multiply_add<T>(sum[m][1], one, right);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
        store_narrow(sum[m][0], out + m * ldo);
        store_narrow(sum[m][1], out + m * ldo + LANES);
    }
}

template <class T, class Out, int M>
inline void rows(int m, const uint32_t* x, long stride, const uint32_t* panel, long units, const Floats* bias, Out* out, long ldo) {
    if constexpr (M > 0) {
        if (m == M) return tile<T, M>(x, stride, panel, units, bias, out, ldo);
        rows<T, Out, M - 1>(m, x, stride, panel, units, bias, out, ldo);
    }
}

// x [M, K], out [M, N]; `stride` of x in units; the last panel may be wider than N.
template <class T, class Out>
void linear(const uint32_t* x, long stride, const uint32_t* weight, const T* bias, Out* out, long M, long N, long units) {
    long panels = (N + PANEL - 1) / PANEL;
    long chunks = (M + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static)
    for (long p = 0; p < panels; p++) {
        long width = N - p * PANEL < PANEL ? N - p * PANEL : PANEL;
        float wide[PANEL] = {};
        for (long n = 0; bias && n < width; n++) wide[n] = widen(bias[p * PANEL + n]);
        Floats start[2] = {load<Floats>(wide), load<Floats>(wide + LANES)};
        const uint32_t* panel = weight + p * units * PANEL;
        for (long c = 0, done = 0; c < chunks; c++) {
            int m = int((M - done + chunks - c - 1) / (chunks - c));  // chunks of equal size, as far as that goes
            Out* to = out + done * N + p * PANEL;
            if (width == PANEL) {
                rows<T, Out, ROWS>(m, x + done * stride, stride, panel, units, start, to, N);
            } else {
                Out edge[ROWS * PANEL];
                rows<T, Out, ROWS>(m, x + done * stride, stride, panel, units, start, edge, PANEL);
                for (int r = 0; r < m; r++) std::memcpy(to + r * N, edge + r * PANEL, width * sizeof(Out));
            }
            done += m;
        }
    }
}

}  // namespace slotlab

using namespace slotlab;

// How a dtype is packed: outputs in a panel, and the multiple of units to which K is filled up.
struct Packing {
    long panel, step;
};
constexpr Packing FP32 = {PANEL, 1};
#ifdef SLOTLAB_AMX
constexpr Packing BF16 = {amx::PANEL, amx::STEP};
#else
constexpr Packing BF16 = FP32;
#endif

static long filled(long count, long multiple) { return (count + multiple - 1) / multiple * multiple; }

// weight [N, K units] -> packed [ceil(N / panel), K units filled up, panel], zeros past N and K
static void pack(const uint32_t* weight, uint32_t* packed, long N, long units, Packing by) {
    long panels = filled(N, by.panel) / by.panel, deep = filled(units, by.step);
#pragma omp parallel for
    for (long p = 0; p < panels; p++)
        for (long n = 0; n < by.panel; n++)
            for (long u = 0; u < deep; u++) {
                long output = p * by.panel + n;
                packed[(p * deep + u) * by.panel + n] = output < N && u < units ? weight[output * units + u] : 0;
            }
}

extern "C" {

// Asks the system for what the kernels need, once per process; 0: granted, or the number of an error.
int prepare() {
#ifdef SLOTLAB_AMX
    return request_tiles();
#else
    return 0;
#endif
}

// How many units a packed weight takes.
long packed_fp32(long N, long units) { return filled(N, FP32.panel) * filled(units, FP32.step); }
long packed_bf16(long N, long units) { return filled(N, BF16.panel) * filled(units, BF16.step); }

void pack_fp32(const uint32_t* weight, uint32_t* packed, long N, long units) { pack(weight, packed, N, units, FP32); }
void pack_bf16(const uint32_t* weight, uint32_t* packed, long N, long units) { pack(weight, packed, N, units, BF16); }

void linear_fp32(const uint32_t* x, long stride, const uint32_t* w, const float* bias, void* out, long M, long N, long units, long) {
    linear<float>(x, stride, w, bias, static_cast<float*>(out), M, N, units);
}

// wide: the result in fp32
void linear_bf16(const uint32_t* x, long stride, const uint32_t* w, const bf16* bias, void* out, long M, long N, long units, long wide) {
#ifdef SLOTLAB_AMX
    if (wide)
        amx::linear(x, stride, w, bias, static_cast<float*>(out), M, N, units);
    else
        amx::linear(x, stride, w, bias, static_cast<bf16*>(out), M, N, units);
#else
    if (wide)
        linear<bf16>(x, stride, w, bias, static_cast<float*>(out), M, N, units);
    else
        linear<bf16>(x, stride, w, bias, static_cast<bf16*>(out), M, N, units);
#endif
}
}
