#include "penstock/synth/synth.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/core/threads.h"
#include "penstock/synth/clip.h"
#include "penstock/synth/encode.h"

namespace penstock {
namespace fs = std::filesystem;
namespace {

void check(const SynthOptions& options) {
  const auto in_range = [](const char* key, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high)
      throw Error(fmt::format("{} must be from {} to {}, but is {}", key, low, high, value));
  };
  if (options.clips < 1) throw Error(fmt::format("clips must be at least 1, but is {}", options.clips));
  in_range("speakers", options.speakers, 1, 99);
  in_range("sample_rate", options.sample_rate, 8000, 48000);
  check_format(options.format, options.sample_rate);
  if (options.voice != "tone") check_voice(options.voice);
}

/// Without a sync: a dataset of a million clips would spend its time in there, and metadata.csv is what makes
/// it one.
void write_new_file(const fs::path& path, std::span<const std::byte> bytes) {
  const auto fail = [&] {
    throw Error(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  };
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) fail();
  const File file(fd);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) fail();
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// A dataset that is being written: nothing of it is seen under its final names until finish(), and nothing
/// of it is left when that is never reached.
class Dataset {
 public:
  explicit Dataset(const fs::path& folder) : folder_(fs::absolute(folder / "").parent_path()) {
    try {
      refuse_if_occupied();
      create_folder();
    } catch (const fs::filesystem_error& e) {
      remove_traces();
      throw Error(fmt::format("{}: {}", folder_.string(), e.code().message()));
    } catch (...) {
      remove_traces();
      throw;
    }
  }
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset() {
    if (!finished_) remove_traces();
  }

  void add(const std::string& file_name, std::span<const std::byte> bytes) const {
    write_new_file(wavs_ / file_name, bytes);
  }

  void finish(std::string_view metadata) {
    const fs::path final_name = folder_ / "wavs";
    std::error_code failed;
    fs::rename(wavs_, final_name, failed);
    if (failed)
      throw Error(fmt::format("{}: cannot be put in place: {}", final_name.string(), failed.message()));
    wavs_ = final_name;
    write_file(folder_ / "metadata.csv", metadata);
    finished_ = true;
  }

 private:
  void refuse_if_occupied() const {
    const fs::path wavs = folder_ / "wavs";
    if (fs::exists(folder_) && !fs::is_directory(folder_))
      throw Error(fmt::format("{}: must be a folder, or not exist yet", folder_.string()));
    const bool has_metadata = fs::exists(folder_ / "metadata.csv");
    if (has_metadata || (fs::exists(wavs) && !(fs::is_directory(wavs) && fs::is_empty(wavs))))
      throw Error(fmt::format("{}: holds a dataset already ({}): remove it, or choose another folder",
                              folder_.string(), has_metadata ? "metadata.csv" : "wavs/"));
  }

  void create_folder() {
    for (fs::path p = folder_; !fs::exists(p); p = p.parent_path()) created_.push_back(p);
    std::error_code failed;
    fs::create_directories(folder_, failed);
    if (failed) throw Error(fmt::format("{}: cannot be created: {}", folder_.string(), failed.message()));
    std::string name = (folder_ / ".wavs-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(fmt::format("{}: cannot be written to: {}", folder_.string(), std::strerror(errno)));
    wavs_ = name;
    fs::permissions(wavs_, fs::perms(0755));  // mkdtemp makes it the owner's alone
  }

  void remove_traces() const noexcept {
    std::error_code ignored;  // there is an exception on its way that says more
    if (!wavs_.empty()) fs::remove_all(wavs_, ignored);
    for (const auto& p : created_) fs::remove(p, ignored);
  }

  fs::path folder_;
  fs::path wavs_;                  // under a temporary name until finish()
  std::vector<fs::path> created_;  // folders that were not there before, innermost first
  bool finished_ = false;
};

SynthResult summarize(const std::vector<double>& seconds) {
  const auto [shortest, longest] = std::minmax_element(seconds.begin(), seconds.end());
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return {.clips = static_cast<std::int64_t>(seconds.size()),
          .hours = total / 3600,
          .min_seconds = *shortest,
          .mean_seconds = total / static_cast<double>(seconds.size()),
          .max_seconds = *longest};
}

}  // namespace

SynthResult synthesize(const fs::path& folder, const SynthOptions& options) {
  if (folder.empty()) throw Error("the folder of the new dataset must have a name, but it is empty");
  check(options);
  Dataset dataset(folder);
  const auto clips = static_cast<std::size_t>(options.clips);
  std::vector<std::string> rows(clips);
  std::vector<double> seconds(clips);
  std::mutex progress_mutex;
  std::size_t done = 0;
  parallel_for(clips, options.threads, [&](std::size_t i) {
    const Clip clip = make_clip(options, static_cast<std::int64_t>(i));
    dataset.add(clip.id + "." + options.format, encode(clip.sound, options.format));
    rows[i] = fmt::format("{}|{}|{}\n", clip.id, clip.text.written, clip.text.spoken);
    seconds[i] = clip.sound.seconds();
    const std::lock_guard lock(progress_mutex);
    ++done;
    if (options.progress) options.progress(done, clips);
  });
  dataset.finish(fmt::format("{}", fmt::join(rows, "")));
  return summarize(seconds);
}

}  // namespace penstock
