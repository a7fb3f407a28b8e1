// Paged attention: one item of work per run of query tokens and key head, by the same arithmetic in any batch.
//
// Keys are taken in tiles of a vector, or as many as a block has, from position 0 of a block. A tile is read and transposed once for all
// queries of a run (consecutive tokens of a row, and the heads that share the key head). Online softmax over the tiles
// (Milakov & Gimelshein, 2018). What a query computes does not depend on the others in its run.
#include <algorithm>
#include <omp.h>

#include <cmath>
#include <vector>

#include "simd.h"

namespace slotlab {

constexpr long RUN = 48;              // queries that share a tile of keys, about
constexpr float LOWEST = -1e30f;

// Sizes and strides, in numbers, of one call.
struct Shape {
    long tokens, heads, kv_heads, dim, block_size;
    long q_token, q_head, block, place, kv_head;
    long table_width, window;
};

// Perfect shuffles of all rows, as many as a row has bits in its number, are a transposition.
inline void transpose(Units (&rows)[LANES]) {
    constexpr int HALF = LANES / 2;
    const Ints even = lane() / 2 + (lane() & 1) * LANES, odd = even + HALF;
#pragma GCC unroll 4
    for (int round = 1; round < LANES; round *= 2) {
        Units other[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < HALF; i++) {
            other[2 * i] = __builtin_shuffle(rows[i], rows[i + HALF], even);
            other[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + HALF], odd);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) rows[i] = other[i];
    }
}

// What is computed in one go: tokens `first`.. of a row for the key heads `head`..
struct Item {
    long first, count, head, heads;
};

// The state of one thread: a run of queries and a tile of keys and values.
template <class T>
struct Worker {
    const Shape& s;
    long group, units, vectors, most;
    float scale;
    std::vector<uint32_t> q;                     // [queries, units]
    std::vector<Units> keys;                     // [units]: a lane per key
    std::vector<Floats> values, out, weights;    // [LANES, vectors], [queries, vectors], [queries]: a lane per key
    std::vector<float> best, total;              // [queries]

    explicit Worker(const Shape& shape) : s(shape) {
        group = s.heads / s.kv_heads;
        units = ((s.dim + PER_UNIT<T> - 1) / PER_UNIT<T> + 1) / 2 * 2;  // even: two sums run side by side
        vectors = (s.dim + LANES - 1) / LANES;
        scale = 1.0f / std::sqrt(float(s.dim));
        most = std::max(s.heads, group * (RUN > group ? RUN / group : 1));
        q.resize(most * units), keys.resize(units + LANES), values.resize(LANES * vectors);
        out.resize(most * vectors), weights.resize(most), best.resize(most), total.resize(most);
    }

    // The queries of an item, by head, then by token.
    void begin(const T* from, const Item& item) {
        std::fill(q.begin(), q.end(), 0);
        for (long r = 0; r < item.heads * item.count * group; r++) {
            long token = item.first + r / group % item.count, head = (item.head + r / (item.count * group)) * group + r % group;
            std::memcpy(&q[r * units], from + token * s.q_token + head * s.q_head, s.dim * sizeof(T));
            best[r] = LOWEST, total[r] = 0.0f;
        }
        std::fill(out.begin(), out.end(), Floats{});
    }

    // Keys and values lo..hi of a tile whose first key is at k and v; the others are zero. The tile that comes next, `after` numbers
    // further on, is fetched meanwhile.
    void read(const T* k, const T* v, long lo, long hi, long after) {
        constexpr long numbers = LANES * PER_UNIT<T>;
        for (long d = 0; d < s.dim; d += numbers) {
            Units rows[LANES];
            if (lo == 0 && hi == LANES && d + numbers <= s.dim) {
#pragma GCC unroll 16
                for (int j = 0; j < LANES; j++) rows[j] = load<Units>(k + j * s.place + d);
            } else {
                for (int j = 0; j < LANES; j++) {
                    rows[j] = Units{};
                    if (j >= lo && j < hi) std::memcpy(&rows[j], k + j * s.place + d, std::min(numbers, s.dim - d) * sizeof(T));
                }
            }
            transpose(rows);
#pragma GCC unroll 16
            for (int u = 0; u < LANES; u++) keys[d / PER_UNIT<T> + u] = rows[u];
        }
        for (long j = lo; j < hi; j++) {
            for (long n = 0; n < vectors; n++) values[j * vectors + n] = load_part(v + j * s.place + n * LANES, s.dim - n * LANES);
            for (long d = 0; d < s.dim; d += 64 / long(sizeof(T))) {
                __builtin_prefetch(k + after + j * s.place + d);
                __builtin_prefetch(v + after + j * s.place + d);
            }
        }
    }

