// Manifest files -> rows: id, text, audio path, split. LJSpeech's layout; other kinds join at read_manifest.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/core/types.h"

namespace penstock {

/// Where a dataset lies. Training data is `metadata_train_file`, else `train_data`, else `folder`; validation
/// data is `metadata_eval_file`, else `val_data`, else a share of the training data. Relative names start at
/// `folder`, or at the current folder when there is none.
///
/// A folder holds metadata.csv, or metadata_train.csv with metadata_eval.csv or metadata_val.csv, and its
/// audio in wavs/ or beside the manifest.
struct DatasetPaths {
  std::filesystem::path folder;
  std::filesystem::path train_data, val_data;
  std::filesystem::path metadata_train_file, wavs_train_dir;
  std::filesystem::path metadata_eval_file, wavs_eval_dir;
  double val_fraction = 0.05;  ///< split by hash of the id where validation has no data of its own
};

struct ManifestRow {
  std::string id;       ///< as the manifest has it, a subfolder or an extension included
  std::string text;     ///< the normalised column where there is one and it is not empty
  std::string path;     ///< of the audio file: relative to the root where it lies below it, else absolute
  std::string speaker;  ///< `s03` of `s03-000123`; empty for ids of another form
  std::int32_t line = 0;
  std::int32_t file = 0;  ///< which of Manifest::files
  bool validation = false;
};

struct Manifest {
  std::filesystem::path root;  ///< absolute; relative audio paths start here
  std::vector<ManifestRow> rows;
  std::vector<std::pair<std::filesystem::path, FileStamp>> files;  ///< the manifest files that were read
  bool split_by_id = false;  ///< validation is a share of the training data, see in_validation
};

/// The manifest files of a dataset, without reading them: what the index compares. Throws Error when there is
/// none, saying where it looked.
std::vector<std::pair<std::filesystem::path, FileStamp>> manifest_files(const DatasetPaths& paths);

/// Reads them: UTF-8, a row a line, `id|text` or `id|text|normalised text`. Blank lines, CRLF, a byte order
/// mark and a header row (`id|...`, `fileid|...`, `wav_id|...` and the like) are fine.
///
/// Columns are the header's, or three where more than half of the rows have two `|` or more. With two
/// columns, the text is everything behind the first `|`. With three, a `|` may be in both texts, so they
/// share the fields behind the id evenly; of an odd number the first text takes one more, because normalising
/// removes signs rather than adding them.
///
/// The audio of an id is a .wav, .flac, .ogg, .opus or .mp3 file, preferred in this order, unless the id says
/// which. One that is missing is no error here: its row keeps the path where it was expected.
///
/// Throws Error as `metadata.csv:12: ...` for a manifest without rows, a row without `|`, an empty id, the
/// same id twice in a file (naming both lines), or an audio file that both splits use: validation would
/// measure what training has seen. Ids alone may repeat across splits, as folders that count from 1 have
/// them.
Manifest read_manifest(const DatasetPaths& paths);

/// Whether an id falls into the validation split: a hash of the id alone, so that it never moves when a
/// dataset grows.
bool in_validation(std::string_view id, double val_fraction);
/// The same from hash_text(id).
bool in_validation(std::uint64_t id_hash, double val_fraction);

}  // namespace penstock
