// One step of the whole decoder, as every thread of the pool executes it.
//
// Law of this file: stages in order, a meeting after each; a stage's pieces touch disjoint results.
// It decides nothing: what is computed for whom was said in the batch.
//
//     embed ▶ ( norm ▶ qkv ▶ rotate, store ▶ attention ▶ out+ ▶ norm ▶ gate·up ▶ down+ ) x layers ▶ head
//
// "+" adds to the fp32 residual stream. Attention's output and gate·up's are quantised, or widened,
// in a stage of their own where the next product takes another format.
#pragma once
#include <chrono>

#include "attention.h"
#include "gemm.h"
#include "library.h"
#include "rows.h"
#include "tiles.h"
#include "workspace.h"

namespace {

constexpr int64_t ROWS_AT_A_TIME = 256;  // of a product: their activations stay in the second cache
constexpr int64_t MOST_DIMS = 512;       // of a head; native_decoder.py refuses more

class Step {
public:
    Step(Workspace& ws, const RlModel& model, const RlBatch& batch, float* logits, int thread)
        : ws(ws), model(model), batch(batch), logits(logits), thread(thread),
          narrowly(model.activation == RL_BF16), before(now()) {}

    void run() {
        embed();
        for (int64_t i = 0; i < model.layers; i++) run_layer(model.layer[i]);
        if (batch.wanted_rows) run_head();
    }

private:
    Workspace& ws;
    const RlModel& model;
    const RlBatch& batch;
    float* logits;
    const int thread;
    const bool narrowly;
    int stage = 0;
    double before;
    alignas(64) char c[PANEL * PANEL * 4];

    static double now() {
        using namespace std::chrono;
        return duration<double>(steady_clock::now().time_since_epoch()).count();
    }

    int64_t next(int64_t pieces) { return ws.pool->next(stage, thread, pieces); }

    void end(RlStage of) {
        ws.pool->meet();
        stage++;
        if (thread) return;
        double after = now();
        ws.seconds[of] += after - before;
        before = after;
    }

    // Rows in pieces: enough of them for all threads, few enough to hand out cheaply.
    template <class Work>
    void each_row(int64_t rows, RlStage of, Work work) {
        int64_t share = rows / (4 * ws.pool->threads());
        int64_t size = share < 1 ? 1 : share > 16 ? 16 : share;
        int64_t pieces = (rows + size - 1) / size;
        for (int64_t piece; (piece = next(pieces)) >= 0;)
            for (int64_t row = piece * size; row < rows && row < (piece + 1) * size; row++) work(row);
        end(of);
    }

    float* x(int64_t row) { return (float*)((char*)ws.x + row * ws.x_bytes); }

    void embed() {
        each_row(batch.rows, RL_EMBED, [&](int64_t row) {
            int64_t from = batch.token_ids[row] * model.hidden;
            float* to = x(row);
            if (narrowly)
                for (int64_t i = 0; i < model.hidden; i++)
                    to[i] = widen(((const Bf16*)model.embedding)[from + i]);
            else
                std::memcpy(to, (const float*)model.embedding + from, size_t(model.hidden) * 4);
        });
    }

    // Norm rows of the residual stream (`which` null: all, in order) into h, as `to` takes them.
    void norm(const float* weight, const RlLinear& to, const int32_t* which, int64_t rows) {
        each_row(rows, RL_NORM, [&](int64_t row) {
            const float* from = x(which ? which[row] : row);
            Line h(ws.h, ws.h_bytes, row);
            if (to.kind != RL_INT8)
                return norm_row(from, weight, model.hidden, model.eps, h, format_of(to.kind), narrowly);
            Line wide(ws.prepared, ws.prepared_bytes, row);
            norm_row(from, weight, model.hidden, model.eps, wide, RL_BF16, true);
            ws.row_scales[row] = quantise(wide, padded(model.hidden), h);
        });
    }

    // Lines of activations as a product takes them.
    struct Input {
        char* rows;
        int64_t bytes;  // of a row
    };
    Input prepare(char* rows, int64_t bytes, int64_t columns, const RlLinear& to) {
        int32_t format = format_of(to.kind);
        if (format == model.activation) return {rows, bytes};
        each_row(batch.rows, RL_QUANTISE, [&](int64_t row) {
            Line from(rows, bytes, row), prepared(ws.prepared, ws.prepared_bytes, row);
            if (format == RL_INT8)
                ws.row_scales[row] = quantise(from, padded(columns), prepared);
            else
                for (int64_t i = 0; i < padded(columns); i += LANES)
                    put(prepared, i, load((const Bf16*)from.at(i * 2)), RL_F32, false);
        });
        return {ws.prepared, ws.prepared_bytes};
    }

