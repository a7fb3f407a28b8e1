// AMX tiles of eight registers, 16 rows of 64 bytes each: the processor's own, or for tests on any machine the same in plain C++.
#pragma once
#if defined(SLOTLAB_EMULATE_AMX) || defined(__AMX_BF16__)
#define SLOTLAB_AMX
#include <cerrno>

#include "simd.h"

namespace slotlab {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};  // of a row, for each tile
    uint8_t rows[16] = {};
};

}  // namespace slotlab

#ifndef SLOTLAB_EMULATE_AMX
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace slotlab {
// The system keeps the tiles of a process only if it has asked for them; 0: granted, or the number of an error.
inline int request_tiles() { return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */) == 0 ? 0 : errno; }
}  // namespace slotlab

#else

namespace slotlab {
inline int request_tiles() { return 0; }
inline thread_local TileConfig shape;
inline thread_local uint32_t tiles[8][16][16];
}  // namespace slotlab

inline void _tile_loadconfig(const void* from) { std::memcpy(&slotlab::shape, from, sizeof slotlab::shape); }
inline void _tile_release() { slotlab::shape = {}; }
inline void _tile_zero(int t) { std::memset(slotlab::tiles[t], 0, sizeof slotlab::tiles[t]); }
inline void _tile_loadd(int t, const void* from, long stride) {
    _tile_zero(t);
    for (int r = 0; r < slotlab::shape.rows[t]; r++)
        std::memcpy(slotlab::tiles[t][r], static_cast<const char*>(from) + r * stride, slotlab::shape.bytes[t]);
}
inline void _tile_stored(int t, void* to, long stride) {
    for (int r = 0; r < slotlab::shape.rows[t]; r++)
        std::memcpy(static_cast<char*>(to) + r * stride, slotlab::tiles[t][r], slotlab::shape.bytes[t]);
}
// The products of the even and of the odd numbers of K are summed apart, then both are added (Intel's manual, TDPBF16PS).
inline void _tile_dpbf16ps(int c, int a, int b) {
    using slotlab::bf16, slotlab::widen, slotlab::tiles, slotlab::shape;
    auto half = [](uint32_t unit, int odd) { return widen(bf16{uint16_t(odd ? unit >> 16 : unit)}); };
    for (int m = 0; m < shape.rows[c]; m++)
        for (int n = 0; n < shape.bytes[c] / 4; n++) {
            float even = 0.0f, odd = 0.0f, sum;
            for (int k = 0; k < shape.bytes[a] / 4; k++) {
                even += half(tiles[a][m][k], 0) * half(tiles[b][k][n], 0);
                odd += half(tiles[a][m][k], 1) * half(tiles[b][k][n], 1);
            }
            std::memcpy(&sum, &tiles[c][m][n], 4);
            sum += even + odd;
            std::memcpy(&tiles[c][m][n], &sum, 4);
        }
}
#endif
#endif
