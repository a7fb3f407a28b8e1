// Matrix product with packed weights. Every output is one sum over K in one fixed order, whatever else is computed.
//
// Weights are packed in panels of two vectors of outputs: [N / PANEL][K units][PANEL], so that a panel is read from memory once,
// in order, and stays in the cache for all rows.
#include <omp.h>

#include <memory>
#include <type_traits>

#include "linear_amx.h"
#include "simd.h"

namespace slotlab {

constexpr int PANEL = 2 * LANES;
constexpr int ROWS = REGISTERS == 32 ? 12 : 6;  // rows that are multiplied with a panel at once: their sums fill the registers
constexpr int MANY = 4 * ROWS;  // rows for which it pays to widen a panel first
constexpr int AHEAD = 8;  // units of a panel that are fetched before they are needed

// How x is read: in fp32 where bf16 is multiplied as such, so that it is widened once and not for every panel; else in units.
template <class T>
using X = std::conditional_t<WIDENS<T>, float, uint32_t>;

template <class T, int M, class Out>
inline void tile(const X<T>* x, long stride, const uint32_t* panel, long units, const Floats* bias, Out* out, long ldo) {
    Floats sum[M][2];
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) sum[m][0] = bias[0], sum[m][1] = bias[1];
    for (long u = 0; u < units; u++, panel += PANEL) {
        __builtin_prefetch(panel + AHEAD * PANEL);
        __builtin_prefetch(panel + AHEAD * PANEL + LANES);
        if constexpr (WIDENS<T>) {
#pragma GCC unroll 2
            for (int odd = 0; odd < 2; odd++) {
                Units left = load<Units>(panel), right = load<Units>(panel + LANES);
                Floats w0 = Floats(odd ? left & 0xFFFF0000u : left << 16), w1 = Floats(odd ? right & 0xFFFF0000u : right << 16);
#pragma GCC unroll 16
                for (int m = 0; m < M; m++) {
                    Floats one = splat(x[m * stride + 2 * u + odd]);
                    sum[m][0] += one * w0;
                    sum[m][1] += one * w1;
                }
            }
        } else {
            Units left = load<Units>(panel), right = load<Units>(panel + LANES);
#pragma GCC unroll 16
            for (int m = 0; m < M; m++) {
                Units one = Units{} + x[m * stride + u];
                sum[m][0] = multiply_add<T>(sum[m][0], one, left);
                sum[m][1] = multiply_add<T>(sum[m][1], one, right);
            }
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
        store_narrow(sum[m][0], out + m * ldo);
        store_narrow(sum[m][1], out + m * ldo + LANES);
    }
}

template <class T, class Out, int M>
inline void rows(int m, const X<T>* x, long stride, const uint32_t* panel, long units, const Floats* bias, Out* out, long ldo) {
    if constexpr (M > 0) {
        if (m == M) return tile<T, M>(x, stride, panel, units, bias, out, ldo);
        rows<T, Out, M - 1>(m, x, stride, panel, units, bias, out, ldo);
    }
}

// All rows of x times one panel; `stride` of x in what X is; `width`: the outputs that there are, at most PANEL.
template <class T, class Out>
void one_panel(const X<T>* x, long stride, const uint32_t* panel, long units, const Floats* bias, Out* out, long ldo, long M, long width) {
    long chunks = (M + ROWS - 1) / ROWS;
    for (long c = 0, done = 0; c < chunks; c++) {
        int m = int((M - done + chunks - c - 1) / (chunks - c));  // chunks of equal size, as far as that goes
        Out* to = out + done * ldo;
        if (width == PANEL) {
            rows<T, Out, ROWS>(m, x + done * stride, stride, panel, units, bias, to, ldo);
        } else {
            Out edge[ROWS * PANEL];
            rows<T, Out, ROWS>(m, x + done * stride, stride, panel, units, bias, edge, PANEL);
            for (int r = 0; r < m; r++) std::memcpy(to + r * ldo, edge + r * PANEL, width * sizeof(Out));
        }
        done += m;
    }
}

// A panel of bf16 in fp32, number after number of K.
inline void widen_panel(const uint32_t* panel, long units, float* wide) {
    for (long at = 0; at < units * PANEL; at += PANEL, wide += 2 * PANEL)
        for (long n = 0; n < PANEL; n += LANES) {
            Units pair = load<Units>(panel + at + n);
            store(wide + n, Floats(pair << 16));
            store(wide + PANEL + n, Floats(pair & 0xFFFF0000u));
        }
}

// x [M, K], out [M, N]; the last panel may be wider than N. Where bf16 is widened and rows are many, a panel is widened once for
// all of them; the sums go the same way.
template <class T, class Out>
void linear(const X<T>* x, long stride, const uint32_t* weight, const T* bias, Out* out, long M, long N, long units) {
    long panels = (N + PANEL - 1) / PANEL;
    bool widens = WIDENS<T> && M > MANY;
#pragma omp parallel
    {
        std::unique_ptr<float[]> panel_in_fp32(new float[widens ? 2 * units * PANEL : 1]);
#pragma omp for schedule(static)
        for (long p = 0; p < panels; p++) {
            long width = N - p * PANEL < PANEL ? N - p * PANEL : PANEL;
            float wide[PANEL] = {};
            for (long n = 0; bias && n < width; n++) wide[n] = widen(bias[p * PANEL + n]);
            Floats start[2] = {load<Floats>(wide), load<Floats>(wide + LANES)};
            const uint32_t* panel = weight + p * units * PANEL;
            Out* to = out + p * PANEL;
            if (widens) {
                float* copy = panel_in_fp32.get();
                widen_panel(panel, units, copy);
                auto numbers = [](const void* from) { return static_cast<const uint32_t*>(from); };
                one_panel<float>(numbers(x), stride, numbers(copy), 2 * units, start, to, N, M, width);
            } else {
                one_panel<T>(x, stride, panel, units, start, to, N, M, width);
            }
        }
    }
}

#ifndef SLOTLAB_AMX
template <class T, class Out>
void linear_widened(const uint32_t* x, long stride, const uint32_t* weight, const T* bias, Out* out, long M, long N, long units) {
    if constexpr (WIDENS<T>) {
        long inputs = 2 * units;
        std::unique_ptr<float[]> wide(new float[M * inputs]);
#pragma omp parallel for if (M > ROWS)
        for (long m = 0; m < M; m++) {
            const T* from = reinterpret_cast<const T*>(x + m * stride);
            for (long k = 0; k < inputs; k += LANES) store_part(load_part(from + k, inputs - k), &wide[m * inputs + k], inputs - k);
        }
        linear<T>(wide.get(), inputs, weight, bias, out, M, N, units);
    } else {
        linear<T>(x, stride, weight, bias, out, M, N, units);
    }
}
#endif

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
        linear_widened(x, stride, w, bias, static_cast<float*>(out), M, N, units);
    else
        linear_widened(x, stride, w, bias, static_cast<bf16*>(out), M, N, units);
#endif
}
}