    // finish(first row, rows, first output, c): c [32][32] fp32 holds rows of the product.
    template <int KIND, class Finish>
    void multiply(const RlLinear& l, Input in, int64_t rows, Finish finish) {
        int64_t across = panels(l), tiles = k_tiles(l), panel_bytes = tiles * 2 * TILE_BYTES;
        int64_t chunks = (rows + ROWS_AT_A_TIME - 1) / ROWS_AT_A_TIME;
        for (int64_t piece; (piece = next(across * chunks)) >= 0;) {
            int64_t begin = piece / across * ROWS_AT_A_TIME, column = piece % across * PANEL;
            int64_t end = begin + ROWS_AT_A_TIME < rows ? begin + ROWS_AT_A_TIME : rows;
            const char* panel = (const char*)l.tiles + piece % across * panel_bytes;
            Ask ask(panel, panel_bytes, int((end - begin + PANEL - 1) / PANEL));
            for (int64_t row = begin; row < end; row += PANEL) {
                int count = int(end - row < PANEL ? end - row : PANEL);
                block<KIND>(in.rows + row * in.bytes, in.bytes, count, panel, tiles, ask, c);
                if constexpr (KIND == RL_INT8) rescale(l, ws.row_scales + row, count, column, c);
                finish(row, count, column, (const float*)c);
            }
        }
    }

    template <class Finish>
    void product(const RlLinear& l, Input in, int64_t rows, RlStage of, Finish finish) {
        switch (l.kind) {
            case RL_F32: multiply<RL_F32>(l, in, rows, finish); break;
            case RL_BF16: multiply<RL_BF16>(l, in, rows, finish); break;
            default: multiply<RL_INT8>(l, in, rows, finish);
        }
        end(of);
    }

    // to [row][output] = product + bias
    void product_into(
        const RlLinear& l, Input in, int64_t rows, RlStage of, float* to, int64_t stride) {
        product(l, in, rows, of, [=, &l](int64_t row, int count, int64_t column, const float* c) {
            int64_t left = l.out - column;
            int columns = int(left < PANEL ? left : PANEL);
            for (int r = 0; r < count; r++) {
                float* line = to + (row + r) * stride + column;
                if (l.bias)
                    for (int i = 0; i < columns; i++) line[i] = c[r * PANEL + i] + l.bias[column + i];
                else if (columns == PANEL)
                    for (int i = 0; i < PANEL; i += LANES) store(line + i, load(c + r * PANEL + i));
                else
                    std::memcpy(line, c + r * PANEL, size_t(columns) * 4);
            }
        });
    }

    // x += product
    void product_added(const RlLinear& l, Input in, RlStage of) {
        product(l, in, batch.rows, of, [&](int64_t row, int count, int64_t column, const float* c) {
            int64_t left = l.out - column;
            int columns = int(left < PANEL ? left : PANEL);
            for (int r = 0; r < count; r++) {
                float* line = x(row + r) + column;
                if (columns == PANEL)
                    for (int i = 0; i < PANEL; i += LANES)
                        store(line + i, load(line + i) + load(c + r * PANEL + i));
                else
                    for (int i = 0; i < columns; i++) line[i] += c[r * PANEL + i];
            }
        });
    }

    // m = silu(gate) * up: a panel holds 16 outputs of gate, then the 16 of up that meet them.
    void gate_up(const RlLinear& l, Input in, const RlLinear& down) {
        int32_t format = format_of(down.kind);
        if (format == RL_INT8) format = RL_BF16;
        product(l, in, batch.rows, RL_GATE_UP, [=, this](int64_t row, int count, int64_t column, const float* c) {
            for (int r = 0; r < count; r++)
                for (int i = 0; i < 16; i += LANES) {
                    Vec gate = load(c + r * PANEL + i), up = load(c + r * PANEL + 16 + i);
                    Line m(ws.m, ws.m_bytes, row + r);
                    put(m, column / 2 + i, silu(gate) * up, format, narrowly);
                }
        });
    }

