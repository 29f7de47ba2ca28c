#pragma once

/// @file
/// A folder of its own for a test, removed at its end. Its name is new even where a crashed run left folders
/// behind: a process number is not, since numbers come round again.

#include <filesystem>
#include <string>

#include <stdlib.h>
#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock {

class TempFolder {
 public:
  /// In memory where there is some: tests write small files by the thousand, and sync some of them.
  TempFolder()
      : TempFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
  explicit TempFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "penstock-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error("no temporary folder in " + parent.string());
    path_ = std::filesystem::canonical(name);
    // Open to all, as an ordinary folder is: some tests go on as another user.
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::filesystem::path& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock
