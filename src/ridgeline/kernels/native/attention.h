// Attention of one step over the paged cache, by units; step.h calls it.
//
// Law of this file: a row's result depends on that row and its own keys alone, bit for bit, at one
// level: never on what else is in the batch, how a prompt was cut into chunks, or who computes it.
//
//     unit ▶ for each 128 keys:  scores ▶ weights (online softmax) ▶ weighted values, added up
//          ▶ out, or a partial result where the context was cut ▶ join
//
// Products are AMX tiles, AVX512_BF16 dot products or vectors of floats, by level and kind.
// Source: Dao et al. 2022 (FlashAttention), Dao 2023 (Flash-Decoding).
#pragma once
#include "attention_dots.h"
#include "attention_gather.h"
#include "attention_softmax.h"
#include "attention_tiles.h"
#include "attention_work.h"
#include "line.h"

namespace {

// q [T][q_stride], and lines (line.h) of out, of so many bytes: N heads of H side by side, of the
// activation's kind.
// `partial` [places][unit rows][H + 2]: sums, their maximum, their total.
struct AttentionCall {
    const RlModel* model;
    const RlLayer* layer;
    const RlBatch* batch;
    const void* q;
    void* out;
    int64_t q_stride, out_bytes;
    float* partial;
};

// Query positions of a prompt's unit.
int unit_positions(const RlModel& model) {
    int positions = attention::UNIT_ROWS / attention::group_of(model);
    return positions > 1 ? positions : 1;
}

inline int64_t unit_rows(const RlModel& model) {
    return int64_t(unit_positions(model)) * attention::group_of(model);
}

int64_t attention_scratch_bytes(const RlModel& model) {
    return attention::Scratch(model, unit_rows(model), nullptr).bytes;
}

namespace attention {

template <class Activation, class Cached>
class UnitWork {
    using Operand = OperandOf<Activation>;
    using Item = ItemOf<Activation, Cached>;
    static constexpr bool BY_TILES = TILES && SAME<Operand, Bf16>;
#if defined(__AMX_BF16__)
    using Products = typename Choice<BY_TILES, TileProducts, DotProducts<Operand, Item>>::Type;
#else
    using Products = DotProducts<Operand, Item>;
#endif
    static constexpr bool SCALED = SAME<Cached, int8_t>;

public:
    UnitWork(const AttentionCall& call, const Unit& unit, char* base)
        : call(call), model(*call.model), layer(*call.layer), unit(unit),
          scratch(model, unit_rows(model), base), group(group_of(model)),
          rows(unit.positions * group), dims(model.head_dim), wide((dims + 31) / 32 * 32) {
        const RlBatch& batch = *call.batch;
        int s = unit.sequence, first_of_batch = batch.contexts[s] - batch.lens[s];
        first_position = first_of_batch + unit.first_row - batch.starts[s];
    }

    void run() {
        take_queries();
        for (int begin = unit.first_key; begin < unit.end_key; begin += KEYS) take_step(begin);
        finish();
    }

private:
    const AttentionCall& call;
    const RlModel& model;
    const RlLayer& layer;
    const Unit& unit;
    const Scratch scratch;
    const int group, rows;
    const int64_t dims, wide;
    int first_position;

    // Row after row: the heads of a position, then those of the next.
    template <class Work>
    void each_row(int64_t stride, Work work) const {
        int64_t line = unit.first_row * stride + unit.kv_head * group * dims;
        for (int position = 0, row = 0; position < unit.positions; position++, line += stride)
            for (int head = 0; head < group; head++, row++) work(row, line + head * dims, position);
    }

    void take_queries() {
        Operand* queries = (Operand*)scratch.queries;
        each_row(call.q_stride, [&](int row, int64_t at, int position) {
            const Activation* from = (const Activation*)call.q + at;
            Operand* to = queries + row * wide;
            if constexpr (SAME<Operand, Activation>)
                std::memcpy(to, from, size_t(dims) * sizeof(Operand));
            else
                for (int64_t d = 0; d < dims; d += LANES) store(to + d, load(from + d));
            for (int64_t d = dims; d < wide; d++) to[d] = 0;
            scratch.seen[row] = first_position + position + 1;
            store(scratch.totals + row * LANES, Vec{});
        });
        for (int64_t i = 0; i < rows * dims; i += LANES) store(scratch.sums + i, Vec{});
        for (int row = 0; row < rows; row += LANES) store(scratch.tops + row, broadcast(LEAST));
    }

