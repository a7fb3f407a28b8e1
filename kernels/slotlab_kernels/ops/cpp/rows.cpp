// The ops that work on one token at a time: norms, RoPE with the cache's writes, SwiGLU.
#include <cmath>

#include "simd.h"

namespace slotlab {

constexpr long WORTH_THREADS = 1 << 15;  // numbers below which one thread is done before others would have begun

template <class T>
inline void norm(const T* x, const T* weight, float eps, T* out, long count) {
    Floats squares = {};
    for (long c = 0; c < count; c += LANES) {
        Floats wide = load_part(x + c, count - c);
        squares += wide * wide;
    }
    float scale = 1.0f / std::sqrt(sum(squares) / float(count) + eps);
    for (long c = 0; c < count; c += LANES)
        store_part(load_part(x + c, count - c) * scale * load_part(weight + c, count - c), out + c, count - c);
}

// x [tokens, heads, count] with these strides; out is dense
template <class T>
void rms_norm(const T* x, long by_token, long by_head, const T* weight, float eps, T* out, long tokens, long heads, long count) {
#pragma omp parallel for if (tokens * heads * count > WORTH_THREADS)
    for (long row = 0; row < tokens * heads; row++)
        norm(x + row / heads * by_token + row % heads * by_head, weight, eps, out + row * count, count);
}

template <class T>
void add_rms_norm(const T* x, T* residual, const T* weight, float eps, T* out, long tokens, long count) {
#pragma omp parallel for if (tokens * count > WORTH_THREADS)
    for (long t = 0; t < tokens; t++) {
        T* kept = residual + t * count;
        for (long c = 0; c < count; c += LANES)
            store_part(load_part(kept + c, count - c) + load_part(x + t * count + c, count - c), kept + c, count - c);
        norm(kept, weight, eps, out + t * count, count);
    }
}

template <class T>
inline void turn(const T* x, const float* cosine, const float* sine, T* out, long half) {
    for (long d = 0; d < half; d += LANES) {
        long left = half - d;
        Floats a = load_part(x + d, left), b = load_part(x + half + d, left);
        Floats c = load_part(cosine + d, left), s = load_part(sine + d, left);
        store_part(a * c - b * s, out + d, left);
        store_part(b * c + a * s, out + half + d, left);
    }
}

// q, k, v [tokens, heads, dim] with strides by token and by head; keys, values: dense [slots, kv_heads, dim]
template <class T>
void rope_store(
    T* q, const T* k, const T* v, const long* strides, const float* cosine, const float* sine, T* keys, T* values, const int64_t* slots,
    long tokens, long heads, long kv_heads, long dim
) {
    long half = dim / 2;
#pragma omp parallel for if (tokens * heads * dim > WORTH_THREADS)
    for (long t = 0; t < tokens; t++) {
        const float *c = cosine + t * half, *s = sine + t * half;
        for (long h = 0; h < heads; h++) {
            T* one = q + t * strides[0] + h * strides[1];
            turn(one, c, s, one, half);
        }
        if (slots[t] < 0) continue;
        for (long h = 0; h < kv_heads; h++) {
            long to = (slots[t] * kv_heads + h) * dim;
            turn(k + t * strides[2] + h * strides[3], c, s, keys + to, half);
            std::memcpy(values + to, v + t * strides[4] + h * strides[5], dim * sizeof(T));
        }
    }
}

template <class T>
void silu_mul(const T* gate_up, T* out, long tokens, long width) {
#pragma omp parallel for if (tokens * width > WORTH_THREADS)
    for (long t = 0; t < tokens; t++) {
        const T *gate = gate_up + 2 * t * width, *up = gate + width;
        for (long f = 0; f < width; f += LANES) {
            Floats g = load_part(gate + f, width - f), u = load_part(up + f, width - f);
            store_part(g / (1.0f + exp(-g)) * u, out + t * width + f, width - f);
        }
    }
}

}  // namespace slotlab

using namespace slotlab;

#define EXPORT(T, NAME)                                                                                                       \
    extern "C" void rms_norm_##NAME(                                                                                          \
        const T* x, long by_token, long by_head, const T* weight, float eps, T* out, long tokens, long heads, long count      \
    ) { rms_norm(x, by_token, by_head, weight, eps, out, tokens, heads, count); }                                             \
    extern "C" void add_rms_norm_##NAME(                                                                                      \
        const T* x, T* residual, const T* weight, float eps, T* out, long tokens, long count                                  \
    ) { add_rms_norm(x, residual, weight, eps, out, tokens, count); }                                                         \
    extern "C" void rope_store_##NAME(                                                                                        \
        T* q, const T* k, const T* v, const long* strides, const float* cosine, const float* sine, T* keys, T* values,        \
        const int64_t* slots, long tokens, long heads, long kv_heads, long dim                                                \
    ) { rope_store(q, k, v, strides, cosine, sine, keys, values, slots, tokens, heads, kv_heads, dim); }                      \
    extern "C" void silu_mul_##NAME(const T* gate_up, T* out, long tokens, long width) { silu_mul(gate_up, out, tokens, width); }

EXPORT(float, fp32)
EXPORT(bf16, bf16)
