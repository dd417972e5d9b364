"""Malformed robot files: each gives a graph or a ValueError of one line, and the interpreter survives them all."""

import contextlib
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from body_transformer import robots
from body_transformer.body import isolate
from body_transformer.body.graph import BodyGraph

NUM_MUTATIONS = 500
SINK = b"""<mujoco model="a bit of everything">
  <compiler angle="radian" autolimits="true"/>
  <default><joint damping="1"/>
    <default class="leg"><joint range="-1 1"/><geom type="capsule" size=".1 .2"/></default></default>
  <asset><mesh name="mesh" file="mesh.stl"/><model name="arm" file="arm.xml"/></asset>
  <worldbody><light pos="0 0 1"/><geom name="floor" type="plane" size="1 1 1"/><site name="w"/>
    <body name="base" childclass="leg"><freejoint name="free"/><geom name="g0" fromto="0 0 0 1 0 0"/>
      <frame pos="1 0 0"><body name="up"><joint name="j1"/><geom name="g1" type="mesh" mesh="mesh"/><site name="s1"/>
        <body name="low"><joint name="j2" type="ball"/><geom name="g2"/><site name="s2" pos="1 2 3"/></body></body>
      </frame>
      <replicate count="3" euler="0 0 1"><body name="leg"><joint name="lj"/><site name="ls"/></body></replicate>
      <body name="holder"><attach model="arm" body="arm" prefix="left_"/></body>
    </body></worldbody>
  <tendon><fixed name="t1"><joint joint="j1" coef="1"/></fixed>
    <spatial name="t2"><site site="s1"/><geom geom="g1" sidesite="s2"/><site site="s2"/></spatial></tendon>
  <equality><connect name="e1" body1="base" body2="low" anchor="0 0 0"/><weld site1="s1" site2="s2"/></equality>
  <actuator><motor name="a1" joint="j1"/><position tendon="t1"/><muscle tendon="t2"/><general site="s1" refsite="s2"/>
    <motor cranksite="s1" slidersite="s2" cranklength="1"/><adhesion body="low" ctrlrange="0 1"/></actuator>
  <sensor><touch site="s1"/></sensor>
</mujoco>"""
ARM = b"""<mujoco><worldbody><body name="arm"><joint name="elbow"/><body name="hand"/></body></worldbody>
  <actuator><motor name="motor" joint="elbow"/></actuator></mujoco>"""
URDF = b"""<robot name="r"><link name="base"/><link name="a"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
  <visual><geometry><mesh filename="package://x/y.stl" scale="1 1 1"/></geometry></visual>
  <collision><origin xyz="0 0 0" rpy="0 0 0"/><geometry><cylinder radius="1" length="2"/></geometry></collision></link>
  <link name="b"/><link name="c"/><link name="d"/>
  <joint name="j1" type="revolute"><parent link="base"/><child link="a"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/><dynamics damping="1" friction="1"/></joint>
  <joint name="j2" type="floating"><parent link="base"/><child link="b"/></joint>
  <joint name="j3" type="planar"><parent link="a"/><child link="c"/></joint>
  <joint name="j4" type="continuous"><origin xyz="0 0 1" rpy="0 0 1"/><parent link="c"/><child link="d"/>
    <mimic joint="j1" multiplier="2"/></joint></robot>"""

# -- documents written by hand -----------------------------------------------------------------------------------------

LEG = b'<body name="a"><joint name="j"/><site name="s"/><geom name="g" size="1"/><body name="b"/></body>'
GRAPH = "a graph"
"""Expected for a document that is odd but valid."""
EITHER = "a graph or a refusal"
"""Expected for a document that breaks MuJoCo 3.11; later versions may read it."""
UNREADABLE = "is not an MJCF or URDF description that MuJoCo can read: "


def mjcf(bodies: bytes = LEG, rest: bytes = b"", assets: bytes = b"") -> bytes:
    return b"<mujoco><asset>%b</asset><worldbody>%b</worldbody>%b</mujoco>" % (assets, bodies, rest)


def laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10))
    text = f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]><mujoco><worldbody><body name="&l9;"/></worldbody></mujoco>'
    return text.encode()


def nested(tag: bytes, depth: int, inside: bytes = b'<body name="x"/>') -> bytes:
    return mjcf(
        b'<body name="a">' + (b"<%b>" % tag) * depth + inside + (b"</%b>" % tag.split()[0]) * depth + b"</body>"
    )


