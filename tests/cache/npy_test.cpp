#include "penstock/cache/npy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "tests/long_run.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Folder : public TempFolder {
 public:
  void write(const fs::path& name, std::string_view bytes) const {
    fs::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << bytes;
  }
};

/// A file's bytes up to the data: this version, this header.
std::string head(std::string_view literal, int version = 1) {
  std::string result = "\x93NUMPY";
  result += static_cast<char>(version);
  result += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    result += static_cast<char>(literal.size() >> (8 * i) & 255);
  return result.append(literal);
}

/// Parses from memory of exactly this size, so that a sanitizer sees one byte too many.
NpyHeader parse(std::string_view bytes) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  return parse_npy_header({exact.get(), bytes.size()});
}

NpyHeader parse_literal(std::string_view literal) { return parse(head(literal)); }

std::string literal(std::string_view descr, std::string_view shape) {
  return fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': {}, }}", descr, shape);
}

/// What a function throws as Error; "" when it does not throw.
template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

std::string problem_of(std::string_view text) {
  return error_of([&] { parse_literal(text); });
}

/// [3, 4] float32: a header of 128 bytes and 48 of data.
std::string small_file() {
  const std::array<std::int64_t, 2> shape{3, 4};
  std::string file = npy_header(NpyType::float32, shape);
  for (int i = 0; i < 48; ++i) file += static_cast<char>(i);
  return file;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Ids = std::vector<std::string_view>;

TEST(NpyHeader, WhatIsWrittenIsWhatNumPyWrites) {
  const std::array<std::int64_t, 2> shape{3, 4};
  const std::string expected =
      std::string("\x93NUMPY\x01\0v\0", 10) + "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  const std::string header = npy_header(NpyType::float32, shape);
  EXPECT_EQ(header.size(), 128);
  EXPECT_EQ(header.substr(0, expected.size()), expected);
  EXPECT_EQ(header.substr(expected.size()), std::string(127 - expected.size(), ' ') + "\n");
}

TEST(NpyHeader, EveryTypeAndShapeComesBack) {
  for (const NpyType type :
       {NpyType::float16, NpyType::float32, NpyType::float64, NpyType::int32, NpyType::int64})
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{7}, {0}, {0, 80}, {812, 80}, {2147483647, 2}, {1, 0}}) {
      const std::string bytes = npy_header(type, shape);
      const NpyHeader header = parse(bytes);
      EXPECT_EQ(header.type, type);
      EXPECT_FALSE(header.fortran);
      EXPECT_EQ(header.dimensions, shape.size());
      EXPECT_EQ(header.shape[0], shape[0]);
      EXPECT_EQ(header.shape[1], shape.size() == 2 ? shape[1] : 1);
      EXPECT_EQ(header.data_offset, bytes.size());
      EXPECT_EQ(bytes.size() % 64, 0);
      EXPECT_EQ(header.data_bytes(), header.shape[0] * header.shape[1] * npy_type_bytes(type));
    }
}

TEST(NpyHeader, AShapeThatIsNotOneOrTwoDimensionsIsNotWritten) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1, 2, 3}, {-1}, {3, -1}})
    EXPECT_THAT(error_of([&] { npy_header(NpyType::float32, shape); }), HasSubstr("one or two dimensions"));
}

TEST(NpyHeader, AnyWayToWriteTheLiteralIsRead) {
  for (const std::string_view text :
       {"{'descr': '<f2', 'fortran_order': True, 'shape': (3, 4), }",
        "{'shape': (3, 4), 'fortran_order': True, 'descr': '<f2'}",
        "{\"fortran_order\":True,\"shape\":(3,4,),\"descr\":\"<f2\",}   \n",
        " \t{ 'descr' : '<f2' ,\n'fortran_order'\n: True ,\r\n'shape' : ( 3 , 4 ) , } \f\n",
        "{'descr': u'<f2', u'fortran_order': True, 'shape': (3L, 4L), }",
        "{'shape': (9,), 'shape': (3, 4), 'descr': '<f2', 'fortran_order': True}"}) {  // as Python: the last
                                                                                       // one
    SCOPED_TRACE(text);
    const NpyHeader header = parse_literal(text);
    EXPECT_EQ(header.type, NpyType::float16);
    EXPECT_TRUE(header.fortran);
    EXPECT_EQ(header.dimensions, 2);
    EXPECT_THAT(header.shape, ElementsAre(3, 4));
    EXPECT_EQ(header.data_offset, 10 + text.size());
  }
}

