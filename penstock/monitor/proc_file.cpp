#include "penstock/monitor/proc_file.h"

#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <unistd.h>

namespace penstock {

std::optional<std::string_view> ProcFile::read(std::string& buffer) {
  if (file_.fd() < 0) file_ = File(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file_.fd() < 0) {
    error_ = errno;
    return std::nullopt;
  }
  if (buffer.size() < 4096) buffer.resize(4096);
  std::size_t size = 0;
  for (ssize_t n; (n = ::pread(file_.fd(), buffer.data() + size, buffer.size() - size,
                               static_cast<off_t>(size))) != 0;) {
    if (n < 0) {
      error_ = errno;
      File gone = std::move(file_);
      return std::nullopt;
    }
    size += static_cast<std::size_t>(n);
    if (size == buffer.size()) {
      buffer.resize(2 * size);
      size = 0;  // from the start again, that all of it be of one time
    } else if (n < 1024) {
      break;  // a long file comes page by page, so this was the end
    }
  }
  if (!keep_) File closed = std::move(file_);
  return std::string_view(buffer).substr(0, size);
}

}  // namespace penstock
