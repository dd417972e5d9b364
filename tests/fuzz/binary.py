"""Mutations of safetensors files, ONNX models and robot files, drawn from a random generator."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from ..body.test_malformed_files import mutated as mutated_xml
from .content import CANARY, INTEGERS, NAMES, mutate_bytes
from .plain_data import mutate_data

# -- safetensors: the header's length (u64), the header (JSON), the data -----------------------------------------------

DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "X", "f32", 3, None)


def split_safetensors(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def join_safetensors(header: Any, data: bytes) -> bytes:
    """Return the content of a file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def mutate_safetensors(chance: Random, content: bytes) -> bytes:
    """Return a file with another header, other data, or with changed bytes."""
    way = chance.randrange(10)
    if way == 0:
        return mutate_bytes(chance, content)
    header, data = split_safetensors(content)
    tensors = [name for name in header if name != "__metadata__"]
    name = chance.choice(tensors)
    entry = header[name]
    if way == 1:
        return (chance.choice(INTEGERS) % 2**64).to_bytes(8, "little") + content[8:]
    if way == 2:
        return join_safetensors(
            header, data[: chance.randrange(len(data) + 1)] + chance.randbytes(chance.choice((0, 8)))
        )
    if way == 3:
        header = mutate_data(chance, header)
    elif way == 4:
        entry["shape"] = chance.choice(
            ([], [0], [-1], [1], [2**63], [2**32, 2**32], [10**7] * 3, entry["shape"][::-1], [*entry["shape"], 1], "x")
        )
    elif way == 5:
        entry["dtype"] = chance.choice(DTYPES)
    elif way == 6:
        begin, end = entry["data_offsets"]
        entry["data_offsets"] = chance.choice(
            ([end, begin], [0, 0], [-4, end], [begin, 2**64], [begin, end + 4], [begin])
        )
    elif way == 7:
        header[chance.choice(NAMES)] = header.pop(name)
    elif way == 8:
        other = chance.choice(tensors)  # numbers that are not finite, and tensors that change places
        if header[other]["shape"] == entry["shape"]:
            header[name], header[other] = header[other], entry
        begin, end = entry["data_offsets"]
        words = chance.choice((b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f"))
        data = data[:begin] + (words * ((end - begin) // 4)) + data[begin + (end - begin) // 4 * 4 :]
    else:
        del header[name]
    return join_safetensors(header, data)


# -- ONNX --------------------------------------------------------------------------------------------------------------

OPERATORS = ("Loop", "If", "Scan", "ConstantOfShape", "Expand", "Tile", "Range", "Reshape", "MatMul", "Identity", "Pad",
             "RandomNormal", "SequenceEmpty", "Resize", "Gather", "Custom", "")  # fmt: skip


def mutate_onnx(chance: Random, content: bytes) -> bytes:
    """Return a model with changed fields, with data outside the file, or with changed bytes."""
    import onnx

    way = chance.randrange(10)
    if way == 0:
        return mutate_bytes(chance, content)
    model = onnx.load_from_string(content)
    if way == 1:
        _store_outside(chance, model)
    elif way == 2:
        _huge(chance, model)
    else:
        for _ in range(chance.choice((1, 1, 3))):
            _change_field(chance, model)
    return bytes(model.SerializeToString())


def _store_outside(chance: Random, model: Any) -> None:
    """Refer to another file for a tensor's data."""
    tensor = chance.choice(list(model.graph.initializer))
    tensor.data_location = 1
    length = len(tensor.raw_data)
    if chance.random() < 0.8:
        tensor.ClearField("raw_data")
    place = {"location": chance.choice((f"{CANARY}/raw.bin", "raw.bin", "policy.json", "/etc/passwd", "")),
             "offset": str(chance.choice((0, 8, -1, 2**40))), "length": str(chance.choice((length, 0,
             2**40)))}  # fmt: skip
    for key, value in place.items():
        if chance.random() < 0.8:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value


def _huge(chance: Random, model: Any) -> None:
    """Insert a node that asks for much memory or time."""
    import numpy as np
    from onnx import helper, numpy_helper

    graph = model.graph
    size = chance.choice((10**4, 10**9, 10**12, 2**62, -1))
    graph.initializer.append(numpy_helper.from_array(np.array([size], np.int64), "huge"))
    name = graph.node[0].input[0]
    kind = chance.choice(("ConstantOfShape", "Expand", "Tile", "Range"))
    inputs = {"ConstantOfShape": ["huge"], "Expand": [name, "huge"], "Tile": [name, "huge"], "Range": ["huge"] * 3}
    graph.node.insert(0, helper.make_node(kind, inputs[kind], ["much"]))
    if chance.random() < 0.5:
        graph.output[0].name = "much"


def _change_field(chance: Random, model: Any) -> None:
    """Change, remove or double a field of a random message."""
    message = model
    while True:
        fields = [(field, value) for field, value in message.ListFields() if value is not None]
        if not fields:
            return None
        field, value = chance.choice(fields)
        if field.is_repeated:
            at = chance.randrange(len(value))
            if field.message_type is None or chance.random() < 0.15:
                return _change_list(chance, field, value, at)
            message = value[at]
        elif field.message_type is not None:
            if chance.random() < 0.1:
                return message.ClearField(field.name)
            message = value
        else:
            return setattr(message, field.name, _other(chance, field, value))


def _change_list(chance: Random, field: Any, values: Any, at: int) -> None:
    way = chance.randrange(3)
    if way == 0:
        del values[at]
    elif field.message_type is not None:
        values.append(values[at])
    elif way == 1:
        values[at] = _other(chance, field, values[at])
    else:
        values.append(values[at])


def _other(chance: Random, field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        if isinstance(value, bytes):
            return mutate_bytes(chance, value)
        return chance.choice((*OPERATORS, *NAMES))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return chance.choice([number.number for number in field.enum_type.values])
    return chance.choice((0, 1, -1, 2, value + 1, 10**7, 2**31 - 1, -(2**31)))


# -- MJCF and URDF -----------------------------------------------------------------------------------------------------

VALUE = re.compile(rb'"([^"]*)"')
XML_NAMES = tuple(
    name.encode("utf-8", "replace").replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b'"', b"&quot;")
    for name in NAMES
)
XML_PARTS = (
    f'<include file="{CANARY}/model.xml"/>', '<include file="/etc/passwd"/>', '<include file="~/x.xml"/>',
    f'<asset><mesh name="m1" file="{CANARY}/raw.bin"/></asset>',
    f'<asset><hfield name="h1" file="{CANARY}/raw.bin"/></asset>',
    f'<asset><texture name="t1" type="2d" file="{CANARY}/raw.bin"/></asset>', f'<compiler meshdir="{CANARY}"/>',
    f'<asset><model name="m2" file="{CANARY}/model.xml"/></asset>',
    f'<asset><skin name="s" file="{CANARY}/raw.bin"/></asset>',
    '<extension><plugin plugin="mujoco.pid"/></extension>', '<size memory="100G"/>', '<size nuser_body="1000000000"/>',
    '<worldbody><replicate count="100000000"><body/></replicate></worldbody>', '<option timestep="nan"/>',
    '<worldbody><composite type="cable" count="100000 1 1" curve="s" size="1"><joint/><geom type="box" size="1 1 1"/>'
    "</composite></worldbody>", '<!DOCTYPE x [<!ENTITY e SYSTEM "../outside/raw.bin">]>', "<statistic/>", "<?xml?>",
)  # fmt: skip


def mutate_xml(chance: Random, content: bytes) -> bytes:
    """Return a robot file with changed elements, attributes, values or bytes, or with other files."""
    way = chance.randrange(10)
    if way == 0:
        return mutate_bytes(chance, content)
    if way == 1:
        ends = [match.end() for match in re.finditer(rb"</?[a-z]+[^<>]*>", content)] or [0]
        at = chance.choice(ends)
        return content[:at] + chance.choice(XML_PARTS).encode() + content[at:]
    if way == 2 and (values := list(VALUE.finditer(content))):
        value = chance.choice(values)
        return content[: value.start(1)] + chance.choice(XML_NAMES) + content[value.end(1) :]
    return mutated_xml(content, chance)