REPLICATED = b'<body><replicate count="2">%b</replicate></body>'
DOCUMENTS = {
    "nothing": (b"", UNREADABLE),
    "zero bytes": (b"\0" * 100, UNREADABLE),
    "noise": (bytes(range(256)) * 4, UNREADABLE),
    "two documents": (mjcf() * 2, GRAPH),
    "cut": (mjcf()[:-20], UNREADABLE),
    "open comment": (mjcf() + b"<!-- ", UNREADABLE),
    "crossed tags": (mjcf(b"<body><frame></body></frame>"), UNREADABLE),
    "attribute twice": (mjcf(b'<body name="a" name="b"/>'), UNREADABLE),
    "byte order mark": (b"\xef\xbb\xbf" + mjcf(), GRAPH),
    "UTF-16": (mjcf().decode().encode("utf-16"), UNREADABLE),
    "no UTF-8 in a body's name": (mjcf(b'<body name="\xff\xfe"/>'), "UTF-8"),
    "no UTF-8 in a joint's name": (mjcf(b'<body><joint name="\xff"/></body>'), "UTF-8"),
    "no UTF-8 in an attribute": (mjcf(b'<body \xff="1"/>'), "UTF-8"),
    "no UTF-8 in a tag": (b"<\xff/>", "UTF-8"),
    "zero byte in a name": (mjcf(b'<body name="a\0b"/>'), UNREADABLE),
    "billion laughs": (laughs(), GRAPH),
    "external entity": (b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + mjcf(b'<body name="&e;"/>'), GRAPH),
    "bodies in bodies": (nested(b"body", 5000), UNREADABLE),
    "frames in frames": (nested(b"frame", 5000), UNREADABLE),
    "400 bodies deep": (nested(b"body", 400), GRAPH),
    "long name": (mjcf(b'<body name="%b"/>' % (b"x" * 1_000_000)), GRAPH),
    "line breaks in names": (
        mjcf(b'<body name="a&#10;b"/><body name="c&#13;&#x2028;d"/>'),
        "choose the robot's with root=",
    ),
    "quotes in names": (mjcf(b'<body name="&quot;"/><body name="\'"/>'), "choose the robot's with root="),
    "includes itself": (mjcf(rest=b'<include file="includes itself.xml"/>'), "already included"),
    "includes a folder": (mjcf(rest=b'<include file="."/>'), UNREADABLE),
    "includes nothing": (mjcf(rest=b"<include/>"), UNREADABLE),
    "includes a missing file": (mjcf(rest=b'<include file="missing.xml"/>'), "missing.xml"),
    "attaches itself": (
        mjcf(
            b'<body name="a"><attach model="m" body="a" prefix="p"/></body>',
            assets=b'<model name="m" file="attaches itself.xml"/>',
        ),
        EITHER,
    ),
    "attaches a missing file": (mjcf(assets=b'<model name="m" file="missing.xml"/>'), "missing.xml"),
    "attaches no file": (mjcf(assets=b'<model name="m"/>'), EITHER),
    "attaches no model": (mjcf(b'<body><attach model="m" body="x" prefix="p"/></body>'), "could not find model 'm'"),
    "attaches no body": (
        mjcf(b'<body><attach model="m" body="x" prefix="p"/></body>', assets=b'<model name="m" file="arm.xml"/>'),
        UNREADABLE,
    ),
    "plugin in bodies in replicates": (
        mjcf(REPLICATED % (REPLICATED % b'<body><plugin plugin="x"/></body>')),
        EITHER,
    ),
    "NaN": (mjcf(b'<body name="a" pos="nan nan nan"/>'), GRAPH),
    "huge number": (mjcf(b'<body name="a" pos="1e400 0 0"/>'), "number is too large"),
    "too many numbers": (mjcf(b'<body name="a" pos="1 2 3 4"/>'), "too much data"),
    "words for numbers": (mjcf(b'<body name="a" pos="here"/>'), "bad format in attribute 'pos'"),
    "unknown joint type": (mjcf(b'<body><joint type="screw"/></body>'), "invalid keyword: 'screw'"),
    "unknown class": (mjcf(b'<body childclass="x"/>'), "unknown default childclass"),
    "unknown class that is a printf format": (mjcf(b'<body><geom class="%s%n"/></body>'), EITHER),
    "unknown tag": (mjcf(b"<limb/>"), "unrecognized element"),
    "negative count": (nested(b'replicate count="-3"', 1), GRAPH),
    "joint of the world": (mjcf(b"<joint/>" + LEG), "World body cannot have joints"),
    "huge height field": (mjcf(assets=b'<hfield name="h" nrow="999999" ncol="999999" size="1 1 1 1"/>'), EITHER),
    "actuator of two": (mjcf(rest=b'<actuator><motor joint="j" site="s"/></actuator>'), "at most one"),
    "constraint on nothing": (mjcf(rest=b"<equality><connect/></equality>"), UNREADABLE),
    "tendon over an unknown site": (
        mjcf(
            rest=b'<tendon><spatial name="t"><site site="s"/><geom geom="x"/><site site="y"/></spatial></tendon>'
            b'<actuator><motor tendon="t"/></actuator>'
        ),
        "tendon 't' runs over a joint, site or geom that does not exist",
    ),
    "URDF without names": (b"<robot><link/><link/><joint/></robot>", UNREADABLE),
    "a bit of everything": (SINK, GRAPH),
    "URDF": (URDF, GRAPH),
}

