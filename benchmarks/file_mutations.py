"""Ways to damage the files of a run or of results/: random bytes, and edits that keep the format.

Every mutation takes a random generator, the path of a file or folder, and a folder outside of the
run that links can point to. After an edit inside a checkpoint, its manifest is usually brought up
to date, so that the damage gets past the checksums.
"""

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

HUGE = 20_000_000_000  # bytes of a file that takes no space on disk
MODULE = "evil"  # importing it leaves a mark
# Tokens that JSON does not have; written into the text in the place of a marked string.
TOKENS = ("NaN", "-Infinity", "1e999", "-0", "1E400", "00", "'x'")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 255, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1e30, 1e308, -1e308),
    *("", "x", "0", "1e6", "../../x", "/etc/passwd", "\x00", "\ud800", "\u202e\u0301", "\x1b[2J"),
    *("$\\frac{", "a" * 100_000, "a." * 50_000, "user@host.example.org", "emi", "gym:CartPole-v1"),
    *([], {}, [[]], [None], [1] * 1_000, [[1, 2], [3]], {"a": 1}, {"": {}}, ["x"] * 100),
)
NAMES = ("", "x", "../../x", "/etc/x", "a/b/c/d", ".", "..", "\x00", "\ud800", "é", "seed", "env")
CELLS = (
    "",
    "x",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1",
    "0",
    "1_0",
    "0x10",
    "'1'",
    "\x00",
    "é",
    "1 2",
)
CONTENTS = (
    b"\x89PNG\r\n\x1a\n" + bytes(64),
    b"PK\x03\x04" + bytes(64),
    gzip.compress(b"{}"),
    b"\x80\x04\x95" + b"cos\nsystem\n(S'true'\ntR.",  # a pickle
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"{}",
    b"[]",
    b"null",
    b"0",
    b'"x"',
    b"\n" * 1000,
    b"a,b\n1,2\n",
    bytes(8),
    b"\xff" * 100,
    struct.pack("<Q", 2) + b"{}",
    struct.pack("<Q", 2**62) + b"{}",
)


class Mutation(NamedTuple):
    applies: Callable[[Path], bool]
    change: Callable[[Random, Path, Path], None]


