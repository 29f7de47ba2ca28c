// The configuration's keys as flags of a subcommand.
#pragma once
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "penstock/core/config.h"

namespace penstock::cli {

/// `DIR`, `--config`, `--print-config` and a flag for every key: `--batch-size 16`, `--pad-to-fixed-length`,
/// `--disable-native-loading`, other systems' spellings included.
class ConfigFlags {
 public:
  /// `own`: keys whose flag the command defines itself. `trainer`: the trainer's keys have flags too.
  explicit ConfigFlags(const Command& command, const std::vector<std::string>& own = {},
                       bool trainer = false);

  /// File and flags together. Notes (other spellings, retired keys) go to stderr.
  /// With --print-config it prints the settings and returns false: there is nothing more to do.
  bool load(Config& config) const;
  /// File and flags, collected: for who asks which keys they set.
  [[nodiscard]] ConfigLoader collect() const;
  /// A setting that a flag of the command's own stands for (`--mode cached`).
  void set(const std::string& key, const std::string& value, const std::string& origin);
  /// The same, where neither the file nor a flag says anything.
  void set_default(const std::string& key, const std::string& value, const std::string& origin);

 private:
  struct Flag {
    std::string key, value, origin;
    Option option;
  };
  void add(const Command& command, const std::string& key, bool boolean, const std::string& help,
           const std::string& group);

  std::string folder_, file_;
  bool print_ = false, trainer_ = false;
  std::vector<Flag> defaults_;
  std::list<Flag> flags_;  // a list: CLI11 keeps references to the values
};

/// What --mode calls it: live, cached or auto.
std::string_view mode_name(PreprocessingMode mode);

}  // namespace penstock::cli