    // A lone row waits for memory: values come while scores are made.
    void ask_for_values([[maybe_unused]] const Step& step) const {
#if defined(__x86_64__)
        int64_t bytes = BLOCK * dims * int64_t(sizeof(Cached));
        for (int i = 0; i < step.blocks; i++)
            for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(step.values[i] + at, _MM_HINT_T0);
#endif
    }

    // The step's blocks as the products take them.
    void prepare(Step& step) {
        if constexpr (SCALED) {
            gather_scales(layer.key_scales, step, scratch.key_scales);
            gather_scales(layer.value_scales, step, scratch.value_scales);
        }
        if constexpr (SAME<Operand, Bf16>) {
            if (SCALED || (BY_TILES && wide != dims)) gather_all_keys(step);
            if (SCALED || BY_TILES) return gather_all_values(step);
        }
        if (int live = step.count % BLOCK) {
            const char*& last = step.values[step.blocks - 1];
            last = clear_values<Item>(last, live, dims, scratch.values);
        }
    }

    void gather_all_keys([[maybe_unused]] Step& step) {
#if defined(__AVX512BF16__)
        for (int i = 0; i < BLOCKS; i++) {
            char* to = scratch.keys + (i < step.blocks ? i : step.blocks - 1) * wide * BLOCK * 2;
            if (i < step.blocks) gather_keys<Cached>(step.keys[i], dims, wide, to);
            step.keys[i] = to;
        }
#endif
    }

    void gather_all_values([[maybe_unused]] Step& step) {
#if defined(__AVX512BF16__)
        constexpr int64_t HALF_TILE = 512, TILE_ROW = KEYS / 32 * 1024;
        for (int i = 0; i < up_to(step.blocks, 2); i++) {
            int live = step.count - i * BLOCK;
            char* to = scratch.values + i * (BY_TILES ? HALF_TILE : dims * BLOCK * 2);
            gather_values<Cached>(step.values[i], live, dims, to, BY_TILES ? 64 : dims * 4,
                                  BY_TILES ? TILE_ROW : 64);
            step.values[i] = to;
        }
#endif
    }

    void take_step(int begin) {
        const int32_t* table = call.batch->tables + unit.sequence * call.batch->table_width;
        Step step =
            find_step(model, layer, table, unit.kv_head, sizeof(Cached), begin, unit.end_key);
        if (unit.positions == 1) ask_for_values(step);
        prepare(step);
        for (int row = 0; row < rows; row += CHUNK) {
            if (keys_of(step, row) <= 0) continue;
            score(step, row);
            weigh_chunk(step, row);
            add_values(step, row);
        }
    }

    int count_of(int row) const { return rows - row < CHUNK ? rows - row : CHUNK; }

    // Keys of the step that a chunk sees: those of its last row.
    int keys_of(const Step& step, int row) const {
        int seen = scratch.seen[row + count_of(row) - 1] - step.begin;
        return seen < step.count ? seen : step.count;
    }

    void score(const Step& step, int row) const {
        const Operand* queries = (const Operand*)scratch.queries + row * wide;
        int blocks = (keys_of(step, row) + BLOCK - 1) / BLOCK;
        Products::scores(queries, wide, dims, count_of(row), step.keys, blocks, scratch.scores);
    }

    void weigh_chunk(const Step& step, int row) const {
        int limits[CHUNK];
        for (int r = 0; r < CHUNK; r++) {
            int seen = scratch.seen[row + r] - step.begin;
            limits[r] = seen < step.count ? seen : step.count;
        }
        Weighing how{LOG2_E / __builtin_sqrtf(float(dims)), SAME<Activation, Bf16>,
                     scratch.key_scales, scratch.value_scales};
        weigh<Operand, SCALED>(scratch.scores, count_of(row), limits,
                               up_to(keys_of(step, row), 32), how, scratch.tops + row,
                               scratch.totals + row * LANES, scratch.shrinks);
    }