TEST(NpyHeader, VersionsDifferInTheLengthField) {
  const std::string long_one = literal("'<i8'", "(5,)") + std::string(60'000, ' ') + "\n";
  for (const int version : {1, 2, 3}) {
    const NpyHeader header = parse(head(long_one, version));
    EXPECT_EQ(header.data_offset, (version == 1 ? 10 : 12) + long_one.size());
    EXPECT_EQ(header.type, NpyType::int64);
    EXPECT_EQ(header.dimensions, 1);
    EXPECT_THAT(header.shape, ElementsAre(5, 1));
  }
  for (const int version : {0, 4, 255})
    EXPECT_THAT(error_of([&] { parse(head(long_one, version)); }),
                AllOf(HasSubstr(fmt::format("is of .npy version {}.0", version)), HasSubstr("np.save")));
}

TEST(NpyHeader, AHeaderLongerThanTheMostIsRefusedBeforeAnyoneReadsIt) {
  std::string bytes = head("", 2);
  const std::uint32_t length = 0xFFFFFFFF;
  std::memcpy(bytes.data() + 8, &length, 4);
  EXPECT_THAT(error_of([&] { parse(bytes); }),
              HasSubstr("has a header of 4294967307 bytes, but 65536 are the most"));
}

TEST(NpyHeader, OtherTypesAreRefusedWithWhatToDo) {
  const std::vector<std::array<std::string_view, 2>> refused{
      {"'>f4'",
       "is of type >f4, but must be <f2, <f4, <f8, <i4 or <i8; write it as np.save(path, "
       "array.astype('<f4'))"},
      {"'>i8'", "array.astype('<i8')"},
      {"'=f4'", "is of type =f4"},
      {"'f4'", "is of type f4"},
      {"'|f4'", "is of type |f4"},
      {"'|u1'", "array.astype('<i4')"},
      {"'<u4'", "array.astype('<i4')"},
      {"'|b1'", "is of type |b1"},
      {"'<c8'", "array.astype('<f4')"},
      {"'<U12'", "is of type <U12"},
      {"''", "is of type ,"},
      {"'<'", "is of type <,"},
      {"'\\x3cf4'", "is of type \\x3cf4"},
      {"'|O'", "holds Python objects"},
      {"'O'", "holds Python objects"},
      {"[('a', '<f4'), ('b', '<f4')]", "has a structured type"},
      {"('<f4', (3,))", "has a structured type"},
      {"b'<f4'", "expected a string"},
      {"None", "expected a string"}};
  for (const auto& [descr, problem] : refused)
    EXPECT_THAT(problem_of(literal(descr, "(3, 4)")), HasSubstr(std::string(problem))) << descr;
}

TEST(NpyHeader, UnprintableBytesDoNotReachAMessage) {
  EXPECT_THAT(problem_of(literal("'\x1b[31m\xff" + std::string(500, 'x') + "'", "(3,)")),
              AllOf(HasSubstr("is of type ?[31m?xxx"), Not(HasSubstr(std::string(50, 'x')))));
}

TEST(NpyHeader, OtherShapesAreRefusedByName) {
  const std::vector<std::array<std::string_view, 2>> refused{
      {"()", "has 0 dimensions, but must have 1 or 2"},
      {"(1, 2, 3)", "has 3 dimensions"},
      {"(-1, 2)", "has a negative dimension"},
      {"(5)", "a number in brackets"},
      {"5", "expected '('"},
      {"[3, 4]", "expected '('"},
      {"(3 4)", "expected ',' or ')'"},
      {"(,)", "expected a dimension"},
      {"(3, , 4)", "expected a dimension"},
      {"(03, 4)", "without zeros in front"},
      {"(3.0, 4)", "expected ',' or ')'"},
      {"(True, 4)", "expected a dimension"},
      {"(2147483648,)", "has a dimension of 2147483648, but 2147483647 is the most"},
      {"(9223372036854775807, 2)", "is the most"},
      {"(99999999999999999999999999, 2)", "is the most"},
      {"(0, 4294967296)", "is the most"},
      {"(2147483647, 2147483647)", "has a shape of (2147483647, 2147483647), which no file can hold"}};
  for (const auto& [shape, problem] : refused)
    EXPECT_THAT(problem_of(literal("'<f8'", shape)), HasSubstr(std::string(problem))) << shape;
}

TEST(NpyHeader, ADamagedLiteralIsRefusedWithThePlace) {
  const std::vector<std::array<std::string_view, 2>> refused{
      {"", "expected '{' at its byte 0, but found its end"},
      {"{}", "expected the keys descr, fortran_order and shape"},
      {"{,}", "expected a string"},
      {"{'descr': '<f4', 'shape': (3,)}", "but one is missing"},
      {"{'descr' '<f4'}", "expected ':' at its byte 9, but found '<f4'}"},
      {"{'descr': '<f4' 'fortran_order': True}", "expected ',' or '}'"},
      {"{'descr': '<f4", "a string does not end"},
      {"{'descr': '<f4\\", "a string does not end"},
      {"{'descr': '<f4\\'", "a string does not end"},
      {"{'fortran_order': true}", "expected 'False'"},
      {"{'fortran_order': 1}", "expected 'False'"},
      {"{'fortran_order': Falsehood}", "expected ',' or '}'"},
      {"{'colour': 3}", "unknown key 'colour'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,", "expected a dimension"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3", "expected ',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x", "expected its end"}};
  for (const auto& [text, problem] : refused)
    EXPECT_THAT(problem_of(text), AllOf(HasSubstr(std::string(problem)), HasSubstr("damaged header")))
        << text;
}

TEST(NpyHeader, AnotherKindOfFileIsNamedAsSuch) {
  for (const std::string_view bytes : {"", "RIFF....WAVE", "PK\3\4", "\x93NUMP", "\x93NUMPX\1"})
    EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("is not a .npy file"));
}

TEST(NpyHeader, AHeaderCutAnywhereIsAnError) {
  for (const int version : {1, 2, 3}) {
    const std::string whole = head(literal("'<f4'", "(3, 4)") + std::string(30, ' ') + "\n", version);
    for (std::size_t n = 0; n < whole.size(); ++n)
      EXPECT_NE(error_of([&] { parse(whole.substr(0, n)); }), "") << version << ' ' << n;
    EXPECT_EQ(error_of([&] { parse(whole); }), "");
  }
}

TEST(NpyHeader, RandomBytesAreAnErrorOrAHeaderThatAddsUp) {
  const std::vector<std::string_view> words{"{",
                                            "}",
                                            "(",
                                            ")",
                                            ",",
                                            ":",
                                            "'",
                                            "\"",
                                            " ",
                                            "\n",
                                            "'descr'",
                                            "'shape'",
                                            "'fortran_order'",
                                            "True",
                                            "False",
                                            "'<f4'",
                                            "'<i8'",
                                            "'|O'",
                                            "[",
                                            "-",
                                            "L",
                                            "0",
                                            "3",
                                            "4",
                                            "80",
                                            "9223372036854775807",
                                            "u",
                                            "\\",
                                            "None",
                                            "(3, 4)",
                                            "(5,)",
                                            "'descr': '<f4',",
                                            "'fortran_order': False,",
                                            "'shape': (3, 4),",
                                            "'shape': ("};
  std::uint64_t seed = 1;
  int good = 0;
  for (int round = 0; round < cases(2'000, 200'000); ++round) {
    std::string text = "{";
    const std::uint64_t parts = mix(++seed) % 12;
    for (std::uint64_t i = 0; i < parts; ++i) {
      const std::uint64_t word = mix(++seed);
      // Half of the cases are words of the language, so that they come far; the others are bytes.
      if (round % 2 == 0)
        text += round % 4 == 0 ? words[words.size() - 1 - word % 4] : words[word % words.size()];
      else
        text += static_cast<char>(word);
    }
    if (round % 4 == 0) text += '}';
    try {
      const NpyHeader header = parse(head(text, 1 + static_cast<int>(mix(++seed) % 3)));
      EXPECT_TRUE(header.dimensions == 1 || header.dimensions == 2);
      EXPECT_GE(header.shape[0], 0);
      EXPECT_GE(header.shape[1], 0);
      ++good;
    } catch (const Error& e) {
      EXPECT_STRNE(e.what(), "");
    }
  }
  EXPECT_GT(good, 0);
}

TEST(NpyTree, ReadsWhatIsThereAndSkipsWhatIsMissing) {
  const Folder folder;
  const std::string file = small_file();
  folder.write("a.npy", file);
  folder.write("speaker 1/سلام.npy", file);
  folder.write("x.npy", "");
  const std::string long_name(5000, 'n');
  const Ids ids{"a",      "b", "speaker 1/سلام", "a.npy/c", "nowhere/a", std::string_view("ab").substr(0, 1),
                long_name};
  const NpyTree tree(folder.path(), ids, 2);
  ASSERT_FALSE(tree.empty());
  ASSERT_EQ(tree.items().size(), ids.size());
  Scratch<std::byte> scratch;
  for (const std::size_t i : {0, 2, 5}) {
    EXPECT_TRUE(tree.item(i).there);
    EXPECT_EQ(tree.item(i).problem, "");
    EXPECT_EQ(tree.item(i).stamp.size, file.size());
    EXPECT_EQ(text_of(tree.read(i, ids[i], scratch)), file.substr(128));
    std::array<std::byte, 48> row{};
    tree.read(i, ids[i], row);
    EXPECT_EQ(text_of(row), file.substr(128));
  }
  for (const std::size_t i : {1, 3, 4, 6}) {
    EXPECT_FALSE(tree.item(i).there);
    EXPECT_EQ(tree.item(i).problem, "");
    EXPECT_THAT(
        error_of([&] { (void)tree.read(i, ids[i], scratch); }),
        AllOf(HasSubstr("cache: " + tree.path(ids[i]) + ": was not there"), HasSubstr("start again")));
  }
  EXPECT_EQ(tree.path("a"), folder.path().string() + "/a.npy");
}

TEST(NpyTree, TheItemsAreTheSameForAnyNumberOfThreads) {
  const Folder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 500; ++i) {
    const std::array<std::int64_t, 1> shape{i % 7};
    names.push_back(std::to_string(i));
    if (i % 3 != 0)
      folder.write(names.back() + ".npy",
                   npy_header(NpyType::int32, shape) + std::string(static_cast<std::size_t>(i % 7) * 4, 'x'));
  }
  const Ids ids(names.begin(), names.end());
  for (const int threads : {0, 1, 2, 9}) {
    const NpyTree tree(folder.path(), ids, threads);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tree.item(i).there, i % 3 != 0);
      EXPECT_EQ(tree.item(i).problem, "");
      EXPECT_EQ(tree.item(i).header.shape[0], i % 3 != 0 ? i % 7 : 0);
    }
  }
}

