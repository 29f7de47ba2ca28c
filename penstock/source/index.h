// The index of a dataset: one mapped binary file that opens in O(1), whatever the number of utterances.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "penstock/core/file.h"
#include "penstock/core/types.h"
#include "penstock/source/manifest.h"

namespace penstock {

/// What building an index needs of other stages; feed/ supplies it.
struct IndexInputs {
  /// Throws SampleError; called in parallel.
  std::function<AudioInfo(const File& file, std::string_view path)> probe;
  /// Throws Error; called in parallel.
  std::function<std::u32string(std::string_view text)> clean;
  std::uint64_t clean_version = 0;
  /// Optional; called now and then, from one thread at a time, with `done` growing up to `total`.
  std::function<void(std::size_t done, std::size_t total)> progress;
  int threads = 1;
};

/// A character of the cleaned texts and how often it occurs.
struct CharacterCount {
  std::uint32_t character;
  std::uint32_t reserved;
  std::uint64_t count;
};

/// Immutable and thread-safe. Utterance numbers follow the manifests' order, training before validation.
class Index {
 public:
  /// Opens the index in `index_folder`, or (re)builds it there when there is none for these paths, it is
  /// damaged, a manifest's size or mtime or the version of `clean` has changed, or `rescan` asks for it. A
  /// rebuild keeps what it knows of audio files whose size and mtime have not changed; `rescan` reads every
  /// header again. `val_fraction` is no part of the file: another one splits the same index differently.
  ///
  /// What is wrong with a row (an audio file that is missing or no audio, a text that is empty or no UTF-8)
  /// becomes its `problem`. Throws Error where the manifests cannot be found, read or parsed, or the
  /// machine runs out of something.
  ///
  /// Written atomically, so processes may build it at the same time. A folder that cannot be written gives an
  /// index in memory and a note.
  static Index open(const DatasetPaths& paths, const std::filesystem::path& index_folder,
                    const IndexInputs& inputs, bool rescan = false);

  [[nodiscard]] std::int64_t size() const;
  /// Throws Error for a damaged entry, naming the file and `penstock info DIR --rescan`.
  [[nodiscard]] Utterance utterance(std::int64_t number) const;
  /// Names in number order, which is the order of first utterances; "" where ids name none.
  [[nodiscard]] std::span<const std::string_view> speakers() const;
  /// By code point; rows with a problem do not count.
  [[nodiscard]] std::span<const CharacterCount> characters() const;
  [[nodiscard]] const std::filesystem::path& root() const;  ///< absolute; relative audio paths start here
  [[nodiscard]] bool rebuilt() const;                       ///< open() had to build it
  [[nodiscard]] std::string_view note() const;              ///< empty, or something a person should know
  /// `metadata.csv:12` for messages about an utterance's text.
  [[nodiscard]] std::string where(std::int64_t number) const;

  Index(Index&&) noexcept;
  Index& operator=(Index&&) noexcept;
  ~Index();

 private:
  Index();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
