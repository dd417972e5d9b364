"""The header of a safetensors file is checked before a tensor is made, and policies before they are built."""

import json
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from body_transformer import Policy
from body_transformer.files import digest
from body_transformer.model.tensor_files import MAX_HEADER_BYTES, check_header, read_tensors
from body_transformer.policy_folder import DESCRIPTION, WEIGHTS, description_digest

from .bodies import chain, make_policy


def header(file: Path, content: object, data: bytes = b"", size: int | None = None) -> Path:
    """Write a safetensors file with this header, which may be wrong."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    file.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + data)
    return file


def tensor(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_tensors_are_those_that_were_saved(tmp_path):
    tensors = {"a": torch.ones(2, 3), "b": torch.zeros(0, 4, dtype=torch.bool), "c": torch.tensor(1.0).bfloat16()}
    save_file(tensors, tmp_path / "file", {"note": "x"})
    loaded, notes = read_tensors(tmp_path / "file")
    assert {name: tuple(loaded[name].shape) for name in loaded} == {"a": (2, 3), "b": (0, 4), "c": ()}
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert notes == {"note": "x"}


@pytest.mark.parametrize(
    ("content", "data", "size", "reason"),
    [
        (b"", b"", 2**63, "its header has 9,223,372,036,854,775,808 bytes, the file 8"),
        (b"{}", b"", 3, "its header has 3 bytes, the file 10"),
        (b"{}", b"", 0, "its header has 0 bytes"),
        ({"a": tensor([10**7, 10**7], 0, 4)}, b"1234", None, "'a' has a shape that does not fit its offsets"),
        ({"a": tensor([2**62, 4], 0, 0)}, b"", None, "'a' has a shape that does not fit its offsets"),
        ({"a": tensor([2**64], 0, 4)}, b"1234", None, "'a' must have a shape of at most 64 whole numbers"),
        ({"a": tensor([1] * 65, 0, 4)}, b"1234", None, "'a' must have a shape of at most 64 whole numbers"),
        ({"a": tensor([-1], 0, -4)}, b"", None, "'a' must have a shape of at most 64 whole numbers"),
        ({"a": tensor([True], 0, 4)}, b"1234", None, "'a' must have a shape of at most 64 whole numbers"),
        ({"a": tensor([1], 0, 4, "F7")}, b"1234", None, "'a' has the unknown type 'F7'"),
        ({"a": tensor([1], 4, 8)}, b"12345678", None, "its tensors overlap, or leave gaps"),
        ({"a": tensor([1], 0, 4), "b": tensor([1], 0, 4)}, b"1234", None, "its tensors overlap, or leave gaps"),
        ({"a": tensor([1], 0, 4)}, b"12345", None, "its tensors have 4 bytes, and 5 follow the header"),
        ({"a": tensor([2], 0, 8)}, b"1234", None, "its tensors have 8 bytes, and 4 follow the header"),
        (b"[" * 50_000, b"", None, "is not a complete safetensors file"),
        (b"\xff\xfe\x00", b"", None, "is not a complete safetensors file"),
        ([1], b"", None, "is not a complete safetensors file"),
        ({"a": 1}, b"", None, "is not a complete safetensors file"),
        ({"a": {}}, b"", None, "is not a complete safetensors file"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path, content, data, size, reason):
    file = header(tmp_path / "file", content, data, size)
    for read in (check_header, read_tensors):
        with pytest.raises(ValueError, match="is not a complete safetensors file") as error:
            read(file)
        assert reason in str(error.value)


def test_a_huge_header_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "file"
    with file.open("wb") as stream:
        stream.write((2**30).to_bytes(8, "little"))
        stream.truncate(2**30 + 8)  # a sparse file
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"may have at most {MAX_HEADER_BYTES:,}"):
            read_tensors(file)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


# -- policies ----------------------------------------------------------------------------------------------------------


def forged(folder: Path, change) -> Path:
    """Save a policy, change its description, and make all digests fit."""
    make_policy(chain(3), variant="bot-hard", num_layers=1).save(folder)
    content = json.loads((folder / DESCRIPTION).read_text())
    change(content["policy"])
    tensors, _ = read_tensors(folder / WEIGHTS)
    save_file(tensors, folder / WEIGHTS, {"format": "pt", "description_sha256": description_digest(content)})
    content["weights_sha256"] = digest(folder / WEIGHTS)
    (folder / DESCRIPTION).write_text(json.dumps(content))
    return folder


def chain_of(count: int):
    """Return a change of the description to a body with many nodes."""

    def change(content):
        nodes = [f"n{k}" for k in range(count)]
        graph = content["layout"]["graph"]
        graph.update(nodes=nodes, edges=[list(pair) for pair in pairwise(nodes)], root="n0")

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c["config"].update(num_layers=10**7), "num_layers must be at most 1000; got 10000000"),
        (lambda c: c["config"].update(num_layers=10**30), "num_layers must be at most 1000"),
        (lambda c: c["config"].update(num_layers=999), r"num_layers is 999, missing: encoder.layers.998.\*"),
        (lambda c: c["config"].update(embed_dim=10**6), "may have at most 268,435,456 parameters"),
        (lambda c: c["config"].update(ff_dim=2**70), "may have at most 268,435,456 parameters"),
        (lambda c: c["config"].update(variant="mlp", mlp_dim=10**9), "may have at most 268,435,456 parameters"),
        (lambda c: c["config"].update(ff_dim=4096), r"linear1.weight is .* instead of \[4096,"),
        (lambda c: c["layout"]["obs"][0].update(dim=10**9), "entries; the limit is 1,048,576"),
        (lambda c: c["layout"]["obs"][0].update(steps=2**80), "entries; the limit is 1,048,576"),
        (lambda c: c["layout"].update(obs=[{"name": "o", "kind": "root", "dim": 2**20}]), "must be|padded|instead of"),
        (chain_of(2049), "a body graph may have at most 2,048 nodes; got 2,049"),
        (chain_of(100_000), "a body graph may have at most 2,048 nodes; got 100,000"),
    ],
    ids=range(12),
)
def test_a_small_policy_file_with_huge_sizes_is_refused_at_once(tmp_path, change, reason):
    folder = forged(tmp_path / "policy", change)
    start = time.monotonic()
    with pytest.raises(ValueError, match=reason):
        Policy.load(folder)
    assert time.monotonic() - start < 10


def test_many_extra_edges_of_a_large_body_are_refused(tmp_path):
    def change(content):
        chain_of(2000)(content)
        content["layout"]["graph"]["extra_edges"] = [["n0", "n9"]] * 10_000

    with pytest.raises(ValueError, match=r"a body graph with 2,000 nodes may have at most 536 extra edges; got 10,000"):
        Policy.load(forged(tmp_path / "policy", change))


def test_an_unchanged_policy_is_read(tmp_path):
    assert Policy.load(forged(tmp_path / "policy", lambda content: None)).config.num_layers == 1