TEST(NpyTree, AFolderThatIsMissingIsAnErrorByName) {
  const Folder folder;
  const fs::path missing = folder / "mels";
  EXPECT_THAT(error_of([&] { NpyTree(missing, {}, 1); }), HasSubstr(missing.string()));
  folder.write("file", "");
  EXPECT_THAT(error_of([&] { NpyTree(folder / "file", {}, 1); }), HasSubstr("folder"));
}

TEST(NpyTree, AnIdNeverLeavesTheFolder) {
  const Folder folder;
  folder.write("secret.npy", small_file());
  folder.write("mels/a..b.npy", small_file());
  const std::string absolute = (folder / "secret").string();
  const Ids ids{"../secret", absolute, "x/../../secret", "", "..", "x/..", std::string_view("a\0b", 3),
                "a..b"};
  const NpyTree tree(folder / "mels", ids, 1);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    EXPECT_THAT(tree.item(i).problem, HasSubstr("leads out of the folder")) << ids[i];
    EXPECT_FALSE(is_npy_id(ids[i]));
  }
  EXPECT_EQ(tree.item(ids.size() - 1).problem, "");
  EXPECT_TRUE(tree.item(ids.size() - 1).there);
}

TEST(NpyTree, AFileCutAtAnyLengthIsAProblemThatNamesBothSizes) {
  const Folder folder;
  const std::string file = small_file();
  std::vector<std::string> names;
  for (std::size_t n = 0; n < file.size(); ++n) {
    names.push_back(std::to_string(n));
    folder.write(names.back() + ".npy", file.substr(0, n));
  }
  const Ids ids(names.begin(), names.end());
  const NpyTree tree(folder.path(), ids, 2);
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_NE(tree.item(n).problem, "") << n;
  EXPECT_EQ(tree.item(0).problem, "is empty; write the file again");
  EXPECT_EQ(tree.item(100).problem,
            "ends within its header: expected 128 bytes of it, but found 100; write the file again");
  EXPECT_EQ(tree.item(150).problem,
            "is cut off: expected 176 bytes as its header promises, but found 150; write the file again");
}

