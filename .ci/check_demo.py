"""The demo's answer: one JSON object, no race, no mismatch, memory within the limit."""

import json
import sys

with open(sys.argv[1]) as file:
    demo = json.load(file)
assert demo["races"] == 0, demo
assert demo["mismatches"] == 0, demo
assert len(demo["parts"]) == 4, demo
assert demo["migrated_out_bytes"] > 0, demo
print(f"demo: simulated={demo['simulated']}, peak reserved {demo['peak_reserved_bytes']}, {demo['wall_s']:.1f} s")
