// Files and mappings that close themselves, and writing that never leaves half a file behind.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "penstock/core/types.h"

namespace penstock {

/// An open file descriptor.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File();

  /// Opens for reading; a relative path starts at `folder` (AT_FDCWD: the current folder). Throws
  /// std::system_error with errno's reason, so that the caller can say what the file was for.
  static File open(const char* path, int folder = at_current_folder);
  static File open_folder(const std::filesystem::path& path);

  [[nodiscard]] int fd() const { return fd_; }
  /// Throws std::system_error. For anything that is not a regular file: EISDIR or EINVAL.
  [[nodiscard]] FileStamp stamp() const;
  /// Reads up to `into.size()` bytes at `offset`; fewer only at the end of the file. Throws
  /// std::system_error.
  std::size_t read_at(std::int64_t offset, std::span<std::byte> into) const;

  static constexpr int at_current_folder = -100;  // AT_FDCWD

 private:
  int fd_ = -1;
};

/// Memory that only grows and is never cleared: a worker's scratch, 64-byte aligned.
template <typename T>
class Scratch {
 public:
  /// At least `n` elements; what they held before may be lost when it grows.
  std::span<T> of(std::size_t n) {
    if (n > capacity_) {
      capacity_ = n + n / 4;
      memory_.reset(static_cast<T*>(::operator new[](capacity_ * sizeof(T), std::align_val_t{64})));
    }
    return {memory_.get(), n};
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<T[], Free> memory_;
  std::size_t capacity_ = 0;
};

/// A whole file mapped for reading.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Writes to a temporary name beside `path`, syncs and renames: readers see the old file or the new one.
/// Throws Error naming the path; the temporary is removed.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

/// The whole file as text. Throws Error naming the path.
std::string read_text(const std::filesystem::path& path);

}  // namespace penstock