TEST(NpyTree, BytesBehindTheDataAreAProblemThatNamesBothSizes) {
  const Folder folder;
  folder.write("a.npy", small_file() + "x");
  const NpyTree tree(folder.path(), Ids{"a"}, 1);
  EXPECT_THAT(tree.item(0).problem,
              HasSubstr("has something behind its data: expected 176 bytes as its header "
                        "promises, but found 177"));
}

TEST(NpyTree, AFlippedBitOfAHeaderIsAProblemOrChangesNothing) {
  const Folder folder;
  const std::string file = small_file();
  std::vector<std::string> names;
  for (std::size_t bit = 0; bit < 128 * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    names.push_back(std::to_string(bit));
    folder.write(names.back() + ".npy", flipped);
  }
  const Ids ids(names.begin(), names.end());
  const NpyTree tree(folder.path(), ids, 2);
  int harmless = 0;
  for (std::size_t bit = 0; bit < ids.size(); ++bit) {
    const NpyItem& item = tree.item(bit);
    if (!item.problem.empty()) continue;
    ++harmless;
    EXPECT_EQ(item.header.type, NpyType::float32) << "bit " << bit;
    EXPECT_FALSE(item.header.fortran) << "bit " << bit;
    EXPECT_THAT(item.header.shape, ElementsAre(3, 4)) << "bit " << bit;
    EXPECT_EQ(item.header.data_offset, 128) << "bit " << bit;
  }
  EXPECT_LE(harmless, 1);  // the last comma, which becomes a form feed
}

