#include "penstock/decode/input.h"

#include <algorithm>
#include <system_error>

#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

[[noreturn]] void cannot_be_read(std::string_view path, const std::system_error& e) {
  throw SampleError("read", std::string(path), "cannot be read: " + e.code().message());
}

}  // namespace

Input::Input(std::span<const std::byte> bytes, std::string_view path)
    : bytes_(bytes), path_(path), size_(static_cast<std::int64_t>(bytes.size())) {}

Input::Input(const File& file, std::string_view path) : file_(&file), path_(path) {
  try {
    size_ = file.stamp().size;
  } catch (const std::system_error& e) {
    cannot_be_read(path, e);
  }
}

std::size_t Input::read_at(std::int64_t offset, std::span<std::byte> into) {
  if (offset < 0 || offset >= size_) return 0;
  into = into.first(std::min(into.size(), static_cast<std::size_t>(size_ - offset)));
  const auto held = [&] {
    return offset >= bytes_offset_ && offset + static_cast<std::int64_t>(into.size()) <=
                                          bytes_offset_ + static_cast<std::int64_t>(bytes_.size());
  };
  if (!held()) {
    try {
      if (into.size() > window_.size()) return file_->read_at(offset, into);
      bytes_ = std::span(window_).first(file_->read_at(offset, window_));
    } catch (const std::system_error& e) {
      cannot_be_read(path_, e);
    }
    bytes_offset_ = offset;
    into = into.first(std::min(into.size(), bytes_.size()));  // the file has shrunk since its size was taken
  }
  std::copy_n(bytes_.data() + (offset - bytes_offset_), into.size(), into.data());
  return into.size();
}

void Input::fail(const std::string& cause) const { throw SampleError("decode", std::string(path_), cause); }

std::int64_t InputStream::read(void* into, std::int64_t bytes) noexcept {
  if (error_ || bytes <= 0) return 0;
  try {
    const std::size_t n =
        input_->read_at(position_, {static_cast<std::byte*>(into), static_cast<std::size_t>(bytes)});
    position_ += static_cast<std::int64_t>(n);
    return static_cast<std::int64_t>(n);
  } catch (...) {
    error_ = std::current_exception();
    return 0;
  }
}

std::int64_t InputStream::seek(std::int64_t offset, int whence) noexcept {
  const std::int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? position_ : input_->size();
  if (offset < -base || offset > INT64_MAX - base) return -1;
  return position_ = base + offset;
}

}  // namespace penstock
