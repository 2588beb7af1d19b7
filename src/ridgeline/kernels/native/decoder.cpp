// A decoder: its threads, its buffers, and the C functions that open, run and close it.
#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "buffer.h"
#include "library.h"
#include "workspace.h"

namespace {

int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

int64_t row_bytes(int64_t columns, int64_t item_bytes) { return up_to(columns, 64) * item_bytes; }

class Decoder {
public:
    Decoder(const RlModel& model, const Level& level)
        : model_(model), level_(level), pool_(model.threads) {
        int64_t n = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
        ws_.pool = &pool_;
        // A level without bf16 dot products takes bf16 activations as fp32.
        int64_t item = model.activation == RL_BF16 ? 2 : 4, taken = level.bf16_dot ? item : 4;
        ws_.x_bytes = row_bytes(model.hidden, 4);
        ws_.h_bytes = row_bytes(model.hidden, taken);
        ws_.qkv_bytes = row_bytes(n + 2 * kv, 4);
        ws_.q_bytes = ws_.attended_bytes = row_bytes(n, item);
        ws_.m_bytes = row_bytes(model.ffn, taken);
        ws_.prepared_bytes = row_bytes(std::max({model.hidden, n, model.ffn}), taken);
        ws_.scratch_bytes = up_to(level.attention_scratch_bytes(model), 4096);
        ws_.seconds = seconds_;
    }

    // As rl_step; throws where memory is short for small things, or in a forked child for threads.
    int step(const RlBatch& batch, float* logits) {
        if (!makes_sense(batch)) return -2;
        if (!grow(batch)) return -1;
        for (int64_t s = 0; s < batch.sequences; s++)
            for (int32_t i = 0; i < batch.lens[s]; i++) {
                int64_t row = batch.starts[s] + i;
                ws_.positions[row] = batch.contexts[s] - batch.lens[s] + i;
                ws_.owners[row] = int32_t(s);
            }
        level_.step(ws_, model_, batch, logits);
        return 0;
    }

    double* seconds() { return seconds_; }

private:
    // Whether every index of the batch lies in its arrays. The tables' entries are the caller's to
    // know: how many blocks a cache has is not said here.
    bool makes_sense(const RlBatch& batch) const {
        int64_t most = batch.table_width * model_.blocks_per * 16;
        for (int64_t s = 0; s < batch.sequences; s++) {
            int64_t start = batch.starts[s], len = batch.lens[s], context = batch.contexts[s];
            if (start < 0 || len < 0 || start + len > batch.rows) return false;
            if (context < len || context > most) return false;
        }
        for (int64_t row = 0; row < batch.rows; row++)
            if (batch.token_ids[row] < 0 || batch.token_ids[row] >= model_.vocab) return false;
        for (int64_t i = 0; i < batch.wanted_rows; i++)
            if (batch.wanted[i] < 0 || batch.wanted[i] >= batch.rows) return false;
        return true;
    }

    bool grow(const RlBatch& batch) {
        int64_t places =
            plan_units(model_, batch, level_.unit_positions(model_), units_, merges_);
        ws_.units = units_.data();
        ws_.unit_count = int64_t(units_.size());
        ws_.merges = merges_.data();
        ws_.merge_count = int64_t(merges_.size());
        int64_t unit_rows = level_.unit_positions(model_) * (model_.heads / model_.kv_heads);
        if (!partial_.hold(size_t(places * unit_rows * (model_.head_dim + 2) * 4))) return false;
        ws_.partial = partial_.as<float>();
        if (!scratch_.hold(size_t(ws_.scratch_bytes * pool_.threads()))) return false;
        ws_.scratch = scratch_.as<char>();
        // The same row may be wanted more than once.
        return hold_rows(std::max(batch.rows, batch.wanted_rows)) && turn_to(batch);
    }

    bool hold_rows(int64_t rows) {
        if (rows <= rows_) return true;
        rows = up_to(std::max(rows, 2 * rows_), 32);
        bool held = x_.hold(rows * ws_.x_bytes) && h_.hold(rows * ws_.h_bytes) &&
                    qkv_.hold(rows * ws_.qkv_bytes) && q_.hold(rows * ws_.q_bytes) &&
                    attended_.hold(rows * ws_.attended_bytes) && m_.hold(rows * ws_.m_bytes) &&
                    prepared_.hold(rows * ws_.prepared_bytes) && row_scales_.hold(rows * 4) &&
                    positions_.hold(rows * 4) && owners_.hold(rows * 4);
        rows_ = held ? rows : 0;
        ws_.x = x_.as<float>();
        ws_.h = h_.as<char>();
        ws_.qkv = qkv_.as<float>();
        ws_.q = q_.as<char>();
        ws_.attended = attended_.as<char>();
        ws_.m = m_.as<char>();
        ws_.prepared = prepared_.as<char>();
        ws_.row_scales = row_scales_.as<float>();
        ws_.positions = positions_.as<int32_t>();
        ws_.owners = owners_.as<int32_t>();
        return held;
    }

    // Rotary tables for every position up to the batch's longest context; computed once each.
    bool turn_to(const RlBatch& batch) {
        int64_t longest = 0;
        for (int64_t s = 0; s < batch.sequences; s++)
            longest = std::max<int64_t>(longest, batch.contexts[s]);
        if (longest <= turned_) return true;
        int64_t half = model_.head_dim / 2, positions = up_to(std::max(longest, 2 * turned_), 256);
        if (!cosines_.hold(positions * half * 4) || !sines_.hold(positions * half * 4)) {
            turned_ = 0;
            return false;
        }
        for (int64_t p = 0; p < positions; p++)
            for (int64_t i = 0; i < half; i++) {
                float angle = float(p) * model_.frequencies[i];
                cosines_.as<float>()[p * half + i] = std::cos(angle);
                sines_.as<float>()[p * half + i] = std::sin(angle);
            }
        turned_ = positions;
        ws_.cosines = cosines_.as<float>();
        ws_.sines = sines_.as<float>();
        return true;
    }

    RlModel model_;
    const Level& level_;
    Pool pool_;
    Workspace ws_ = {};
    double seconds_[RL_STAGES] = {};
    int64_t rows_ = 0, turned_ = 0;
    std::vector<Unit> units_;
    std::vector<Merge> merges_;
    Buffer x_, h_, qkv_, q_, attended_, m_, prepared_, row_scales_, positions_, owners_;
    Buffer cosines_, sines_, partial_, scratch_;
};

}  // namespace

// A decoder, or null where this processor or this library lacks the level, or memory is short.
// `model` is copied; what it points at is kept by the caller until rl_close.
RL_EXPORT void* rl_open(const RlModel* model, const char* level) {
    const Level* found = level_named(level);
    if (!found) return nullptr;
    try {
        return new Decoder(*model, *found);
    } catch (const std::exception&) {  // no memory, or no threads
        return nullptr;
    }
}

RL_EXPORT void rl_close(void* decoder) { delete static_cast<Decoder*>(decoder); }

// Logits [wanted, V] of one step. Or nothing: -1 where memory is short, -2 where the batch names
// what is not in it.
RL_EXPORT int32_t rl_step(void* decoder, const RlBatch* batch, float* logits) {
    try {
        return static_cast<Decoder*>(decoder)->step(*batch, logits);
    } catch (const std::exception&) {
        return -1;
    }
}

// Adds up, for each stage, the seconds since it was last set to zero; the array may be written.
RL_EXPORT double* rl_seconds(void* decoder) { return static_cast<Decoder*>(decoder)->seconds(); }
