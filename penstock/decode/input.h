// A file's bytes, in memory or still on disk: probing and decoding read both with the same parsers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "penstock/core/file.h"

namespace penstock {

class Input {
 public:
  /// Refers to the bytes, the file and the path; none is copied.
  Input(std::span<const std::byte> bytes, std::string_view path);
  /// Throws SampleError{"read", ...} for anything that is not a regular file.
  Input(const File& file, std::string_view path);

  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Copies up to `into.size()` bytes from `offset` on; fewer only at the end. Throws SampleError{"read",
  /// ...}.
  std::size_t read_at(std::int64_t offset, std::span<std::byte> into);

  /// Throws SampleError{"decode", path, cause}.
  [[noreturn]] void fail(const std::string& cause) const;

 private:
  std::span<const std::byte> bytes_;  ///< the whole file, or the part of it that `window_` holds
  std::int64_t bytes_offset_ = 0;
  const File* file_ = nullptr;  ///< null: everything is in bytes_
  std::string_view path_;
  std::int64_t size_ = 0;
  std::array<std::byte, 4096> window_;  // a WAV header, usually: one pread a file
};

/// An Input as the file that a C library reads. Nothing may be thrown through C frames: an error is kept, the
/// library sees the end of the file, and rethrow() throws it once the library has returned.
class InputStream {
 public:
  explicit InputStream(Input& input) : input_(&input) {}

  std::int64_t read(void* into, std::int64_t bytes) noexcept;
  /// As lseek(): the new position, or -1.
  std::int64_t seek(std::int64_t offset, int whence) noexcept;
  [[nodiscard]] std::int64_t tell() const noexcept { return position_; }
  [[nodiscard]] Input& input() const noexcept { return *input_; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Input* input_;
  std::int64_t position_ = 0;
  std::exception_ptr error_;
};

}  // namespace penstock