# -- random mutations of documents -------------------------------------------------------------------------------------

TAG = re.compile(rb"<[^<>]*>")
ATTRIBUTE = re.compile(rb'\s([a-zA-Z0-9]+)="([^"]*)"')
VALUES = [
    b"", b" ", b"nan", b"inf", b"-1", b"0", b"1e308", b"1e400", b"99999999999999999999", b"1 2", b"1 2 3 4 5 6 7 8 9",
    b"a", b"true", b"auto", b"x" * 3000, b"1 " * 2000, b"\xff\xfe", b"&#0;", b"&#10;", b"&quot;", b"%s%n", b"../..",
    b".", b"world", b"main", b"ball", b"free", b"slide", b"mesh", b"hfield", b"user", b"package://x/y.stl", b"arm.xml",
]  # fmt: skip
ELEMENTS = [
    b"<body/>", b"<joint/>", b"<freejoint/>", b"<site/>", b'<body name="up"><joint type="ball"/></body>', b"<frame/>",
    b"<actuator><general/></actuator>", b'<equality><weld body1="x"/></equality>', b"<plugin/>", b"<key/>", b"<!-- ",
    b'<include file="arm.xml"/>', b"<tendon><fixed/></tendon>", b'<tendon><spatial name="t"/></tendon>', b"<![CDATA[",
    b'<attach model="arm" body="hand" prefix="x"/>', b'<replicate count="2"><body/></replicate>', b"<model/>",
    b'<composite type="cable" count="4 1 1" curve="s"/>', b'<flexcomp name="f" type="grid" count="2 2 1"/>', b"</body>",
    b'<link name="x"/>', b'<joint name="x" type="floating"><parent link="a"/><child link="b"/></joint>', b"<mimic/>",
]  # fmt: skip