    template <int R>
    void score(long r, long lo, long hi, float* decay) {
        Floats even[R] = {}, odd[R] = {};
        const uint32_t* from = &q[r * units];
        for (long u = 0; u < units; u += 2) {
            Units left = keys[u], right = keys[u + 1];
#pragma GCC unroll 4
            for (int i = 0; i < R; i++) {
                even[i] = multiply_add<T>(even[i], Units{} + from[i * units + u], left);
                odd[i] = multiply_add<T>(odd[i], Units{} + from[i * units + u + 1], right);
            }
        }
        Ints seen = (lane() >= int(lo)) & (lane() < int(hi));
        Floats fallen = {};
#pragma GCC unroll 4
        for (int i = 0; i < R; i++) {
            even[i] = seen ? (even[i] + odd[i]) * scale : splat(LOWEST);
            float top = largest(even[i]), before = best[r + i];
            best[r + i] = top = top > before ? top : before;
            fallen[i] = before - top;
        }
        Floats rest = exp(fallen);
#pragma GCC unroll 4
        for (int i = 0; i < R; i++) {
            decay[i] = rest[i];
            Floats weight = seen ? exp(even[i] - best[r + i]) : Floats{};
            total[r + i] = total[r + i] * decay[i] + sum(weight);
            weights[r + i] = weight;
        }
    }

    template <int R, int N>
    void accumulate(long r, long lo, long hi, long n, const float* decay) {
        Floats acc[R][N];
#pragma GCC unroll 4
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int c = 0; c < N; c++) acc[i][c] = out[(r + i) * vectors + n + c] * decay[i];
        const float* weight = reinterpret_cast<const float*>(&weights[r]);
        const Floats* value = &values[lo * vectors + n];
        for (long j = lo; j < hi; j++, value += vectors) {
#pragma GCC unroll 4
            for (int i = 0; i < R; i++)
#pragma GCC unroll 4
                for (int c = 0; c < N; c++) acc[i][c] += weight[i * LANES + j] * value[c];
        }
#pragma GCC unroll 4
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int c = 0; c < N; c++) out[(r + i) * vectors + n + c] = acc[i][c];
    }

    template <int R>
    void attend(long r, long lo, long hi) {
        float decay[R];
        score<R>(r, lo, hi, decay);
        long n = 0;
        for (; n + 4 <= vectors; n += 4) accumulate<R, 4>(r, lo, hi, n, decay);
        for (; n < vectors; n++) accumulate<R, 1>(r, lo, hi, n, decay);
    }

    // Queries r..end attend to keys lo..hi of the tile.
    void attend(long r, long end, long lo, long hi) {
        for (; r + 4 <= end; r += 4) attend<4>(r, lo, hi);
        if (end - r == 3) attend<3>(r, lo, hi);
        if (end - r == 2) attend<2>(r, lo, hi);
        if (end - r == 1) attend<1>(r, lo, hi);
    }

    // All tiles of the item's context.
    void attend(const Item& item, const T* k, const T* v, const int64_t* table, const int64_t* context) {
        long newest = context[item.count - 1];
        auto oldest = [&](long t) { return s.window > 0 ? std::max(0L, context[t] - s.window) : 0L; };
        for (long base = oldest(0) / s.block_size * s.block_size; base < newest; base += s.block_size)
            for (long at = base; at < base + s.block_size && at < newest; at += LANES) {
                long width = std::min<long>(LANES, base + s.block_size - at);
                long lo = std::max(0L, oldest(0) - at), hi = std::min(width, newest - at);
                if (hi <= lo) continue;
                long block = table[base / s.block_size], next = base + s.block_size < newest ? table[base / s.block_size + 1] : block;
                long after = at + LANES < base + s.block_size ? LANES * s.place : (next - block) * s.block - (at - base) * s.place;
                for (long h = 0; h < item.heads; h++) {
                    long from = block * s.block + (at - base) * s.place + (item.head + h) * s.kv_head;
                    read(k + from, v + from, lo, hi, after);
                    for (long t = 0, end; t < item.count; t = end) {  // tokens that see the same keys of the tile at once
                        auto first = [&](long t) { return std::max(0L, oldest(t) - at); };
                        auto last = [&](long t) { return std::min(width, context[t] - at); };
                        for (end = t + 1; end < item.count && first(end) == first(t) && last(end) == last(t);) end++;
                        long r = h * item.count * group;
                        if (first(t) < last(t)) attend(r + t * group, r + end * group, first(t), last(t));
                    }
                }
            }
    }

    void finish(T* to, const Item& item) {
        for (long r = 0; r < item.heads * item.count * group; r++) {
            long token = item.first + r / group % item.count, head = (item.head + r / (item.count * group)) * group + r % group;
            float inverse = total[r] != 0.0f ? 1.0f / total[r] : 0.0f;
            T* one = to + (token * s.heads + head) * s.dim;
            for (long n = 0; n < vectors; n++) store_part(out[r * vectors + n] * inverse, one + n * LANES, s.dim - n * LANES);
        }
    }
};

