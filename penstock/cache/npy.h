// NumPy's .npy files, and folders of them with one array per utterance: `<id>.npy`.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/core/file.h"
#include "penstock/core/types.h"

namespace penstock {

enum class NpyType : std::uint8_t { float16, float32, float64, int32, int64 };
std::string_view npy_type_name(NpyType type);  ///< as NumPy says it: float16
std::size_t npy_type_bytes(NpyType type);

/// What a .npy header says: versions 1, 2 and 3, one or two dimensions.
struct NpyHeader {
  NpyType type = NpyType::float32;
  bool fortran = false;                 ///< the first index runs fastest
  std::int32_t dimensions = 1;          ///< 1 or 2
  std::array<std::int64_t, 2> shape{};  ///< shape[1] is 1 for one dimension
  std::int64_t data_offset = 0;

  [[nodiscard]] std::size_t data_bytes() const;
};

/// The most bytes of a file that parse_npy_header wants to see; most files need 128.
inline constexpr std::size_t npy_header_most = 64 * 1024;

/// Where the data begins, from the first bytes of a file; 12 are enough. At most npy_header_most. Throws
/// Error: "is not a .npy file", "is of .npy version 4.0 ...".
std::size_t npy_data_offset(std::span<const std::byte> head);

/// Reads the header from the first bytes of a file, npy_data_offset() of them or more. Throws Error, without
/// the file's name: "holds Python objects", "has 3 dimensions", "is of type >f4 ...".
NpyHeader parse_npy_header(std::span<const std::byte> head);

/// The bytes in front of the data, version 1, C order, padded to 64 as NumPy does it. One or two dimensions.
std::string npy_header(NpyType type, std::span<const std::int64_t> shape);

/// Writes one array (C order) atomically, and the folders above it. Throws Error naming the path.
void write_npy(const std::filesystem::path& path, NpyType type, std::span<const std::int64_t> shape,
               std::span<const std::byte> data);

/// Whether `<id>.npy` is a file below a tree's folder: the id is not empty, not absolute, and has no ".."
/// part.
bool is_npy_id(std::string_view id);

/// One array of a tree.
struct NpyItem {
  bool there = false;  ///< false for a missing file, which is no problem
  NpyHeader header;
  FileStamp stamp;
  std::string problem;  ///< why it cannot be used; empty for a good one. The header is then not set.
};

/// `<id>.npy` for the utterances of a dataset. Immutable, shared by all threads.
class NpyTree {
 public:
  NpyTree() = default;
  /// Reads the headers of all ids' files with `threads` threads. A file that is missing is not there; one
  /// that is damaged (no .npy, cut off, of a type or shape that we do not read) has a problem. Throws Error
  /// when the folder cannot be opened, or when the machine is short of open files or memory. Ids may have
  /// slashes; one that is_npy_id() refuses has a problem.
  NpyTree(const std::filesystem::path& folder, std::span<const std::string_view> ids, int threads);

  [[nodiscard]] bool empty() const { return items_.empty(); }  ///< no tree at all
  [[nodiscard]] const NpyItem& item(std::size_t i) const { return items_[i]; }
  [[nodiscard]] std::span<const NpyItem> items() const { return items_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::string path(std::string_view id) const;  ///< of its file, for messages

  /// The array's data as it is in the file: item `i`, whose id the caller knows. Throws SampleError("cache",
  /// path, ...) when the item is not there or has a problem, or when the file is not what it was when the
  /// tree was opened. Allocates nothing once the scratch has grown.
  std::span<const std::byte> read(std::size_t i, std::string_view id, Scratch<std::byte>& scratch) const;
  /// The same straight into `into`, which has the data's size.
  void read(std::size_t i, std::string_view id, std::span<std::byte> into) const;

  /// .npy files in the folder (below it, too) that belong to none of `ids`, by name without .npy, sorted.
  [[nodiscard]] std::vector<std::string> orphans(std::span<const std::string_view> ids) const;

 private:
  std::filesystem::path folder_;
  File handle_;
  std::vector<NpyItem> items_;
};

/// Folders of a dataset that look like trees of mels or tokens. A folder counts when it holds a .npy file
/// (below it, too) and none that is named after a kind of array, as in `<id>_mel.npy`. The first one counts:
/// of the dataset, its cache/, cached_features/, features/, preprocessed/ and processed/ in this order, in
/// each mels, mel, then mels*, mel_* and mel-* by name (tokens, token, tok, then tokens*, token_*, token-*,
/// tok_* and tok-*); last of all, for mels, files that lie in cached_features/ itself. Empty paths where
/// there is none.
struct NpyFolders {
  std::filesystem::path mels, tokens;
};
NpyFolders find_npy_folders(const std::filesystem::path& dataset);

}  // namespace penstock