TEST(NpyTree, HeadersOfAnyLengthAreRead) {
  const Folder folder;
  std::vector<std::string> names;
  for (const std::size_t padding : {0, 150, 200, 300, 5000, 65'000}) {
    names.push_back(std::to_string(padding));
    folder.write(names.back() + ".npy",
                 head(literal("'<i4'", "(2,)") + std::string(padding, ' ') + "\n", 2) + "abcdefgh");
  }
  const std::string too_long = head(literal("'<i4'", "(2,)") + std::string(70'000, ' '), 3) + "abcdefgh";
  folder.write("long.npy", too_long);
  Ids ids(names.begin(), names.end());
  ids.emplace_back("long");
  const NpyTree tree(folder.path(), ids, 1);
  Scratch<std::byte> scratch;
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(text_of(tree.read(i, ids[i], scratch)), "abcdefgh") << names[i];
  EXPECT_THAT(tree.items().back().problem, HasSubstr("65536 are the most"));
}

TEST(NpyTree, WhatIsNoRegularFileIsAProblem) {
  const Folder folder;
  fs::create_directory(folder / "folder.npy");
  ASSERT_EQ(::mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  fs::create_symlink("loop.npy", folder / "loop.npy");
  folder.write("forbidden.npy", small_file());
  fs::permissions(folder / "forbidden.npy", fs::perms::none);
  fs::permissions(folder.path(), fs::perms::all);
  const auto user = ::geteuid();
  if (user == 0 && ::seteuid(65534) != 0) FAIL();  // root may read everything
  const Ids ids{"folder", "pipe", "loop", "forbidden"};
  const NpyTree tree(folder.path(), ids, 1);
  ASSERT_EQ(::seteuid(user), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(tree.item(i).there);
    EXPECT_THAT(tree.item(i).problem, HasSubstr("cannot be read: "));
  }
  Scratch<std::byte> scratch;
  try {
    (void)tree.read(3, ids[3], scratch);
    FAIL() << "an item with a problem was read";
  } catch (const SampleError& e) {
    EXPECT_EQ(e.stage, "cache");
    EXPECT_EQ(e.path, tree.path("forbidden"));
    EXPECT_EQ(e.cause, tree.item(3).problem);
  }
}

TEST(NpyTree, AFileThatHasChangedSinceIsASampleError) {
  const Folder folder;
  const std::string file = small_file();
  const Ids ids{"shorter", "longer", "later", "gone", "pipe", "same"};
  for (const std::string_view id : ids) folder.write(std::string(id) + ".npy", file);
  const NpyTree tree(folder.path(), ids, 1);
  folder.write("shorter.npy", file.substr(0, 150));
  folder.write("longer.npy", file + file);
  const fs::path later = folder / "later.npy";
  fs::last_write_time(later, fs::last_write_time(later) + std::chrono::nanoseconds(1000));
  fs::remove(folder / "gone.npy");
  fs::remove(folder / "pipe.npy");
  ASSERT_EQ(::mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  Scratch<std::byte> scratch;
  const auto read_error = [&](std::size_t i) {
    try {
      (void)tree.read(i, ids[i], scratch);
      return std::string();
    } catch (const SampleError& e) {
      EXPECT_EQ(e.stage, "cache");
      EXPECT_EQ(e.path, tree.path(ids[i]));
      return e.cause;
    }
  };
  EXPECT_THAT(read_error(0), AllOf(HasSubstr("it had 176 bytes, now 150"), HasSubstr("start again")));
  EXPECT_THAT(read_error(1), HasSubstr("it had 176 bytes, now 352"));
  EXPECT_THAT(read_error(2), HasSubstr("has changed since the tree was opened"));
  EXPECT_THAT(read_error(3), HasSubstr("cannot be read: No such file or directory"));
  EXPECT_THAT(read_error(4), HasSubstr("cannot be read: "));
  EXPECT_EQ(read_error(5), "");
}

TEST(NpyTree, RoomOfAnotherSizeIsMisuse) {
  const Folder folder;
  folder.write("a.npy", small_file());
  const NpyTree tree(folder.path(), Ids{"a"}, 1);
  std::array<std::byte, 47> row{};
  EXPECT_THAT(error_of([&] { tree.read(0, "a", row); }),
              HasSubstr("expected room for 48 bytes, but found 47"));
}

TEST(NpyTree, NoRowsAreAnArrayToo) {
  const Folder folder;
  const std::array<std::int64_t, 2> shape{0, 80};
  folder.write("a.npy", npy_header(NpyType::float32, shape));
  const NpyTree tree(folder.path(), Ids{"a"}, 1);
  Scratch<std::byte> scratch;
  EXPECT_EQ(tree.item(0).problem, "");
  EXPECT_THAT(tree.read(0, "a", scratch), IsEmpty());
}

TEST(NpyTree, OrphansAreTheFilesOfNoId) {
  const Folder folder;
  for (const char* name : {"b.npy", "a.npy", "s/c.npy", "s/d.npy", "s/t/e.npy", "notes.txt", "f.npy.tmp-abc"})
    folder.write(name, "");
  fs::create_directory(folder / "folder.npy");
  const Ids ids{"a", "./s//c", "missing"};
  const NpyTree tree(folder.path() / "", ids, 1);
  EXPECT_THAT(tree.orphans(ids), ElementsAre("b", "s/d", "s/t/e"));
  EXPECT_THAT(tree.orphans(Ids{"a", "b", "s/c", "s/d", "s/t/e"}), IsEmpty());
}

TEST(NpyTree, AHandleIsOpenOnlyWhileItIsNeeded) {
  const auto open_files = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), {}); };
  const Folder folder;
  folder.write("good.npy", small_file());
  folder.write("bad.npy", "x");
  const Ids ids{"good", "bad", "missing"};
  const auto before = open_files();
  {
    const NpyTree tree(folder.path(), ids, 2);
    Scratch<std::byte> scratch;
    for (std::size_t i = 0; i < ids.size(); ++i) error_of([&] { (void)tree.read(i, ids[i], scratch); });
    EXPECT_EQ(open_files(), before + 1);
  }
  EXPECT_EQ(open_files(), before);
}

TEST(WriteNpy, ATreeReadsWhatWasWritten) {
  const Folder folder;
  std::vector<float> values(12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 3;
  const std::array<std::int64_t, 2> shape{3, 4};
  const auto data = std::as_bytes(std::span(values));
  write_npy(folder / "speakers/1/a.npy", NpyType::float32, shape, data.subspan(0, 48));
  write_npy(folder / "speakers/1/a.npy", NpyType::float32, shape, data);  // again: replaced
  const NpyTree tree(folder.path(), Ids{"speakers/1/a"}, 1);
  Scratch<std::byte> scratch;
  EXPECT_EQ(tree.item(0).header.type, NpyType::float32);
  EXPECT_THAT(tree.item(0).header.shape, ElementsAre(3, 4));
  EXPECT_EQ(text_of(tree.read(0, "speakers/1/a", scratch)), text_of(data));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "speakers/1"), {}), 1);
}

