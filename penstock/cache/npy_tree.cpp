#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <unordered_set>

#include <fcntl.h>
#include <fmt/format.h>

#include "penstock/cache/npy.h"
#include "penstock/core/error.h"
#include "penstock/core/threads.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view extension = ".npy";

/// An id's file, or no file and the reason in errno.
File open_npy(const File& folder, std::string_view id) {
  char name[PATH_MAX];  // not a string: a feed opens thousands of them a second
  if (id.size() + extension.size() >= sizeof name) {
    errno = ENAMETOOLONG;
    return {};
  }
  *std::ranges::copy(extension, std::ranges::copy(id, name).out).out = '\0';
  // Non-blocking, so that a pipe of this name is refused and does not hold us up.
  return File(::openat(folder.fd(), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

bool is_missing(int reason) { return reason == ENOENT || reason == ENOTDIR || reason == ENAMETOOLONG; }

/// A shortage on this machine says nothing about the file.
bool is_shortage(const std::error_code& reason) {
  return reason == std::errc::too_many_files_open || reason == std::errc::too_many_files_open_in_system ||
         reason == std::errc::not_enough_memory;
}

/// Throws Error when the header or the size of the file is wrong, std::system_error when it cannot be read.
NpyHeader read_header(const File& file, std::int64_t size) {
  if (size == 0) throw Error("is empty; write the file again");
  std::array<std::byte, 256> first;  // NumPy's own header has 128
  std::span<const std::byte> head(first.data(), file.read_at(0, first));
  std::vector<std::byte> longer;
  if (const std::size_t offset = npy_data_offset(head); offset > head.size()) {
    longer.resize(offset);
    head = std::span(longer).first(file.read_at(0, longer));
  }
  const NpyHeader header = parse_npy_header(head);
  const std::int64_t expected = header.data_offset + static_cast<std::int64_t>(header.data_bytes());
  if (size != expected)
    throw Error(
        fmt::format("{}: expected {} bytes as its header promises, but found {}; write the file again",
                    size < expected ? "is cut off" : "has something behind its data", expected, size));
  return header;
}

/// What a tree knows of one id. Throws Error only for a shortage.
NpyItem look_at(const File& folder, std::string_view id) {
  NpyItem item{.there = true};
  if (!is_npy_id(id)) {
    item.problem = "its id leads out of the folder; ids must be relative paths without \"..\"";
    return item;
  }
  const File file = open_npy(folder, id);
  const int reason = file.fd() < 0 ? errno : 0;
  if (is_missing(reason)) return {};  // without an exception: a tree may have few of a million ids
  try {
    if (reason != 0) throw std::system_error(reason, std::generic_category());
    item.stamp = file.stamp();
    item.header = read_header(file, item.stamp.size);
  } catch (const std::system_error& e) {
    item.problem = fmt::format("cannot be read: {}", e.code().message());
    if (is_shortage(e.code())) throw Error(fmt::format("{}{}: {}", id, extension, item.problem));
  } catch (const Error& e) {
    item.problem = e.what();
  }
  return item;
}

/// Calls file(name) for every .npy file in a folder (and below it, with a recursive iterator): its path from
/// there, without the extension. Returns why it ended early, if it did.
template <typename Iterator, typename Function>
std::error_code for_each_npy(const fs::path& folder, const Function& file) {
  std::error_code failure;
  for (Iterator i(folder, failure), end; !failure && i != end; i.increment(failure)) {
    std::error_code vanished;
    if (i->path().extension() != extension || !i->is_regular_file(vanished)) continue;
    const std::string name = i->path().lexically_relative(folder).string();
    file(std::string_view(name).substr(0, name.size() - extension.size()));
  }
  return failure;
}

/// LJ001-0001_mel, speaker-mel-0001: projects that keep several arrays in one folder name files so.
bool is_named_after_a_kind(std::string_view name) {
  constexpr std::array<std::string_view, 5> kinds{"mel", "mels", "tok", "token", "tokens"};
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("_-."), name.size());
    if (std::ranges::find(kinds, name.substr(0, end)) != kinds.end()) return true;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
}

template <typename Iterator>
bool holds_tree(const fs::path& folder) {
  std::size_t files = 0, others = 0;
  const std::error_code failure = for_each_npy<Iterator>(
      folder, [&](std::string_view name) { ++(is_named_after_a_kind(name) ? others : files); });
  return !failure && files > 0 && others == 0;
}

/// What the folders of one kind of array are called: by these names first, then by these beginnings.
struct FolderNames {
  std::vector<std::string_view> names, beginnings;

  /// The place of a name among all; none for another folder's.
  [[nodiscard]] std::size_t rank(std::string_view name) const {
    if (const auto at = std::ranges::find(names, name); at != names.end())
      return static_cast<std::size_t>(at - names.begin());
    const bool begins = std::ranges::any_of(beginnings, [&](auto b) { return name.starts_with(b); });
    return begins ? names.size() : none;
  }
  static constexpr std::size_t none = ~std::size_t{0};
};

/// The first folder of these names in `parent` that holds a tree; empty for none.
fs::path find_in(const fs::path& parent, const FolderNames& wanted) {
  std::vector<std::pair<std::size_t, fs::path>> found;
  std::error_code failure;  // a parent that is missing or unreadable has no such folders
  for (fs::directory_iterator i(parent, failure), end; !failure && i != end; i.increment(failure)) {
    std::error_code vanished;
    const std::size_t rank = wanted.rank(i->path().filename().string());
    if (rank != FolderNames::none && i->is_directory(vanished)) found.emplace_back(rank, i->path());
  }
  std::ranges::sort(found);
  const auto first = std::ranges::find_if(
      found, [](const auto& f) { return holds_tree<fs::recursive_directory_iterator>(f.second); });
  return first == found.end() ? fs::path() : first->second;
}

fs::path find_tree(const fs::path& dataset, const FolderNames& wanted) {
  for (const char* parent : {"", "cache", "cached_features", "features", "preprocessed", "processed"})
    if (fs::path found = find_in(*parent == '\0' ? dataset : dataset / parent, wanted); !found.empty())
      return found;
  return {};
}

}  // namespace

bool is_npy_id(std::string_view id) {
  constexpr auto nowhere = std::string_view::npos;
  return !id.empty() && !id.starts_with('/') && id.find('\0') == nowhere && id != ".." &&
         !id.starts_with("../") && !id.ends_with("/..") && id.find("/../") == nowhere;
}

NpyTree::NpyTree(const fs::path& folder, std::span<const std::string_view> ids, int threads)
    : folder_(folder), handle_(File::open_folder(folder)), items_(ids.size()) {
  constexpr std::size_t block = 64;  // files between two meetings of the threads
  try {
    parallel_for((ids.size() + block - 1) / block, threads, [&](std::size_t b) {
      for (std::size_t i = b * block; i < std::min((b + 1) * block, ids.size()); ++i)
        items_[i] = look_at(handle_, ids[i]);
    });
  } catch (const Error& e) {
    throw Error(fmt::format("{}/{}", folder.string(), e.what()));
  }
}

std::string NpyTree::path(std::string_view id) const {
  return fmt::format("{}/{}{}", folder_.string(), id, extension);
}

std::span<const std::byte> NpyTree::read(std::size_t i, std::string_view id,
                                         Scratch<std::byte>& scratch) const {
  const std::span<std::byte> into = scratch.of(items_[i].header.data_bytes());
  read(i, id, into);
  return into;
}

void NpyTree::read(std::size_t i, std::string_view id, std::span<std::byte> into) const {
  const NpyItem& item = items_[i];
  const auto fail = [&](std::string cause) { throw SampleError("cache", path(id), std::move(cause)); };
  if (!item.problem.empty()) fail(item.problem);
  if (!item.there) fail("was not there when the tree was opened; write it, then start again");
  if (into.size() != item.header.data_bytes())
    throw Error(fmt::format("NpyTree::read: expected room for {} bytes, but found {}",
                            item.header.data_bytes(), into.size()));
  try {
    const File file = open_npy(handle_, id);
    if (file.fd() < 0) throw std::system_error(errno, std::generic_category());
    if (const FileStamp now = file.stamp(); now != item.stamp)
      fail(fmt::format(
          "has changed since the tree was opened (it had {} bytes, now {}); start again to use it as it is",
          item.stamp.size, now.size));
    if (const std::size_t n = file.read_at(item.header.data_offset, into); n != into.size())
      fail(fmt::format("is cut off: expected {} bytes of data, but found {}; write the file again",
                       into.size(), n));
  } catch (const std::system_error& e) {
    fail(fmt::format("cannot be read: {}", e.code().message()));
  }
}

std::vector<std::string> NpyTree::orphans(std::span<const std::string_view> ids) const {
  std::unordered_set<std::string> known;
  known.reserve(ids.size());
  for (const std::string_view id : ids) known.insert(fs::path(id).lexically_normal().string());
  std::vector<std::string> result;
  const std::error_code failure =
      for_each_npy<fs::recursive_directory_iterator>(folder_, [&](std::string_view name) {
        if (!known.contains(std::string(name))) result.emplace_back(name);
      });
  if (failure) throw Error(fmt::format("{}: cannot be listed: {}", folder_.string(), failure.message()));
  std::ranges::sort(result);
  return result;
}

NpyFolders find_npy_folders(const fs::path& dataset) {
  const FolderNames mels{.names = {"mels", "mel"}, .beginnings = {"mels", "mel_", "mel-"}};
  const FolderNames tokens{.names = {"tokens", "token", "tok"},
                           .beginnings = {"tokens", "token_", "token-", "tok_", "tok-"}};
  NpyFolders found{.mels = find_tree(dataset, mels), .tokens = find_tree(dataset, tokens)};
  if (const fs::path features = dataset / "cached_features";
      found.mels.empty() && holds_tree<fs::directory_iterator>(features))
    found.mels = features;
  return found;
}

}  // namespace penstock
