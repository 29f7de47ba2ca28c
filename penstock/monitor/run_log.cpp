#include "penstock/monitor/run_log.h"

#include <cerrno>
#include <chrono>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

std::string log_line(double t, std::string_view kind, std::string_view object) {
  const std::size_t open = object.find('{') + 1;
  const bool empty = object.find_first_not_of(" \n", open) == object.rfind('}');
  return fmt::format("{{\"t\":{:.3f},\"kind\":\"{}\"{}{}\n", t, kind, empty ? "" : ",", object.substr(open));
}

RunLog::RunLog(const std::filesystem::path& run) : path_(run / "log.jsonl") {
  std::error_code failure;
  std::filesystem::create_directories(run, failure);
  if (failure)
    throw Error(fmt::format("{}: cannot make the run's folder: {}", run.string(), failure.message()));
  file_ = File(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.fd() < 0) throw Error(fmt::format("{}: cannot be written: {}", path_.string(), reason()));
}

double RunLog::now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void RunLog::append(std::string_view lines) {
  const ssize_t written = ::write(file_.fd(), lines.data(), lines.size());
  if (written == static_cast<ssize_t>(lines.size())) return;
  throw Error(
      fmt::format("{}: cannot be written: {}", path_.string(),
                  written < 0 ? reason() : fmt::format("{} of {} bytes went in", written, lines.size())));
}

}  // namespace penstock