def flip_bits(random: Random, path: Path, outside: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        place = random.randrange(min(len(data), random.choice((64, 4096, len(data)))))
        data[place] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(random: Random, path: Path, outside: Path) -> None:
    data = path.read_bytes()
    length = random.choice((0, 1, 8, len(data) // 2, len(data) - 1, random.randrange(len(data))))
    path.write_bytes(data[:length])


def splice(random: Random, path: Path, outside: Path) -> None:
    """Delete, repeat or insert a block."""
    data = path.read_bytes()
    start = random.randrange(len(data))
    block = data[start : start + random.choice((1, 4, 64, 4096))]
    place = random.randrange(len(data))
    end = start + len(block) if random.random() < 0.3 else start
    data = data[:start] + data[end:]
    extra = random.choice((b"", block, block * 10, random.randbytes(len(block))))
    path.write_bytes(data[:place] + extra + data[place:])


def other_content(random: Random, path: Path, outside: Path) -> None:
    others = [p for p in _root(path).rglob("*") if p.is_file() and p != path]
    if others and random.random() < 0.4:
        shutil.copyfile(random.choice(sorted(others)), path)
    else:
        path.write_bytes(random.choice((*CONTENTS, random.randbytes(500))))


def large(random: Random, path: Path, outside: Path) -> None:
    """A gzip bomb, a file of 20 GB, or a text of some tens of MB."""
    match random.randrange(3) if path.suffix == ".gz" else random.randrange(1, 5):
        case 0:
            path.write_bytes(random.choice((_bomb_of_members, _bomb_of_blocks))())
        case 1:
            os.truncate(path, HUGE)
        case 2:
            path.write_bytes(path.read_bytes() * (20_000_000 // (path.stat().st_size + 1) + 1))
        case 3:
            path.write_bytes(b"[" + b"0," * 10_000_000 + b"0]")
        case _:
            path.write_bytes(b"1," * 20_000_000 + b"\n")


def special_file(random: Random, path: Path, outside: Path) -> None:
    """Something that is not a file, or nothing, in the place of a file or folder."""
    is_folder = path.is_dir()
    _remove(path)
    match random.randrange(9):
        case 0:
            os.mkfifo(path)
        case 1:
            # A socket needs a short path.
            with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
                server.bind(path.name)
        case 2:
            path.symlink_to("/dev/urandom")
        case 3:
            path.symlink_to("/dev/zero")
        case 4:
            path.symlink_to(path.name)  # a loop
        case 5:
            path.symlink_to("..")
        case 6:
            path.symlink_to("nowhere")
        case 7:
            if is_folder:
                path.write_bytes(b"a file")
            else:
                path.mkdir()
        case _:
            pass  # missing


def link_outside(random: Random, path: Path, outside: Path) -> None:
    """A link to a file or folder of the user."""
    target = outside / ("folder" if path.is_dir() else "file")
    if random.random() < 0.5:  # with the content that belongs there
        target = target.with_name(f"copy of {path.name}")
        if not target.exists():
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, target)
    _remove(path)
    path.symlink_to(target)


def deep_tree(random: Random, path: Path, outside: Path) -> None:
    """Folders nested 1,200 levels deep, beyond the length that a path can have."""
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("deep", dir_fd=descriptor)
        inner = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def json_value(random: Random, path: Path, outside: Path) -> None:
    """Another value, of any type."""
    content = json.loads(path.read_bytes())
    _change_value(random, content)
    _write_json(random, path, content)


def json_key(random: Random, path: Path, outside: Path) -> None:
    """A key is removed, renamed, added or repeated."""
    content = json.loads(path.read_bytes())
    _change_key(random, content)
    _write_json(random, path, content)


def json_nesting(random: Random, path: Path, outside: Path) -> None:
    """A value is nested in many lists or objects."""
    content = json.loads(path.read_bytes())
    holder, key = random.choice(_places(content))
    holder[key] = "@@nested@@"
    levels = random.choice((10, 100, 500, 900, 990, 5_000, 100_000))
    start, end = random.choice((("[", "]"), ('{"a":', "}")))
    nested = start * levels + "1" + end * levels
    path.write_text(json.dumps(content).replace('"@@nested@@"', nested))


def own_module(random: Random, path: Path, outside: Path) -> None:
    """A config that names a module to import."""
    content = json.loads(path.read_bytes())
    for group in [content] if "env" in content else content.values():
        config = group.get("config", group)
        if random.random() < 0.5:
            config["env"] = random.choice((f"gym:{MODULE}:X-v0", f"gym:{MODULE}.part:X-v0"))
        else:
            config["method"] = random.choice((f"{MODULE}:X", f"{MODULE}.part:X"))
    path.write_text(json.dumps(content))


def table(random: Random, path: Path, outside: Path) -> None:
    """Cells, rows and columns of a CSV file."""
    content = path.read_bytes()
    packed = path.suffix == ".gz"
    text = (gzip.decompress(content) if packed else content).decode()
    rows = [line.split(",") for line in text.splitlines()]
    row, column = random.randrange(1, len(rows)), random.randrange(len(rows[0]))
    match random.randrange(10):
        case 0 | 1 | 2:
            rows[row][column] = random.choice(CELLS)
        case 3:
            for each in rows[1:]:
                each[column] = random.choice(CELLS)
        case 4:
            rows.insert(random.randrange(len(rows)), rows[row])
        case 5:
            del rows[row if random.random() < 0.5 else 0]
        case 6:
            for each in rows:
                del each[column]
        case 7:
            for each in rows:
                each.append(each[column])
        case 8:
            rows = random.choice((rows[:1], rows[1:], [[]], [*rows[:1], *rows[:0:-1]]))
        case _:
            rows = [each * (100_000 // len(each)) for each in rows[:3]]
    data = "".join(",".join(each) + "\n" for each in rows).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)


def tensors(random: Random, path: Path, outside: Path) -> None:
    """Names, types, shapes and values of tensors, in a file whose format is kept."""
    content = path.read_bytes()
    packed = path.suffix == ".gz"
    content = gzip.decompress(content) if packed else content
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    names = [name for name in header if name != "__metadata__"]
    name = random.choice(names)
    entry = header[name]
    start, end = entry["data_offsets"]
    match random.randrange(8):
        case 0:
            del header[name]
        case 1:
            header[random.choice((*NAMES, *names))] = header.pop(name)
        case 2:
            kinds = ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "X")
            entry["dtype"] = random.choice(kinds)
        case 3:
            shapes = ([], [0], [1], [2**62], [-1], [1.5], [entry["shape"]], entry["shape"][::-1])
            entry["shape"] = random.choice((*shapes, [1, *entry["shape"]], [2**40, 0]))
        case 4:
            entry["data_offsets"] = random.choice(
                ([0, 0], [end, start], [0, 2**60], [start, 2**63])
            )
        case 5:
            pattern = random.choice((b"\xff", b"\x7f", b"\x00\x00\x80\x7f", b"\x80", b"\x00"))
            filled = (pattern * (end - start))[: end - start]
            keep = random.choice((0, (end - start) // 2))
            data[start + keep : end] = filled[keep:]
        case 6:
            _change_value(random, header)
        case _:
            _change_key(random, header)
    text = _text(random, header).encode(errors="surrogatepass")
    content = struct.pack("<Q", len(text)) + text + data
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)


def update_manifest(checkpoint: Path) -> None:
    """Make the sizes and checksums of a checkpoint's manifest those of its files."""
    names = ("manifest.json", "state.json", "tensors.safetensors")
    if not all(_is_small(checkpoint / name) for name in names):
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        manifest = json.loads((checkpoint / "manifest.json").read_bytes())
        for name in manifest["files"]:
            data = (checkpoint / name).read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            manifest["files"][name] = {"bytes": len(data), "sha256": digest}
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size < 100_000_000


def _is_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_json(path: Path) -> bool:
    return _is_file(path) and path.suffix == ".json"


def _has_suffixes(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: _is_file(path) and "".join(path.suffixes).endswith(suffixes)


KINDS: dict[str, Mutation] = {
    "bit flips": Mutation(_is_file, flip_bits),
    "cut": Mutation(_is_file, cut),
    "splice": Mutation(_is_file, splice),
    "other content": Mutation(_is_file, other_content),
    "too large": Mutation(_is_file, large),
    "special file": Mutation(lambda path: True, special_file),
    "link outside": Mutation(lambda path: True, link_outside),
    "deep tree": Mutation(Path.is_dir, deep_tree),
    "JSON value": Mutation(_is_json, json_value),
    "JSON key": Mutation(_is_json, json_key),
    "JSON nesting": Mutation(_is_json, json_nesting),
    "own module": Mutation(lambda path: path.name in ("config.json", "runs.json"), own_module),
    "table": Mutation(_has_suffixes(".csv", ".csv.gz"), table),
    "tensors": Mutation(_has_suffixes(".safetensors", ".safetensors.gz"), tensors),
}


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) inside a JSON value."""
    found: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    return found


def _change_value(random: Random, content: Any) -> None:
    holder, key = random.choice(_places(content))
    holder[key] = random.choice((*VALUES, *(f"@@{token}@@" for token in TOKENS)))


def _change_key(random: Random, content: Any) -> None:
    objects = [h for h, key in _places(content) if isinstance(h, dict)]
    holder = random.choice(objects)
    key = random.choice(list(holder))
    match random.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder[random.choice(NAMES)] = holder.pop(key)
        case 2:
            holder[random.choice(NAMES)] = holder[key]
        case _:
            holder[f"@@again@@{key}"] = random.choice(VALUES)  # the same key twice in the text


def _text(random: Random, content: Any) -> str:
    text = json.dumps(content, ensure_ascii=random.random() < 0.5).replace('"@@again@@', '"')
    for token in TOKENS:
        text = text.replace(f'"@@{token}@@"', token)
    return text


def _write_json(random: Random, path: Path, content: Any) -> None:
    path.write_bytes(_text(random, content).encode(errors="surrogatepass"))


def _root(path: Path) -> Path:
    return path.parent.parent


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _bomb_of_members() -> bytes:
    """2 GB of zeros in 2 MB: many gzip files, one after the other."""
    return gzip.compress(bytes(10_000_000), mtime=0) * 200


def _bomb_of_blocks() -> bytes:
    """2 GB of zeros in one gzip file, cut before its checksum."""
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(bytes(10_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(10_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * 200
