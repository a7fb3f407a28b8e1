// bf16 matrix product in AMX tiles. A row's sum goes through K in steps of 32 in one order, for one row as for many: below some
// number of rows vectors would be as fast, but they sum in another order.
#pragma once
#include "amx.h"
#ifdef SLOTLAB_AMX

namespace slotlab::amx {

constexpr int PANEL = 32;   // outputs that are packed together: sixteen units of a panel are two tiles as they stand
constexpr long STEP = 16;   // units of K in a tile
constexpr int ROWS = 16;    // of x in a tile
constexpr long AHEAD = 4;   // tiles of a panel that are fetched before they are needed

// Tiles 0..3: sums (rows a, then b of x; outputs left and right). 4, 5: x. 6, 7: weights.
inline void configure(int a, int b) {
    TileConfig config;
    int rows[8] = {a, a, b, b, a, b, ROWS, ROWS};
    for (int t = 0; t < 8; t++) config.rows[t] = uint8_t(rows[t] > 0 ? rows[t] : 1), config.bytes[t] = 64;
    _tile_loadconfig(&config);
}

inline void step(const uint32_t* x, long stride, const uint32_t* panel, bool second) {
    __builtin_prefetch(panel + AHEAD * STEP * PANEL);
    _tile_loadd(6, panel, PANEL * 4);
    _tile_loadd(7, panel + 16, PANEL * 4);
    _tile_loadd(4, x, stride * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!second) return;
    _tile_loadd(5, x + ROWS * stride, stride * 4);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

// Up to 32 rows times one panel into `sums`; `tail`: the rows' last units [32, STEP], zeros past K, or null if K fills its steps.
inline void product(const uint32_t* x, long stride, const uint32_t* tail, const uint32_t* panel, long units, bool second, float* sums) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    long whole = units / STEP;
    for (long k = 0; k < whole; k++) step(x + k * STEP, stride, panel + k * STEP * PANEL, second);
    if (tail) step(tail, STEP, panel + whole * STEP * PANEL, second);
    _tile_stored(0, sums, PANEL * 4);
    _tile_stored(1, sums + 16, PANEL * 4);
    if (!second) return;
    _tile_stored(2, sums + ROWS * PANEL, PANEL * 4);
    _tile_stored(3, sums + ROWS * PANEL + 16, PANEL * 4);
}

// x [M, K], out [M, N]; `stride` of x in units; the last panel may be wider than N. Threads share the panels. Each call configures
// the tiles and gives them back: other libraries use them in the same threads, and a system switches faster without.
template <class Out>
void linear(const uint32_t* x, long stride, const uint32_t* weight, const bf16* bias, Out* out, long M, long N, long units) {
    long panels = (N + PANEL - 1) / PANEL, padded = (units + STEP - 1) / STEP * STEP, rest = units % STEP;
#pragma omp parallel
    {
        alignas(64) float sums[2 * ROWS * PANEL];
        alignas(64) uint32_t tail[2 * ROWS * STEP] = {};
        int configured = 0;
#pragma omp for schedule(static)
        for (long p = 0; p < panels; p++) {
            long width = N - p * PANEL < PANEL ? N - p * PANEL : PANEL;
            float wide[PANEL] = {};
            for (long n = 0; bias && n < width; n++) wide[n] = widen(bias[p * PANEL + n]);
            for (long first = 0; first < M; first += 2 * ROWS) {
                int rows = int(M - first < 2 * ROWS ? M - first : 2 * ROWS), a = rows < ROWS ? rows : ROWS;
                if (rows != configured) configure(a, rows - a), configured = rows;
                const uint32_t* from = x + first * stride;
                for (int r = 0; rest && r < rows; r++) std::memcpy(tail + r * STEP, from + r * stride + units - rest, rest * 4);
                product(from, stride, rest ? tail : nullptr, weight + p * padded * PANEL, units, rows > ROWS, sums);
                for (int r = 0; r < rows; r++)
                    for (long n = 0; n < width; n += LANES) {
                        Floats sum = load<Floats>(sums + r * PANEL + n) + load<Floats>(wide + n);
                        store_part(sum, out + (first + r) * N + p * PANEL + n, width - n);
                    }
            }
        }
        _tile_release();
    }
}

}  // namespace slotlab::amx
#endif
