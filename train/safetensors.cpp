#include "train/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <system_error>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"

namespace penstock::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

struct NamedType {
  const char* name;
  torch::ScalarType scalar;
};
constexpr std::array types{NamedType{"F64", torch::kFloat64}, NamedType{"F32", torch::kFloat32},
                           NamedType{"F16", torch::kFloat16}, NamedType{"BF16", torch::kBFloat16},
                           NamedType{"I64", torch::kInt64},   NamedType{"I32", torch::kInt32},
                           NamedType{"U8", torch::kUInt8},    NamedType{"BOOL", torch::kBool}};
constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t length_bytes = 8;
/// What other readers of the format accept. A longer one is not a header.
constexpr std::uint64_t longest_header = 100'000'000;

std::size_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

std::string padded_header(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* type = std::ranges::find(types, tensor.scalar_type(), &NamedType::scalar);
    if (type == types.end())
      throw Error(
          fmt::format("{}: has a type that cannot be stored: {}", name, c10::toString(tensor.scalar_type())));
    if (name == metadata_key || header.contains(name))
      throw Error(fmt::format("{}: a tensor's name must be new, but is there already", name));
    header[name] = {{"dtype", type->name},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes_of(tensor)}}};
    offset += bytes_of(tensor);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw Error("names and metadata must be UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void write_all(int fd, const void* data, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, static_cast<const char*>(data) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(fmt::format("cannot be written: {}", std::strerror(errno)));
    done += static_cast<std::size_t>(n);
  }
}

struct Entry {
  std::string name;
  torch::ScalarType type = torch::kFloat32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// The bytes of these elements. Sizes of 0 count as 1 in the check, since strides are made of all the others.
std::uint64_t checked_bytes(const Entry& e) {
  std::int64_t most = static_cast<std::int64_t>(c10::elementSize(e.type));
  for (const std::int64_t n : e.shape)
    if (__builtin_mul_overflow(most, std::max<std::int64_t>(n, 1), &most))
      throw Error(fmt::format("{}: the shape is too large", e.name));
  return std::ranges::find(e.shape, 0) != e.shape.end() ? 0 : static_cast<std::uint64_t>(most);
}

Entry read_entry(const std::string& name, const json& value) {
  const auto expect = [&](bool good, const char* what) {
    if (!good) throw Error(fmt::format("{}: {}, but the header has {}", name, what, value.dump()));
  };
  expect(value.is_object() && value.contains("dtype") && value.contains("shape") &&
             value.contains("data_offsets"),
         "there must be dtype, shape and data_offsets");
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  const auto whole = [](const json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() < 1ULL << 62;
  };
  expect(dtype.is_string(), "dtype must be a text");
  const auto* type = std::ranges::find(types, dtype.get<std::string>(), &NamedType::name);
  expect(type != types.end(), "dtype must be one of F64, F32, F16, BF16, I64, I32, U8, BOOL");
  expect(shape.is_array() && std::ranges::all_of(shape, whole), "shape must be a list of sizes");
  expect(offsets.is_array() && offsets.size() == 2 && std::ranges::all_of(offsets, whole),
         "data_offsets must be two numbers");
  Entry e{name, type->scalar, shape.get<std::vector<std::int64_t>>(), offsets[0], offsets[1]};
  expect(e.begin <= e.end && e.end - e.begin == checked_bytes(e), "data_offsets must fit dtype and shape");
  return e;
}

json parse_header(const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const auto seen = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  json header;
  try {
    header = json::parse(text, seen);
  } catch (const json::exception&) {
    throw Error("the header must be JSON, but is not");
  }
  if (!header.is_object()) throw Error("the header must be a JSON object, but is not");
  if (!twice.empty()) throw Error(fmt::format("{}: is in the header twice", twice));
  return header;
}

std::map<std::string, std::string> read_metadata(const json& header) {
  const auto found = header.find(metadata_key);
  if (found == header.end()) return {};
  const auto text = [](const json& value) { return value.is_string(); };
  if (!found->is_object() || !std::ranges::all_of(*found, text))
    throw Error("__metadata__ must hold texts by name, but does not");
  return found->get<std::map<std::string, std::string>>();
}

/// In the order of their data, which they must cover without a gap.
std::vector<Entry> read_entries(const json& header, std::uint64_t data_bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items())
    if (name != metadata_key) entries.push_back(read_entry(name, value));
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin != at)
      throw Error(fmt::format("{}: its data must start at {}, but the header has {}", e.name, at, e.begin));
    at = e.end;
  }
  if (at != data_bytes)
    throw Error(fmt::format("there must be {} bytes of data, but there are {}", at, data_bytes));
  return entries;
}

