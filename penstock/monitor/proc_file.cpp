#include "penstock/monitor/proc_file.h"

#include <cerrno>
#include <cstddef>
#include <iterator>

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

std::optional<ProcessStat> process_stat(std::string_view text) {
  // A name may have brackets of its own: the last one closes it.
  const std::size_t open = text.find('('), close = text.rfind(") ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  ProcessStat stat{.name = text.substr(open + 1, close - open - 1)};
  text.remove_prefix(close + 1);
  const std::string_view state = next_word(text);
  if (state.empty()) return std::nullopt;
  stat.state = state.front();
  std::int64_t fields[25] = {};  // from field 4 on, as proc(5) counts them
  for (std::size_t i = 4; i < std::size(fields); ++i) {
    const std::string_view word = next_word(text);
    std::from_chars(word.data(), word.data() + word.size(), fields[i]);
  }
  stat.parent = static_cast<int>(fields[4]);
  stat.faults_major = fields[12] + fields[13];
  stat.ticks = fields[14] + fields[15];
  stat.ticks_of_children = fields[16] + fields[17];
  stat.nice = static_cast<int>(fields[19]);
  stat.threads = fields[20];
  stat.resident_pages = fields[24];
  return stat;
}

}  // namespace penstock
