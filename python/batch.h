// A batch as Python sees it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/device/device.h"
#include "python/module.h"

namespace penstock::python {

/// Its arrays are views of the slot, which is used again when the last of them is gone.
class BatchView {
 public:
  /// `device_id` of an accelerator; -1: the arrays are in ordinary memory.
  BatchView(DeviceBatch batch, std::vector<std::string> ids, bool bins_first, int device_id)
      : batch_(std::make_unique<DeviceBatch>(std::move(batch))),
        ids_(std::move(ids)),
        bins_first_(bins_first),
        device_id_(device_id) {}
  BatchView(BatchView&&) noexcept = default;
  BatchView& operator=(BatchView&&) = delete;
  ~BatchView();

  /// What can be read of it; a child of a fork may, too.
  [[nodiscard]] const DeviceBatch& batch() const { return batch_.look(); }
  /// For what the device has to do.
  [[nodiscard]] const DeviceBatch& live() const { return batch_.get(); }
  [[nodiscard]] const std::vector<std::string>& ids() const { return ids_; }
  [[nodiscard]] bool bins_first() const { return bins_first_; }
  [[nodiscard]] bool on_host() const { return device_id_ < 0; }
  [[nodiscard]] int device_id() const { return device_id_; }
  [[nodiscard]] bool writable() const { return writable_; }
  /// From here on arrays may be written to, and are taken to have been.
  void allow_writing() { writable_ = true; }
  /// What is lent has been written to when this object's `_version` is another at the end: torch counts
  /// writes.
  void watch(nb::object counter);

 private:
  [[nodiscard]] bool may_be_written() const;

  OfThisProcess<DeviceBatch> batch_;
  bool writable_ = false;
  std::vector<nb::object> watched_;
  std::vector<std::int64_t> versions_;
  std::vector<std::string> ids_;
  bool bins_first_;
  int device_id_;
};

}  // namespace penstock::python