TEST(WriteNpy, WhatCannotBeWrittenIsNamed) {
  const Folder folder;
  const std::array<std::int64_t, 1> shape{3};
  const std::array<std::byte, 12> data{};
  const fs::path path = folder / "a.npy";
  EXPECT_THAT(
      error_of([&] { write_npy(path, NpyType::float16, shape, data); }),
      AllOf(HasSubstr(path.string()), HasSubstr("expected 6 bytes of data for its shape, but found 12")));
  for (const std::vector<std::int64_t>& other :
       {std::vector<std::int64_t>{}, {-3}, {1, 1, 3}, {1L << 40, 1L << 40}})
    EXPECT_THAT(error_of([&] { write_npy(path, NpyType::float32, other, data); }),
                HasSubstr(path.string() + ": cannot be written: "));
  EXPECT_FALSE(fs::exists(path));
  folder.write("file", "");
  const fs::path below_a_file = folder / "file/a.npy";
  EXPECT_THAT(error_of([&] { write_npy(below_a_file, NpyType::float32, shape, data); }),
              HasSubstr(below_a_file.string()));
  fs::create_directories(folder / "folder.npy/x");
  EXPECT_THAT(error_of([&] { write_npy(folder / "folder.npy", NpyType::float32, shape, data); }),
              HasSubstr((folder / "folder.npy").string()));
}