    void rotate_and_store(const RlLayer& layer) {
        each_row(batch.rows, RL_ROPE, [&](int64_t row) {
            int64_t dims = model.head_dim, half = dims / 2, position = ws.positions[row];
            const float *cos = ws.cosines + position * half, *sin = ws.sines + position * half;
            const float* line = (const float*)((char*)ws.qkv + row * ws.qkv_bytes);
            float turned[MOST_DIMS];
            for (int64_t head = 0; head < model.heads; head++, line += dims) {
                rotate_head(line, dims, layer.q_norm, model.eps, cos, sin, turned);
                char* to = ws.q + row * ws.q_bytes;
                if (narrowly)
                    for (int64_t d = 0; d < dims; d += LANES)
                        store((Bf16*)to + head * dims + d, load(turned + d));
                else
                    std::memcpy((float*)to + head * dims, turned, size_t(dims) * 4);
            }
            int64_t sixteen = position / 16;
            const int32_t* table = batch.tables + ws.owners[row] * batch.table_width;
            int64_t block = table[sixteen / model.blocks_per] * model.blocks_per + sixteen % model.blocks_per;
            for (int64_t head = 0; head < model.kv_heads; head++, line += dims) {
                rotate_head(line, dims, layer.k_norm, model.eps, cos, sin, turned);
                store_pair(layer, block * model.kv_heads + head, int(position % 16), turned,
                           line + model.kv_heads * dims);
            }
        });
    }

    void store_pair(const RlLayer& layer, int64_t block, int at, const float* key, const float* value) {
        int64_t dims = model.head_dim, begin = block * 16 * dims;
        if (model.cache == RL_F32) {
            store_key(key, dims, (float*)layer.keys + begin, at);
            store_value(value, dims, (float*)layer.values + begin, at);
        } else if (model.cache == RL_BF16) {
            store_key(key, dims, (Bf16*)layer.keys + begin, at);
            store_value(value, dims, (Bf16*)layer.values + begin, at);
        } else {
            layer.key_scales[block * 16 + at] = store_key(key, dims, (int8_t*)layer.keys + begin, at);
            layer.value_scales[block * 16 + at] =
                store_value(value, dims, (int8_t*)layer.values + begin, at);
        }
    }

    void attention(const RlLayer& layer) {
        int64_t item = model.activation == RL_BF16 ? 2 : 4;
        AttentionCall call{&model, &layer, &batch, ws.q, ws.attended, ws.q_bytes / item,
                           ws.attended_bytes, ws.partial};
        char* scratch = ws.scratch + thread * ws.scratch_bytes;
        for (int64_t piece; (piece = next(ws.unit_count)) >= 0;) attend(call, ws.units[piece], scratch);
        end(RL_ATTENTION);
        if (!ws.merge_count) return;
        for (int64_t piece; (piece = next(ws.merge_count)) >= 0;) join(call, ws.merges[piece]);
        end(RL_ATTENTION);
    }

    void run_layer(const RlLayer& layer) {
        Input h{ws.h, ws.h_bytes};
        norm(layer.input_norm, layer.qkv, nullptr, batch.rows);
        product_into(layer.qkv, h, batch.rows, RL_QKV, ws.qkv, ws.qkv_bytes / 4);
        rotate_and_store(layer);
        attention(layer);
        Input attended =
            prepare(ws.attended, ws.attended_bytes, model.heads * model.head_dim, layer.attended);
        product_added(layer.attended, attended, RL_OUT);
        norm(layer.ffn_norm, layer.gate_up, nullptr, batch.rows);
        gate_up(layer.gate_up, h, layer.down);
        Input m{ws.m, ws.m_bytes};
        if (layer.down.kind == RL_INT8) m = prepare(ws.m, ws.m_bytes, model.ffn, layer.down);
        product_added(layer.down, m, RL_DOWN);
    }

    void run_head() {
        norm(model.final_norm, model.head, batch.wanted, batch.wanted_rows);
        product_into(model.head, {ws.h, ws.h_bytes}, batch.wanted_rows, RL_HEAD, logits, model.vocab);
    }
};

struct StepArguments {
    Workspace& ws;
    const RlModel& model;
    const RlBatch& batch;
    float* logits;
};

void step_of_thread(void* what, int thread) {
    auto& a = *(StepArguments*)what;
    configure_tiles();
    Step(a.ws, a.model, a.batch, a.logits, thread).run();
    release_tiles();
}

void run_step(Workspace& ws, const RlModel& model, const RlBatch& batch, float* logits) {
    StepArguments arguments{ws, model, batch, logits};
    ws.pool->run(step_of_thread, &arguments);
}

}  // namespace