// Consecutive tokens of one row, so many that a tile of keys serves about RUN queries; in a large batch of single tokens all heads
// together, since their keys and values lie side by side. Padding is in no item.
inline std::vector<Item> items(const Shape& s, const int64_t* row, const int64_t* context) {
    long group = s.heads / s.kv_heads, most = RUN > group ? RUN / group : 1;
    std::vector<Item> runs, found;
    for (long t = 0; t < s.tokens; t++) {
        if (context[t] <= 0) continue;
        bool more = !runs.empty() && runs.back().first + runs.back().count == t && runs.back().count < most &&
                    row[t] == row[t - 1] && context[t] == context[t - 1] + 1;
        if (more) runs.back().count++;
        else runs.push_back({t, 1, 0, s.kv_heads});
    }
    bool many = long(runs.size()) >= 4 * omp_get_max_threads();
    for (const Item& run : runs) {
        if (many && run.count == 1) found.push_back(run);
        else
            for (long head = 0; head < s.kv_heads; head++) found.push_back({run.first, run.count, head, 1});
    }
    return found;
}

template <class T>
void paged_attention(
    const T* q, const T* k, const T* v, const int64_t* tables, const int64_t* row, const int64_t* context, T* out, const Shape& s
) {
    std::vector<Item> all = items(s, row, context);
    for (long t = 0; t < s.tokens; t++)
        if (context[t] <= 0) std::memset(out + t * s.heads * s.dim, 0, s.heads * s.dim * sizeof(T));
#pragma omp parallel
    {
        Worker<T> worker(s);
#pragma omp for schedule(dynamic)
        for (long index = long(all.size()) - 1; index >= 0; index--) {  // the longest contexts of a prefill first
            const Item& item = all[index];
            worker.begin(q, item);
            worker.attend(item, k, v, tables + row[item.first] * s.table_width, context + item.first);
            worker.finish(out, item);
        }
    }
}

}  // namespace slotlab

using namespace slotlab;

extern "C" {
void paged_attention_fp32(
    const float* q, const float* k, const float* v, const int64_t* tables, const int64_t* row, const int64_t* context, float* out,
    const Shape* shape
) { paged_attention(q, k, v, tables, row, context, out, *shape); }

void paged_attention_bf16(
    const bf16* q, const bf16* k, const bf16* v, const int64_t* tables, const int64_t* row, const int64_t* context, bf16* out,
    const Shape* shape
) { paged_attention(q, k, v, tables, row, context, out, *shape); }
}
