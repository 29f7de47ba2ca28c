// What `penstock cache list` shows.
#include <algorithm>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "penstock/cache/pack.h"
#include "penstock/cache/pack_format.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// `mel-0123456789abcdef`: the array and the fingerprint.
bool parse_folder_name(std::string_view name, PackSummary& summary) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0 || name.size() != dash + 17) return false;
  const auto result =
      std::from_chars(name.data() + dash + 1, name.data() + name.size(), summary.fingerprint, 16);
  summary.identity.array = name.substr(0, dash);
  return result.ec == std::errc{} && result.ptr == name.data() + name.size();
}

void set_problem(PackSummary& summary, const std::string& shard, const std::string& what) {
  if (summary.problem.empty()) summary.problem = fmt::format("{}: {}", shard, what);
}

void add_sealed(PackSummary& summary, const std::string& name, const File& file, const FileStamp& stamp) {
  ++summary.shards;
  summary.written_ns = std::max(summary.written_ns, stamp.mtime_ns);
  const HeaderFound header = read_shard_header(file);
  if (header.state == HeaderFound::State::newer)
    return set_problem(summary, name,
                       fmt::format("was written by a newer version (format {})", header.version));
  if (header.state == HeaderFound::State::damaged) return set_problem(summary, name, "its header is damaged");
  if (header.fingerprint != summary.fingerprint) return set_problem(summary, name, "belongs to another pack");
  summary.identity = header.identity;
  if (const auto footer = read_footer(file, static_cast<std::uint64_t>(stamp.size)))
    summary.records += static_cast<std::int64_t>(footer->count);
  else
    set_problem(summary, name, "its footer is damaged or cut off");
}

/// Nobody builds the pack: its lock is free, or cannot even be opened.
bool is_idle(const File& folder) {
  const File lock(::openat(folder.fd(), "lock", O_RDONLY | O_CLOEXEC));
  return lock.fd() < 0 || ::flock(lock.fd(), LOCK_SH | LOCK_NB) == 0;
}

void summarise(PackSummary& summary) {
  const File folder = File::open_folder(summary.folder);
  struct stat lock {};
  if (::fstatat(folder.fd(), "lock", &lock, 0) == 0)
    summary.used_ns = lock.st_mtim.tv_sec * 1'000'000'000 + lock.st_mtim.tv_nsec;
  for (const ShardName& shard : find_shards(summary.folder)) {
    const std::string name = shard.text();
    try {
      const File file = File::open(name.c_str(), folder.fd());
      const FileStamp stamp = file.stamp();
      summary.bytes += static_cast<std::uint64_t>(stamp.size);
      if (shard.part)
        summary.leftovers.push_back(name);
      else
        add_sealed(summary, name, file, stamp);
    } catch (const std::system_error& e) {
      if (e.code() == std::errc::no_such_file_or_directory) continue;  // sealed or removed meanwhile
      set_problem(summary, name, fmt::format("cannot be read: {}", e.code().message()));
    }
  }
  if (!summary.leftovers.empty() && !is_idle(folder)) summary.leftovers.clear();
}

}  // namespace

std::vector<PackSummary> list_packs(const fs::path& cache_folder) {
  std::vector<PackSummary> packs;
  std::error_code error;
  fs::directory_iterator folders(cache_folder, error);
  if (error == std::errc::no_such_file_or_directory) return packs;
  if (error) throw Error(fmt::format("{}: cannot be listed: {}", cache_folder.string(), error.message()));
  for (const auto& entry : folders) {
    PackSummary summary{.folder = entry.path()};
    if (!parse_folder_name(entry.path().filename().native(), summary) || !entry.is_directory(error)) continue;
    try {
      summarise(summary);
    } catch (const std::exception& e) {
      summary.problem = e.what();
    }
    packs.push_back(std::move(summary));
  }
  std::ranges::sort(packs, {}, &PackSummary::folder);
  return packs;
}

void mark_used(const fs::path& pack_folder) {
  ::utimensat(AT_FDCWD, (pack_folder / "lock").c_str(), nullptr, 0);
}

}  // namespace penstock
