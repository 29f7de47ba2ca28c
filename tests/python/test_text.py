"""Cleaning, compared with Python's own Unicode tables.

Python's str.lower() uses the same full case mappings as ICU's root locale, final sigma and U+0130 included, so only one
difference is left: the Unicode version. Code points that one of the two may not know yet are left out.
"""
import os
import pathlib
import random
import subprocess
import unicodedata

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", REPO / "build"))

DROPPED = {0xAD, 0x61C, 0x200E, 0x200F, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
# Unicode's White_Space (str.isspace() has the separators U+001C..001F besides), and the zero width space.
SPACES = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x200B}
# A Python that is newer than ICU 72 (Unicode 15.0) knows more letters: then those that every version knows must do.
SHARED = unicodedata if float(unicodedata.unidata_version[:4]) <= 15.0 else unicodedata.ucd_3_2_0
ASSIGNED = [c for c in range(0x110000) if c != 0xA and SHARED.category(chr(c)) not in ("Cs", "Cn", "Co")]


def expected(text):
    text = "".join(c for c in text if ord(c) not in DROPPED)
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    words = "".join(" " if ord(c) in SPACES else c for c in text).split(" ")
    return " ".join(word for word in words if word)


def dump(lines, *arguments):
    """The tool's line for each of `lines` (str, or bytes that need not be UTF-8)."""
    data = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    run = subprocess.run([BUILD / "tests" / "text_dump", *arguments], input=data, capture_output=True, check=True)
    answers = run.stdout.decode().split("\n")[:-1]
    assert len(answers) == len(lines)
    return answers


def cleaned(lines):
    return ["".join(chr(int(c, 16)) for c in answer.split()) for answer in dump(lines)]


def check(lines):
    for line, result in zip(lines, cleaned(lines)):
        assert result == expected(line), ascii(line)


@pytest.mark.parametrize(
    "text",
    [
        "Printing, in the only sense with which we are at present concerned,",
        "  Tabs\tand   SPACES \r",
        "Ça va très bien, ŒUVRE, Straße, GROẞ, İstanbul, DİYARBAKIR",
        "ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ ΑΣ' ΑΣΑ ὈΔΥΣΣΕΎΣ",
        "می‌خواهم کتاب‌ها را بخوانم؛ ۱۲۳ و ١٢٣",
        "\u202bسلام\u200f، دنیا!\u202c \ufeffپایان",
        "اَلسَّلَامُ عَلَيْكُمْ أإآؤئ لا",
        "你好，　世界！ 漢字 \ufa0e",
        "👩\u200d👩\u200d👧 ❤\ufe0f 🇮🇷 𝔘𝔫𝔦",
        "e\u0301 E\u0301\u0323 a\u0323\u0302 o\u0308\u0304 J\u030c \u212b\u2126\u212a",
        "\u1112\u1161\u11ab\u1100\u1173\u11af 한글",
        "क़ ड़ \u0958 \u09dc \u0f43 \U0001d15e",
        "no\u00a0break\u202fspace\u2009thin\u200bzero\u3000wide\u2028line",
        "co\u00adoper\u2060ate",
        "",
        " \u00a0\u3000",
    ],
)
def test_cleaning_equals_python_on_real_text(text):
    check([text])


def test_every_assigned_code_point_alone_and_in_context():
    characters = list(map(chr, ASSIGNED))
    check(characters)
    check([f"A{c}\u0301 {c}Σ" for c in characters])


def test_random_texts():
    rng = random.Random(1)
    marks = [c for c in ASSIGNED if unicodedata.combining(chr(c))]
    special = sorted(DROPPED | SPACES - {0xA} | {0x200C, 0x200D, 0x3A3, 0x130, 0x49, 0x4A, 0x30C, 0x345, 0x307})
    pools = [ASSIGNED, marks, special, range(0x20, 0x250), range(0x600, 0x700)]
    lines = ["".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(60))) for _ in range(20000)]
    check(lines)


def test_whatever_python_cannot_decode_is_refused_at_the_same_byte():
    rng = random.Random(2)
    lines = []
    for _ in range(20000):
        line = bytearray("Aé中😀 می".encode())
        for _ in range(rng.randrange(1, 4)):
            line[rng.randrange(len(line))] = rng.choice([b for b in range(256) if b != 0xA])
        lines.append(bytes(line))
    refused = 0
    for line, answer in zip(lines, dump(lines)):
        try:
            line.decode()
            assert not answer.startswith("error"), line
        except UnicodeDecodeError as e:
            refused += 1
            assert answer == f"error: byte {e.start + 1} of the text is not valid UTF-8 (0x{line[e.start]:02X})", line
    assert 0 < refused < len(lines)


def test_ids_are_the_ranks_of_the_characters_between_bos_and_eos():
    lines = ["Hello, World", "سلام‌ها", "e\u0301 中", ""]
    ranks = {c: 4 + i for i, c in enumerate(sorted(set("".join(map(expected, lines)))))}
    for line, answer in zip(lines, dump(lines, "ids")):
        assert [int(i) for i in answer.split()] == [1, *(ranks[c] for c in expected(line)), 2]
