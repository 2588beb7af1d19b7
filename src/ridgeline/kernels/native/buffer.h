// Memory that a decoder keeps between steps.
#pragma once
#include <sys/mman.h>

#include <cstddef>

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
