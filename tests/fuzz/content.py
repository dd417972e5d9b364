"""Names, paths and mutations of bytes that all formats share."""

from __future__ import annotations

import struct
from random import Random

CANARY = "../outside"
"""A folder beside the input's; opening a file in it is a fault."""
NAMES = (
    "", " ", "a", "x" * 300, "x" * 100_000, "name", "\x1b[31mred\x1b[0m", "a\nb", "a\r\nbot: done", "a\0b", "\u202eabc",
    "\u2028", "[red]", "{0}", "%s%n", "<script>alert(1)</script>", "'", '"', "\\", "__class__", "self", "nan",
    "inf", "None",
    "0", "-1", "1e5", "true", "none", "/", ".", "..", "/etc/passwd", "~", "~root", "*", "a/b", "-rf",
    "--out=x", "$(id)",
    f"{CANARY}/model.xml", f"{CANARY}/data.hdf5", f"{CANARY}/data.npz", f"{CANARY}/text.yaml", f"{CANARY}/raw.bin",
    "pretrained:a1-walk", "mjlab:x", "os:system", "builtins:exec", "subprocess:Popen", "world", "main", "äöü",
    "名前", "🤖",
    "\ufeff", "\ufffd", "e\u0301",
)  # fmt: skip
INTEGERS = (0, 1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutate_bytes(chance: Random, content: bytes) -> bytes:
    """Return the bytes cut, with changed, inserted, removed or moved parts, or with other integers."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(data) + 1)
        if chance.random() < 0.5:
            at = min(at, chance.choice((8, 64, 512)))  # headers are at the start
        length = chance.choice((1, 2, 4, 8, 64))
        way = chance.randrange(9)
        if way == 0:
            del data[at:]
        elif way == 1:
            del data[at : at + length]
        elif way == 2:
            data[at:at] = chance.randbytes(length)
        elif way == 3:
            start = chance.randrange(len(data) + 1)
            data[at:at] = data[start : start + 16 * length]
        elif way == 4:
            data[at : at + length] = bytes([chance.choice((0, 255))]) * length
        elif way == 5 and at + 8 <= len(data):
            order, size = chance.choice("<>"), chance.choice("BHIQ")
            number = chance.choice(INTEGERS) % 2 ** (8 * struct.calcsize(size))
            data[at : at + struct.calcsize(size)] = struct.pack(order + size, number)
        elif at < len(data):
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)