def swapped(data: bytes, one: tuple[int, int], other: tuple[int, int]) -> bytes:
    (a, b), (c, d) = sorted([one, other])
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return the data with some bytes, tags, attributes or values deleted, doubled, swapped or replaced."""
    for _ in range(chance.choice([1, 1, 2, 4])):
        tags = [match.span() for match in TAG.finditer(data)] or [(0, 0)]
        found = list(ATTRIBUTE.finditer(data))
        attributes = [match.span() for match in found] or tags
        values = [match.span(2) for match in found] or tags
        alike = chance.choice([tags, attributes, values])
        start, end = chance.choice(alike)
        other = chance.choice(alike)
        place, tag, value = chance.randrange(len(data) + 1), chance.choice(tags)[1], chance.choice(values)
        data = chance.choice(
            [
                data[:place],
                data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :],
                data[:start] + data[end:],
                data[:end] + data[start:end] * chance.choice([1, 50]) + data[end:],
                swapped(data, (start, end), other),
                data[: other[0]] + data[start:end] + data[other[1] :],
                *[data[: value[0]] + chance.choice(VALUES) + data[value[1] :]] * 3,
                data[:tag] + chance.choice(ELEMENTS) + data[tag:],
            ]
        )
    return data


def mutations():
    bases = [SINK, URDF, *(robots.path(name).read_bytes() for name in ("humanoid", "a1", "adroit_door"))]
    for k in range(NUM_MUTATIONS):
        chance = random.Random(k)
        yield f"mutation {k}", mutated(bases[k % len(bases)], chance)


# -- what becomes of each document ------------------------------------------------------------------------------------


def outcome_of(path: Path, number: int) -> str | None:
    """Return the error's type and message, or None for a graph."""
    options = {"fixed": ("keep", "merge")[number // 2 % 2], "equality_edges": True}
    try:
        if number % 2 and path.name.startswith("mutation"):
            BodyGraph.from_xml(path.read_bytes().decode("utf-8", "replace"), **options)
        else:
            BodyGraph.from_file(path, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("malformed")
    (folder / "arm.xml").write_bytes(ARM)
    for part in Path(robots.__file__).parent.glob("adroit_hand_*.xml"):
        shutil.copy(part, folder)
    documents = {**{name: data for name, (data, _) in DOCUMENTS.items()}, **dict(mutations())}
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolate, "TIMEOUT_S", 5.0)
        patch.chdir(folder)  # MuJoCo logs its warnings there
        for number, (name, data) in enumerate(documents.items()):
            path = folder / f"{name}.xml"
            path.write_bytes(data)
            found[name] = outcome_of(path, number)
    return found


def test_the_interpreter_survives_every_document(outcomes):
    assert len(outcomes) == len(DOCUMENTS) + NUM_MUTATIONS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_malformed_document_is_refused_for_its_fault(outcomes, name):
    _, expected = DOCUMENTS[name]
    outcome = (outcomes[name] or GRAPH).replace(f"{name}.xml", "")
    assert expected == EITHER or expected.lower() in outcome.lower()


def test_every_refusal_is_a_value_error_of_one_line(outcomes):
    refusals = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    wrong = {
        name: outcome
        for name, outcome in refusals.items()
        if not re.fullmatch(r"(ValueError|FileNotFoundError): .+", outcome)
        or len(outcome.splitlines()) != 1
        or "exit status" in outcome  # an exception of this package in the reader
        or "busy" in outcome  # none of them is large
    }
    assert wrong == {}


def test_the_mutations_are_neither_all_harmless_nor_all_refused(outcomes):
    counts = Counter(outcome is None for name, outcome in outcomes.items() if name.startswith("mutation"))
    assert counts[True] > NUM_MUTATIONS / 10
    assert counts[False] > NUM_MUTATIONS / 4


@pytest.mark.parametrize("name", ["attaches no file", "huge height field", "plugin in bodies in replicates"])
def test_a_document_that_breaks_mujoco_does_not_affect_the_next_one(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warnings there
    monkeypatch.setattr(isolate, "TIMEOUT_S", 5.0)
    with contextlib.suppress(ValueError):
        BodyGraph.from_xml(DOCUMENTS[name][0].decode())
    warned_about = DOCUMENTS["NaN"][0].decode()  # after such a failure, MuJoCo 3.11 hangs instead of warning
    assert BodyGraph.from_xml(warned_about).nodes == ("a",)


@pytest.mark.parametrize("text", ["\udcff", '<mujoco><worldbody><body name="\udcff"/></worldbody></mujoco>'])
def test_a_text_that_cannot_be_encoded_is_refused(text):
    with pytest.raises(ValueError, match=r"^(?!.*exit status).+$"):
        BodyGraph.from_xml(text)


@pytest.mark.parametrize(
    "flood",
    [
        b'<replicate count="1000000000"><body/></replicate>',
        b'<replicate count="2">' * 40 + b"<body/>" + b"</replicate>" * 40,
        b'<composite type="cable" curve="s" count="1000000000 1 1"><geom type="capsule" size="1"/></composite>',
        b'<flexcomp name="f" type="grid" count="1000 1000 1000" dim="3" spacing="1 1 1"/>',
    ],
    ids=["replicate", "replicates in replicates", "cable", "grid"],
)
def test_a_document_that_never_ends_is_refused_and_the_next_one_is_read(flood, monkeypatch):
    monkeypatch.setattr(isolate, "TIMEOUT_S", 1.5)
    with pytest.raises(ValueError, match=r"^the given text .*malformed"):
        BodyGraph.from_xml(mjcf(b'<body name="x">' + flood + b"</body>").decode())
    monkeypatch.undo()
    assert BodyGraph.from_xml(mjcf().decode()).nodes == ("a", "b")
