#include "penstock/device/host.h"

#include <mutex>
#include <utility>

namespace penstock {
namespace {

struct HeldOnHost final : DeviceBatch::Held {
  explicit HeldOnHost(const Batch& batch) { device = host = batch; }
  void use_on(StreamHandle /*stream*/) override {}
  void wait() override {}
};

class HostStage final : public DeviceStage {
 public:
  explicit HostStage(BatchSource source) : source_(std::move(source)) {}

  DeviceBatch next(const Poll& poll) override {
    DeviceBatch batch(std::make_shared<HeldOnHost>(source_(poll)));
    const std::lock_guard lock(mutex_);
    ++stats_.batches;
    return batch;
  }

  [[nodiscard]] DeviceStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  BatchSource source_;
  mutable std::mutex mutex_;
  DeviceStats stats_;
};

class Host final : public Device {
 public:
  [[nodiscard]] DeviceInfo info() const override { return {.name = "host"}; }
  std::shared_ptr<BatchMemory> batch_memory() override { return heap_memory(); }
  DeviceBatch copy(const Batch& batch) override { return DeviceBatch(std::make_shared<HeldOnHost>(batch)); }
  std::unique_ptr<DeviceStage> stage(BatchSource source, const StageOptions& /*options*/) override {
    return std::make_unique<HostStage>(std::move(source));
  }
};

}  // namespace

std::shared_ptr<Device> host_device() { return std::make_shared<Host>(); }

}  // namespace penstock
