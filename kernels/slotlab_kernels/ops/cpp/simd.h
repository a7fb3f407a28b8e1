// Vectors as wide as the processor's registers, bf16, and the 32-bit unit in which the kernels read numbers: one fp32 or two bf16.
// GCC's vector extensions, so that any processor can run it; with AVX512-BF16 two bf16 products are one instruction.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace slotlab {

#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int LANES = 8, REGISTERS = 16;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Units __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct bf16 {
    uint16_t bits;
};

// How many numbers of a type are in a unit.
template <class T>
constexpr int PER_UNIT = 4 / sizeof(T);

template <class V>
inline V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
inline void store(void* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

// By way of whole numbers: 0 + x is a broadcast there, and an addition in fp32.
inline Floats splat(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return Floats(Units{} + bits);
}

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

// Rounded to the nearest, ties to even; NaN stays NaN.
inline void narrow(float x, float& out) { out = x; }
inline void narrow(float x, bf16& out) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    uint32_t rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16;
    out.bits = x == x ? uint16_t(rounded) : uint16_t(0x7FC0);
}

inline Floats load_wide(const float* from) { return load<Floats>(from); }
inline Floats load_wide(const bf16* from) {
    return Floats(__builtin_convertvector(load<Halves>(from), Units) << 16);
}

inline void store_narrow(Floats x, float* to) { store(to, x); }
inline void store_narrow(Floats x, bf16* to) {
    Units bits = Units(x);
    Units rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16;
    store(to, __builtin_convertvector(x == x ? rounded : Units{} + 0x7FC0, Halves));
}

// sum + a * b of the numbers in a unit, per lane. The order of the two products of a bf16 unit is fixed.
template <class T>
inline Floats multiply_add(Floats sum, Units a, Units b);

template <>
inline Floats multiply_add<float>(Floats sum, Units a, Units b) {
    return sum + Floats(a) * Floats(b);
}

template <>
inline Floats multiply_add<bf16>(Floats sum, Units a, Units b) {
#ifdef __AVX512BF16__
    return Floats(_mm512_dpbf16_ps(__m512(sum), __m512bh(a), __m512bh(b)));
#else
    sum += Floats(a & 0xFFFF0000u) * Floats(b & 0xFFFF0000u);
    return sum + Floats(a << 16) * Floats(b << 16);
#endif
}

// Whether bf16 is multiplied as fp32, for want of an instruction.
template <class T>
constexpr bool WIDENS = false;
#ifndef __AVX512BF16__
template <>
inline constexpr bool WIDENS<bf16> = true;
#endif

// The first `count` numbers, up to a vector of them; the rest is zero and is not read.
template <class T>
inline Floats load_part(const T* from, long count) {
    if (count >= LANES) return load_wide(from);
    T part[LANES] = {};
    std::memcpy(part, from, count * sizeof(T));
    return load_wide(part);
}

template <class T>
inline void store_part(Floats x, T* to, long count) {
    if (count >= LANES) return store_narrow(x, to);
    T part[LANES];
    store_narrow(x, part);
    std::memcpy(to, part, count * sizeof(T));
}

// 0, 1, 2 ... in the lanes.
inline Ints lane() {
    Ints index;
    for (int i = 0; i < LANES; i++) index[i] = i;
    return index;
}

// Over all lanes, by halves: always in the same order.
inline float sum(Floats x) {
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2) x += __builtin_shuffle(x, lane() ^ half);
    return x[0];
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline float largest(Floats x) {
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2) x = larger(x, __builtin_shuffle(x, lane() ^ half));
    return x[0];
}

// e^x, 2e-7 relative, clamped to |x| <= 87; NaN stays NaN. ln 2 in two parts (Cody & Waite, 1980).
inline Floats exp(Floats x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    x = x > 87.0f ? splat(87.0f) : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    Floats n = (x * 1.44269504f + magic) - magic;
    Floats r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Floats p = splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    return p * Floats(exponent);
}

}  // namespace slotlab
