#include "penstock/core/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

[[noreturn]] void throw_errno(int code) { throw std::system_error(code, std::generic_category()); }

}  // namespace

static_assert(File::at_current_folder == AT_FDCWD);

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File File::open(const char* path, int folder) {
  const int fd = ::openat(folder, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_errno(errno);
  return File(fd);
}

File File::open_folder(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    throw Error(fmt::format("{}: cannot be opened as a folder: {}", path.string(), std::strerror(errno)));
  return File(fd);
}

FileStamp File::stamp() const {
  struct stat s {};
  if (::fstat(fd_, &s) != 0) throw_errno(errno);
  if (!S_ISREG(s.st_mode)) throw_errno(S_ISDIR(s.st_mode) ? EISDIR : EINVAL);
  return {.size = s.st_size, .mtime_ns = s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec};
}

std::size_t File::read_at(std::int64_t offset, std::span<std::byte> into) const {
  // Most kernels finish a read before they let another thread run: in parts, a thread that wakes up beside a
  // worker waits for a few microseconds instead of tens.
  constexpr std::size_t part = 64 << 10;
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd_, into.data() + done, std::min(part, into.size() - done),
                              offset + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  try {
    const File file = File::open(path.c_str());
    const auto size = static_cast<std::size_t>(file.stamp().size);
    if (size == 0) return;
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (p == MAP_FAILED) throw_errno(errno);
    bytes_ = {static_cast<const std::byte*>(p), size};
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be mapped: {}", path.string(), e.code().message()));
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::string temporary = path.string() + ".tmp-XXXXXX";
  const auto fail = [&](const char* what, int code) {
    ::unlink(temporary.c_str());
    throw Error(fmt::format("{}: {}: {}", path.string(), what, std::strerror(code)));
  };
  const File file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.fd() < 0)
    throw Error(fmt::format("{}: cannot be created: {}", path.string(), std::strerror(errno)));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file.fd(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written", errno);
    done += static_cast<std::size_t>(n);
  }
  if (::fchmod(file.fd(), 0644) != 0 || ::fsync(file.fd()) != 0) fail("cannot be written", errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot be replaced", errno);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::string read_text(const std::filesystem::path& path) {
  try {
    const File file = File::open(path.c_str());
    std::string text(static_cast<std::size_t>(file.stamp().size), '\0');
    text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
    return text;
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be read: {}", path.string(), e.code().message()));
  }
}

}  // namespace penstock
