#!/usr/bin/env python3
"""The design's table of who may include whom: stages meet in core/ and feed/, never each other."""
import pathlib
import re
import sys

CORE_ONLY = {"core"}
STAGES = {"source", "decode", "features", "cache", "plan", "device", "monitor", "synth"}
ALLOWED = {"core": CORE_ONLY, **{s: {"core", s} for s in STAGES}, "feed": {"core", "feed"} | STAGES - {"synth"}}

root = pathlib.Path(__file__).parent.parent
bad = [f"{f.relative_to(root)}:{n}: penstock/{folder}/ must not include {target}/"
       for folder, allowed in ALLOWED.items() for f in (root / "penstock" / folder).rglob("*.[hc]*")
       for n, line in enumerate(f.read_text().splitlines(), 1)
       for target in re.findall(r'#include "(?:penstock/)?(\w+)/', line) if target not in allowed | {"hwy"}]
sys.exit("\n".join(bad) or 0)
