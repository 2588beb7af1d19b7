// The library's C functions: which level this processor takes, decoders, and their buffers.
#include "library.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "workspace.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define RL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Zeroed memory of whole pages, large ones where the system has them.
class Buffer {
public:
    ~Buffer() { drop(); }
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // At least `bytes`, zeroed anew when it grows; false where there is no memory.
    bool hold(size_t bytes) {
        if (bytes <= bytes_) return true;
        drop();
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return false;
#if defined(MADV_HUGEPAGE)
        madvise(at, bytes, MADV_HUGEPAGE);
#endif
        at_ = at;
        bytes_ = bytes;
        return true;
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(at_);
    }

private:
    void drop() {
        if (at_) munmap(at_, bytes_);
        at_ = nullptr;
        bytes_ = 0;
    }
    void* at_ = nullptr;
    size_t bytes_ = 0;
};

// Linux gives the wide tile registers only to processes that ask for them.
bool may_use_tiles() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int ASK = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return false;
#endif
}

// The levels of this library that this processor has, best first.
const std::vector<const Level*>& levels() {
    static const std::vector<const Level*> found = [] {
        std::vector<const Level*> here;
#if defined(__x86_64__)
        __builtin_cpu_init();
        bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
        (void)wide;
#if defined(RL_HAS_AMX)
        unsigned a = 7, b, c = 0, d;  // leaf 7: EDX 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8
        asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        constexpr unsigned TILES = 1u << 22 | 1u << 24 | 1u << 25;
        if (wide && (d & TILES) == TILES && may_use_tiles()) here.push_back(&amx_level);
#endif
#if defined(RL_HAS_AVX512)
        if (wide) here.push_back(&avx512_level);
#endif
#if defined(RL_HAS_AVX2)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            here.push_back(&avx2_level);
#endif
#endif
        here.push_back(&plain_level);
        return here;
    }();
    return found;
}

int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// Bytes of a row: columns padded to 64, and an odd number of cache lines, so that the sixteen rows
// of a tile fall into different sets of the first cache.
int64_t row_bytes(int64_t columns, int64_t item_bytes) {
    return (up_to(columns, 64) * item_bytes / 64 | 1) * 64;
}

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

    // 0, or -1 where memory is short (nothing was computed then).
    int step(const RlBatch& batch, float* logits) {
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

    const Level& level() const { return level_; }
    double* seconds() { return seconds_; }

private:
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
        return hold_rows(batch.rows) && turn_to(batch);
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

const Level* level_named(const char* name) {
    for (const Level* level : levels())
        if (!std::strcmp(level->name, name)) return level;
    return nullptr;
}

RL_EXPORT int32_t rl_abi() { return RL_ABI; }

// This processor's levels, best first, separated by commas.
RL_EXPORT const char* rl_levels() {
    static const std::string names = [] {
        std::string text;
        for (const Level* level : levels()) text += (text.empty() ? "" : ",") + std::string(level->name);
        return text;
    }();
    return names.c_str();
}

// A decoder, or null where this processor or this library lacks the level, or memory is short.
// `model` is copied; what it points at is kept by the caller until rl_close.
RL_EXPORT void* rl_open(const RlModel* model, const char* level) {
    for (const Level* found : levels())
        if (!std::strcmp(found->name, level)) try {
                return new Decoder(*model, *found);
            } catch (const std::exception&) {
                return nullptr;
            }
    return nullptr;
}

RL_EXPORT void rl_close(void* decoder) { delete static_cast<Decoder*>(decoder); }

// Logits [wanted, V] of one step. 0, or -1 where memory is short.
RL_EXPORT int32_t rl_step(void* decoder, const RlBatch* batch, float* logits) {
    return static_cast<Decoder*>(decoder)->step(*batch, logits);
}

// Adds up, for each stage, the seconds since it was last set to zero; the array may be written.
RL_EXPORT double* rl_seconds(void* decoder) { return static_cast<Decoder*>(decoder)->seconds(); }