/// Which trees are found in a dataset with these files; relative to it, `-` for none.
std::string found(const std::vector<std::string_view>& files) {
  const Folder dataset;
  for (const std::string_view file : files) dataset.write(file, "");
  const NpyFolders folders = find_npy_folders(dataset.path());
  const auto shown = [&](const fs::path& p) {
    return p.empty() ? "-" : p.lexically_relative(dataset.path()).string();
  };
  return shown(folders.mels) + " " + shown(folders.tokens);
}

TEST(FindNpyFolders, KnowsTheNamesThatPeopleUse) {
  EXPECT_EQ(found({"mels/a.npy", "tokens/a.npy"}), "mels tokens");
  EXPECT_EQ(found({"mel/a.npy", "tok/a.npy"}), "mel tok");
  EXPECT_EQ(found({"mels_22k/a.npy", "tokens_phonemes/a.npy"}), "mels_22k tokens_phonemes");
  EXPECT_EQ(found({"mel_cache/a.npy", "token_cache/a.npy"}), "mel_cache token_cache");
  EXPECT_EQ(found({"cache/mel/a.npy", "cache/tok/a.npy"}), "cache/mel cache/tok");
  EXPECT_EQ(found({"cache/mels/a.npy", "cache/tokens/a.npy"}), "cache/mels cache/tokens");
  EXPECT_EQ(found({"cached_features/mels/a.npy", "cached_features/tokens/a.npy"}),
            "cached_features/mels cached_features/tokens");
  EXPECT_EQ(found({"cached_features/a.npy"}), "cached_features -");
  EXPECT_EQ(found({"features/mel/a.npy"}), "features/mel -");
  EXPECT_EQ(found({"preprocessed/mel-80/s1/a.npy", "processed/token-ids/a.npy"}),
            "preprocessed/mel-80 processed/token-ids");
}

