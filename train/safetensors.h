// Tensors by name in one file, in the safetensors layout: 8 bytes of header length, a JSON header, the data.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "train/optimizer.h"

namespace penstock::train {

/// float16, bfloat16, float32, float64, uint8, int32, int64 and bool, of any size and device. Data lie by
/// falling element size, else in the given order, so that each is aligned to its elements. Written to its
/// final name (callers write into a temporary folder), and synced. Throws Error naming the path; the file is
/// removed then.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

struct SafeTensors {
  NamedTensors tensors;  ///< on the CPU, in the order of the file's data
  std::map<std::string, std::string> metadata;
};
/// Throws Error naming the path and what is wrong with it: cut, damaged header, overlapping or unknown
/// tensors, not there.
SafeTensors load_safetensors(const std::filesystem::path& path);

/// Copies values into tensors of the same names, types and shapes. Error naming the first that is missing,
/// left over or different, before anything is copied; `what` opens the message.
void assign(const NamedTensors& to, const NamedTensors& from, const std::string& what);

}  // namespace penstock::train
