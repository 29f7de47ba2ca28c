#include "penstock/cache/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are read as they are in the file");

struct TypeName {
  std::string_view descr, name;
  std::size_t bytes;
};
/// In the order of NpyType.
constexpr std::array<TypeName, 5> types{{{"<f2", "float16", 2},
                                         {"<f4", "float32", 4},
                                         {"<f8", "float64", 8},
                                         {"<i4", "int32", 4},
                                         {"<i8", "int64", 8}}};

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::int64_t longest_dimension = std::numeric_limits<std::int32_t>::max();

const TypeName& of(NpyType type) { return types[static_cast<std::size_t>(type)]; }

/// Bytes of a file that may be anything, fit for a message.
std::string printable(std::string_view text) {
  constexpr std::size_t most = 40;
  std::string result(text.substr(0, most));
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > most ? result + "..." : result;
}

/// What to do about an array of another type: the nearest one that we read.
std::string advice(std::string_view descr) {
  const std::string_view kind = descr.substr(std::min(descr.find_first_not_of("<>=|"), descr.size()));
  std::string wanted = fmt::format("<{}", kind);
  if (std::ranges::find(types, wanted, &TypeName::descr) == types.end())
    wanted = !kind.empty() && std::string_view("iub").find(kind[0]) != std::string_view::npos ? "<i4" : "<f4";
  return fmt::format("np.save(path, array.astype('{}'))", wanted);
}

NpyType parse_type(std::string_view descr) {
  const auto* const type = std::ranges::find(types, descr, &TypeName::descr);
  if (type != types.end()) return static_cast<NpyType>(type - types.begin());
  if (descr == "|O" || descr == "O")
    throw Error("holds Python objects; write numbers: np.save(path, np.asarray(array, '<f4'))");
  throw Error(fmt::format("is of type {}, but must be <f2, <f4, <f8, <i4 or <i8; write it as {}",
                          printable(descr), advice(descr)));
}

/// A Python literal, read from left to right: as much of the language as a .npy header may use.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool take(std::string_view token) {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos)
      ++at_;
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }

  void expect_end() {
    if (take(""); at_ < text_.size()) fail("its end");
  }

  /// Calls item() for every item up to `close`, commas between them and perhaps behind the last: whether
  /// there was one behind it (also true without any item).
  template <typename Item>
  bool items(std::string_view close, const Item& item) {
    bool comma = true;
    while (!take(close)) {
      if (!comma) fail(fmt::format("',' or '{}'", close));
      item();
      comma = take(",");
    }
    return comma;
  }

  /// As it is written: one with an escape in it is no name that we know, whatever it means.
  std::string_view string() {
    take("u");  // Python 2
    if (!take("'") && !take("\"")) fail("a string");
    const char quote = text_[at_ - 1];
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size()) throw Error("has a damaged header: a string does not end; write the file again");
    return text_.substr(begin, at_++ - begin);
  }

  bool boolean() {
    if (take("True")) return true;
    expect("False");
    return false;
  }

  std::int64_t dimension() {
    if (take("-")) throw Error("has a negative dimension; write the file again");
    take("");
    std::int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (problem == std::errc::invalid_argument) fail("a dimension");
    if (*begin == '0' && end - begin > 1) fail("a dimension without zeros in front");
    at_ += static_cast<std::size_t>(end - begin);
    if (problem == std::errc::result_out_of_range || value > longest_dimension)
      throw Error(fmt::format("has a dimension of {}, but {} is the most; write the file again",
                              printable({begin, end}), longest_dimension));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw Error(
        fmt::format("has a damaged header: expected {} at its byte {}, but found {}; write the file again",
                    expected, at_, at_ < text_.size() ? printable(text_.substr(at_, 12)) : "its end"));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// The values of a header's three keys.
struct Fields {
  std::optional<NpyType> type;
  std::optional<bool> fortran;
  std::optional<std::vector<std::int64_t>> shape;
};

std::vector<std::int64_t> parse_shape(Literal& in) {
  std::vector<std::int64_t> shape;
  in.expect("(");
  const bool comma = in.items(")", [&] { shape.push_back(in.dimension()); });
  if (shape.size() == 1 && !comma)
    throw Error("has a damaged header: its shape is a number in brackets; write the file again");
  return shape;
}

Fields parse_fields(std::string_view text) {
  Literal in(text);
  Fields fields;
  in.expect("{");
  in.items("}", [&] {
    const std::string_view key = in.string();
    in.expect(":");
    if (key == "descr") {
      if (in.take("[") || in.take("("))
        throw Error(
            "has a structured type; write one plain array: np.save(path, array['name'].astype('<f4'))");
      fields.type = parse_type(in.string());
    } else if (key == "fortran_order") {
      fields.fortran = in.boolean();
    } else if (key == "shape") {
      fields.shape = parse_shape(in);
    } else {
      throw Error(
          fmt::format("has a damaged header: unknown key '{}'; write the file again", printable(key)));
    }
  });
  in.expect_end();
  if (!fields.type || !fields.fortran || !fields.shape)
    throw Error(
        "has a damaged header: expected the keys descr, fortran_order and shape, but one is missing; "
        "write the file again");
  return fields;
}

/// Refuses what would not fit into 63 bits behind the header: nothing later needs to think of overflow.
void check_size(const NpyHeader& header) {
  std::int64_t end = 0;
  if (__builtin_mul_overflow(header.shape[0], header.shape[1], &end) ||
      __builtin_mul_overflow(end, static_cast<std::int64_t>(npy_type_bytes(header.type)), &end) ||
      __builtin_add_overflow(end, header.data_offset, &end))
    throw Error(fmt::format("has a shape of ({}, {}), which no file can hold; write the file again",
                            header.shape[0], header.shape[1]));
}

}  // namespace

