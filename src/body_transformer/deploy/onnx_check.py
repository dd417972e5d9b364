"""Check the structure of an ONNX file before ONNX Runtime opens it.

An exported policy is one graph of common operators whose tensors lie in the file. Whatever else ONNX can express is
refused: tensors in another file, which could change after the hash was checked; subgraphs and functions, which could
loop; shapes that depend on an observation, whose memory no trial could bound. Neither `onnx` nor protobuf is needed,
as a robot's computer has neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import listing
from ..policy_folder import MODEL
from ..schema import shown

OPERATORS = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Exp", "Log", "Pow", "Erf", "Min", "Max", "Clip", "Where"),
        *("Relu", "LeakyRelu", "Elu", "Gelu", "Tanh", "Sigmoid", "Softmax", "LayerNormalization", "ReduceMean"),
        *("MatMul", "Gemm", "Identity", "Constant", "Gather", "GatherND"),
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Pad", "Expand"),
        *("Cast", "ConstantOfShape"),
    )
)
"""Operators that a policy may have: those of the exporters, and others of their kind. None of them loops."""
SHAPE_INPUTS = {
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Split", "Expand", "ReduceMean"), (1,)),
    "ConstantOfShape": (0,),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
}
"""Operator -> inputs that decide the shape of its result; they must be constants."""
MAX_FIELDS = 1_000_000
"""Largest number of fields in a file; an export of 40 layers has some ten thousand."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_ALLOWED = {
    message: {number: name for number, name in enumerate(names.split(), 1) if name != "-"}
    for message, names in {
        "model": "ir_version producer_name producer_version domain model_version doc_string graph opset_import",
        "graph": "node name - - tensor - - - - doc_string input output value_info",
        "node": "input output name op_type attribute doc_string domain",
        "attribute": "name f i s tensor - floats ints strings - - - doc_string - - - - - - type",
        "tensor": "dims data_type - float_data int32_data - int64_data name raw_data double_data uint64_data "
        "doc_string",
        "input": "name type doc_string",
    }.items()
}
"""Message -> field number -> name, for the fields that a policy may have. A name that is a message is walked, too."""
_NUMBERS = frozenset(
    (
        *("ir_version", "model_version", "f", "i", "floats", "ints", "type", "dims", "data_type"),
        *("float_data", "int32_data", "int64_data", "double_data", "uint64_data"),
    )
)
"""Fields that may be numbers; the others are names, bytes and messages."""
_REFUSED = {
    ("tensor", 13): "a tensor's data are in another file (external_data)",
    ("tensor", 14): "a tensor says where its data are (data_location)",
    ("tensor", 3): "a tensor is split into segments",
    ("attribute", 6): "an operator has a subgraph",
    ("attribute", 11): "an operator has subgraphs",
    ("attribute", 10): "an operator has a list of tensors",
    ("attribute", 22): "an operator has a sparse tensor",
    ("attribute", 23): "an operator has sparse tensors",
    ("graph", 15): "the graph has sparse tensors",
    ("model", 14): "the model has metadata (metadata_props)",
    ("model", 20): "the model has training information",
    ("model", 25): "the model has functions",
}
"""Words for the refused fields that ONNX knows and that matter; others are named by their number."""


@dataclass
class _Operator:
    """An operator of the graph."""

    inputs: list[str]
    outputs: list[str]
    op_type: str = ""


def check_onnx(model: bytes, folder: str) -> None:
    """Refuse a model that is not one graph of OPERATORS with constant shapes, whose data are all in these bytes."""
    try:
        _check_graph(_ModelReader(model))
    except _RefusedModelError as problem:
        raise ValueError(f"{MODEL} in {folder!r} is refused: {problem}") from None


class _RefusedModelError(ValueError):
    """Reason for which a file is refused."""