void read_exactly(const File& file, std::uint64_t offset, void* into, std::size_t size) {
  const std::span bytes(static_cast<std::byte*>(into), size);
  if (file.read_at(static_cast<std::int64_t>(offset), bytes) != size) throw Error("ends too early");
}

SafeTensors load(const File& file) {
  const auto size = static_cast<std::uint64_t>(file.stamp().size);
  if (size < length_bytes)
    throw Error(fmt::format("there must be 8 bytes of header length, but there are {}", size));
  std::uint64_t length = 0;
  read_exactly(file, 0, &length, length_bytes);
  const std::uint64_t room = std::min(longest_header, size - length_bytes);
  if (length > room) throw Error(fmt::format("the header must fit {} bytes, but has {}", room, length));
  std::string text(length, '\0');
  read_exactly(file, length_bytes, text.data(), text.size());

  const json header = parse_header(text);
  const std::uint64_t data = length_bytes + length;
  SafeTensors result{.metadata = read_metadata(header)};
  for (const Entry& e : read_entries(header, size - data)) {
    torch::Tensor tensor = torch::empty(e.shape, e.type);
    read_exactly(file, data + e.begin, tensor.data_ptr(), e.end - e.begin);
    // Any other byte would be a bool that is neither.
    if (e.type == torch::kBool) {
      const std::span bytes(static_cast<const unsigned char*>(tensor.data_ptr()), e.end - e.begin);
      if (std::ranges::any_of(bytes, [](unsigned char b) { return b > 1; }))
        throw Error(fmt::format("{}: a BOOL must be 0 or 1, but one is not", e.name));
    }
    result.tensors.emplace_back(e.name, tensor);
  }
  return result;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  File file;
  try {
    NamedTensors sorted = tensors;
    std::ranges::stable_sort(sorted, std::greater(), [](const auto& t) { return t.second.element_size(); });
    const std::string header = padded_header(sorted, metadata);
    file = File(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.fd() < 0) throw Error(fmt::format("cannot be created: {}", std::strerror(errno)));
    const std::uint64_t length = header.size();
    write_all(file.fd(), &length, length_bytes);
    write_all(file.fd(), header.data(), header.size());
    for (const auto& [name, tensor] : sorted) {
      const torch::Tensor here = tensor.detach().to(torch::kCPU).contiguous();
      write_all(file.fd(), here.data_ptr(), bytes_of(here));
    }
    if (::fsync(file.fd()) != 0) throw Error(fmt::format("cannot be written: {}", std::strerror(errno)));
  } catch (const Error& e) {
    if (file.fd() >= 0) ::unlink(path.c_str());
    throw Error(fmt::format("{}: {}", path.string(), e.what()));
  }
}

SafeTensors load_safetensors(const std::filesystem::path& path) {
  try {
    return load(File::open(path.c_str()));
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be read: {}", path.string(), e.code().message()));
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", path.string(), e.what()));
  }
}

void assign(const NamedTensors& to, const NamedTensors& from, const std::string& what) {
  std::unordered_map<std::string, torch::Tensor> left(from.begin(), from.end());
  const auto describe = [](const torch::Tensor& t) {
    return fmt::format("{} [{}]", c10::toString(t.scalar_type()), fmt::join(t.sizes().vec(), ", "));
  };
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;
  for (const auto& [name, tensor] : to) {
    const auto found = left.find(name);
    if (found == left.end()) throw Error(fmt::format("{}: {} is missing", what, name));
    if (tensor.scalar_type() != found->second.scalar_type() || tensor.sizes() != found->second.sizes())
      throw Error(
          fmt::format("{}: {} must be {}, but is {}", what, name, describe(tensor), describe(found->second)));
    copies.emplace_back(tensor, found->second);
    left.erase(found);
  }
  for (const auto& [name, tensor] : from)
    if (left.contains(name)) throw Error(fmt::format("{}: {} belongs to nothing here", what, name));
  const torch::NoGradGuard no_grad;
  for (auto& [target, source] : copies) target.copy_(source);
}

}  // namespace penstock::train