    void add_values(const Step& step, int row) const {
        int count = count_of(row), keys = keys_of(step, row);
        Products::values(scratch.scores, count, step.values, keys, dims, scratch.step_sums);
        for (int r = 0; r < count; r++) {
            float *sums = scratch.sums + (row + r) * dims, *added = scratch.step_sums + r * dims;
            Vec shrink = broadcast(scratch.shrinks[r]);
            for (int64_t d = 0; d < dims; d += LANES)
                store(sums + d, load(sums + d) * shrink + load(added + d));
        }
    }

    void finish() const;
};

// The values' weighted mean, as the activation's kind; never -0, which joining would lose.
template <class Activation>
inline __attribute__((always_inline)) void put_mean(Line to, int64_t column, Vec sum, Vec share) {
    store((Activation*)to.at(column * int64_t(sizeof(Activation))), sum * share + 0.0f);
}

template <class Activation, class Cached>
void UnitWork<Activation, Cached>::finish() const {
    each_row(0, [this](int row, int64_t, int position) {
        const float* sums = scratch.sums + row * dims;
        float total = total_of(load(scratch.totals + row * LANES));
        if (unit.place < 0) {
            Line out((char*)call.out, call.out_bytes, unit.first_row + position);
            int64_t column = (unit.kv_head * group + row % group) * dims;
            Vec share = broadcast(1.0f / total);
            for (int64_t d = 0; d < dims; d += LANES)
                put_mean<Activation>(out, column + d, load(sums + d), share);
        } else {
            float* kept = call.partial + (unit.place * unit_rows(model) + row) * (dims + 2);
            std::memcpy(kept, sums, size_t(dims) * 4);
            kept[dims] = scratch.tops[row];
            kept[dims + 1] = total;
        }
    });
}

// One row of a Merge: its parts on one common maximum. Parts in which the row sees no key are left
// out, so that the result is that of a unit which ends before them.
template <class Activation>
void join_row(
    const float* first, int64_t part_stride, int parts, int64_t dims, Line out, int64_t column) {
    auto part_at = [=](int part) { return first + part * part_stride; };
    float top = LEAST, total = 0.0f;
    for (int part = 0; part < parts; part++)
        if (part_at(part)[dims] > top) top = part_at(part)[dims];
    auto factor_of = [=](int part) { return weight_of(broadcast(part_at(part)[dims] - top)); };
    for (int part = 0; part < parts; part++) total += part_at(part)[dims + 1] * factor_of(part)[0];
    Vec share = broadcast(1.0f / total);
    for (int64_t d = 0; d < dims; d += LANES) {
        Vec sum = broadcast(0.0f);
        for (int part = 0; part < parts; part++)
            if (part_at(part)[dims + 1] > 0.0f)
                sum = factor_of(part) * load(part_at(part) + d) + sum;
        put_mean<Activation>(out, column + d, sum, share);
    }
}

}  // namespace attention

// A whole unit's rows go to `out`, a part's to `partial`. `scratch`: attention_scratch_bytes,
// 64-byte aligned, this thread's own.
void attend(const AttentionCall& call, const Unit& unit, char* scratch) {
    if (call.model->activation == RL_F32)
        attention::UnitWork<float, float>(call, unit, scratch).run();
    else if (call.model->cache == RL_BF16)
        attention::UnitWork<Bf16, Bf16>(call, unit, scratch).run();
    else
        attention::UnitWork<Bf16, int8_t>(call, unit, scratch).run();
}

// The parts of one Merge become rows of `out`; all of them have been attended to.
void join(const AttentionCall& call, const Merge& merge) {
    const RlModel& model = *call.model;
    int group = attention::group_of(model);
    int64_t dims = model.head_dim, line = dims + 2, part_stride = unit_rows(model) * line;
    const float* first = call.partial + merge.place * part_stride;
    for (int row = 0; row < merge.positions * group; row++, first += line) {
        Line out((char*)call.out, call.out_bytes, merge.first_row + row / group);
        int64_t column = (merge.kv_head * group + row % group) * dims;
        if (model.activation == RL_F32)
            attention::join_row<float>(first, part_stride, merge.parts, dims, out, column);
        else
            attention::join_row<Bf16>(first, part_stride, merge.parts, dims, out, column);
    }
}

}  // namespace