class _ModelReader:
    """Walk a file of the protobuf format: check every field, and collect operators and constants."""

    def __init__(self, model: bytes) -> None:
        self._data = model
        self._num_fields = 0
        self.nodes: list[_Operator] = []
        self.constants: list[str] = []
        """Names of the tensors that belong to the graph itself."""
        self.inputs: list[str] = []
        self._walk("model", 0, len(model))

    def _walk(self, message: str, start: int, end: int) -> None:
        """Check a message and those inside it."""
        for name, begin, after in self._fields(message, start, end):
            if message == "graph" and name == "node":
                self.nodes.append(self._node(begin, after))
            elif name in _ALLOWED:
                self._walk(name, begin, after)
            if message == "graph" and name in ("tensor", "input"):
                (self.constants if name == "tensor" else self.inputs).append(self._name(name, begin, after))

    def _node(self, start: int, end: int) -> _Operator:
        node = _Operator([], [])
        for name, begin, after in self._fields("node", start, end):
            if name == "attribute":
                self._walk(name, begin, after)
            elif name in ("input", "output"):
                (node.inputs if name == "input" else node.outputs).append(self._text(begin, after))
            elif name == "op_type" and node.op_type:
                raise _RefusedModelError("an operator has two types")
            elif name == "op_type":
                node.op_type = self._text(begin, after)
            elif name == "domain" and (domain := self._text(begin, after)) not in ("", "ai.onnx"):
                raise _RefusedModelError(f"it has an operator of {shown(domain)}; a policy has those of ONNX alone")
        return node

    def _name(self, message: str, start: int, end: int) -> str:
        """Return the name of a tensor or input. With two, a reader of protobuf takes the last one."""
        names = [self._text(*at) for key, *at in self._fields(message, start, end) if key == "name"]
        if len(names) != 1:
            raise _RefusedModelError("a tensor has no name, or two")
        return names[0]

    def _text(self, start: int, end: int) -> str:
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError:
            raise _RefusedModelError("a name is not UTF-8") from None

    def _fields(self, message: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield the name of every field, and where its bytes begin and end; refuse fields that no policy needs."""
        names, at = _ALLOWED[message], start
        while at < end:
            self._num_fields += 1
            if self._num_fields > MAX_FIELDS:
                raise _RefusedModelError(f"it has more than {MAX_FIELDS} fields")
            tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            if number not in names:
                field = _REFUSED.get((message, number), f"the {message} has field {number}, which no policy needs")
                raise _RefusedModelError(field)
            begin, at = self._value(kind, at, end)
            if kind != _BYTES and names[number] not in _NUMBERS:  # a reader of protobuf would skip it
                raise _RefusedModelError(f"it is not an ONNX file: {names[number]} is a number")
            yield names[number], begin, at

    def _value(self, kind: int, at: int, end: int) -> tuple[int, int]:
        """Return where a value begins and ends."""
        if kind == _VARINT:
            return at, self._varint(at, end)[1]
        length = _FIXED.get(kind, 0)
        if kind == _BYTES:
            length, at = self._varint(at, end)
        elif not length:  # groups, which ONNX does not use
            raise _RefusedModelError(f"it is not an ONNX file: wire type {kind}")
        if at + length > end:
            raise _RefusedModelError("it is not an ONNX file: it ends inside a field")
        return at, at + length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number of seven bits per byte, and where it ends."""
        value = shift = 0
        while at < end and shift < 64:
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
        raise _RefusedModelError("it is not an ONNX file: it ends inside a number, or a number is too long")


def _check_graph(model: _ModelReader) -> None:
    """Check the operators, and that shapes depend on constants alone."""
    constants = {"", *model.constants}  # "" is an input that is not given
    defined = [*model.inputs, *model.constants]  # a tensor with the name of an input is only its default
    if not model.nodes:
        raise _RefusedModelError("it has no operators")
    for node in model.nodes:
        if node.op_type not in OPERATORS:
            have = listing(sorted(OPERATORS))
            raise _RefusedModelError(f"a policy may not have the operator {shown(node.op_type)}; it may have {have}")
        for position in SHAPE_INPUTS.get(node.op_type, ()):
            if position < len(node.inputs) and node.inputs[position] not in constants:
                raise _RefusedModelError(f"a shape depends on the observation: input {position} of a {node.op_type!r}")
        if constants.issuperset(node.inputs):
            constants.update(node.outputs)
        defined += filter(None, node.outputs)
    if len(set(defined)) < len(defined):
        raise _RefusedModelError("two tensors have the same name")