TEST(FindNpyFolders, TheFirstInOrderCounts) {
  EXPECT_EQ(found({"mels_b/a.npy", "mels_a/a.npy", "mel/a.npy", "cache/mels/a.npy"}), "mel -");
  EXPECT_EQ(found({"mels_b/a.npy", "mels_a/a.npy", "cache/mels/a.npy"}), "mels_a -");
  EXPECT_EQ(found({"cached_features/a.npy", "features/mels/a.npy"}), "features/mels -");
  EXPECT_EQ(found({"mels/a.txt", "cache/mel/a.npy"}), "cache/mel -");
  EXPECT_EQ(found({"mels", "mel/a.npy"}), "mel -");  // a file of that name
}

TEST(FindNpyFolders, OtherFoldersAreNone) {
  EXPECT_EQ(found({}), "- -");
  EXPECT_EQ(found({"wavs/a.npy", "melody/a.npy", "tokyo/a.npy", "a.npy"}), "- -");
  EXPECT_EQ(found({"cached_features/tokens/a.npy"}), "- cached_features/tokens");
  const NpyFolders missing = find_npy_folders("/nowhere/at/all");
  EXPECT_TRUE(missing.mels.empty() && missing.tokens.empty());
}

TEST(FindNpyFolders, FilesNamedAfterTheirArrayAreNoTree) {
  EXPECT_EQ(found({"cached_features/a_mel.npy", "cached_features/a_tokens.npy", "cached_features/a.npy"}),
            "- -");
  EXPECT_EQ(found({"mel/LJSpeech-mel-LJ001-0001.npy", "cache/mel/LJ001-0001.npy"}), "cache/mel -");
  EXPECT_EQ(found({"mels/caramel.npy", "tokens/token1.npy"}), "mels tokens");  // only whole words
}

TEST(FindNpyFolders, ALinkToAFolderIsAFolder) {
  const Folder elsewhere;
  elsewhere.write("a.npy", "");
  const Folder dataset;
  fs::create_directory_symlink(elsewhere.path(), dataset / "mels");
  EXPECT_EQ(find_npy_folders(dataset.path()).mels, dataset / "mels");
}

}  // namespace
}  // namespace penstock