std::string_view npy_type_name(NpyType type) { return of(type).name; }
std::size_t npy_type_bytes(NpyType type) { return of(type).bytes; }

std::size_t NpyHeader::data_bytes() const {
  return static_cast<std::size_t>(shape[0] * shape[1]) * npy_type_bytes(type);
}

std::size_t npy_data_offset(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(magic)) throw Error("is not a .npy file; write it with np.save(path, array)");
  const std::size_t version_end = magic.size() + 2;
  if (head.size() < version_end + 2) throw Error("ends within its header; write the file again");
  const int major = std::to_integer<int>(head[magic.size()]),
            minor = std::to_integer<int>(head[magic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0)
    throw Error(fmt::format(
        "is of .npy version {}.{}, but must be 1.0, 2.0 or 3.0; write it with np.save(path, array)", major,
        minor));
  const std::size_t begin = version_end + (major == 1 ? 2 : 4);
  if (head.size() < begin) throw Error("ends within its header; write the file again");
  std::uint32_t length = 0;
  std::memcpy(&length, head.data() + version_end, begin - version_end);
  if (begin + length > npy_header_most)
    throw Error(fmt::format("has a header of {} bytes, but {} are the most; write the file again",
                            begin + length, npy_header_most));
  return begin + length;
}

NpyHeader parse_npy_header(std::span<const std::byte> head) {
  const std::size_t offset = npy_data_offset(head);
  if (head.size() < offset)
    throw Error(
        fmt::format("ends within its header: expected {} bytes of it, but found {}; write the file again",
                    offset, head.size()));
  const std::size_t begin = magic.size() + (head[magic.size()] == std::byte{1} ? 4 : 6);
  const Fields fields = parse_fields({reinterpret_cast<const char*>(head.data()) + begin, offset - begin});
  const std::vector<std::int64_t>& shape = *fields.shape;
  if (shape.empty() || shape.size() > 2)
    throw Error(fmt::format(
        "has {} dimensions, but must have 1 or 2; write it with np.save(path, array.reshape(...))",
        shape.size()));
  const NpyHeader header{.type = *fields.type,
                         .fortran = *fields.fortran,
                         .dimensions = static_cast<std::int32_t>(shape.size()),
                         .shape = {shape[0], shape.size() == 2 ? shape[1] : 1},
                         .data_offset = static_cast<std::int64_t>(offset)};
  check_size(header);
  return header;
}

std::string npy_header(NpyType type, std::span<const std::int64_t> shape) {
  if (shape.empty() || shape.size() > 2 || std::ranges::any_of(shape, [](auto n) { return n < 0; }))
    throw Error("expected a shape of one or two dimensions, none of them negative");
  constexpr std::size_t alignment = 64, preamble = magic.size() + 4;
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},{}), }}", of(type).descr, shape[0],
                  shape.size() == 2 ? fmt::format(" {}", shape[1]) : "");
  header.append(alignment - (preamble + header.size() + 1) % alignment, ' ');
  header += '\n';
  const std::size_t length = header.size();
  return fmt::format("{}\x01{}{}{}{}", magic, '\0', static_cast<char>(length % 256),
                     static_cast<char>(length / 256), header);
}

void write_npy(const std::filesystem::path& path, NpyType type, std::span<const std::int64_t> shape,
               std::span<const std::byte> data) {
  std::string header;
  std::size_t expected = 0;
  try {
    header = npy_header(type, shape);
    expected = parse_npy_header(std::as_bytes(std::span(header))).data_bytes();
  } catch (const Error& e) {
    throw Error(fmt::format("{}: cannot be written: {}", path.string(), e.what()));
  }
  if (data.size() != expected)
    throw Error(fmt::format("{}: cannot be written: expected {} bytes of data for its shape, but found {}",
                            path.string(), expected, data.size()));
  std::error_code failure;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failure);
  if (failure)
    throw Error(fmt::format("{}: its folder cannot be made: {}", path.string(), failure.message()));
  std::vector<std::byte> bytes(header.size() + data.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  if (!data.empty()) std::memcpy(bytes.data() + header.size(), data.data(), data.size());
  write_file(path, bytes);
}

}  // namespace penstock
