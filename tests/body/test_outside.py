"""A robot's description reads files outside its folder only if the user allows it."""

import json
import os
import re
import tarfile
from pathlib import Path

import mujoco
import pytest

from body_transformer import BodyGraph, robots
from body_transformer.body.outside import check_inside
from body_transformer.cli.main import main
from body_transformer.deploy.robot_model import robot_limits
from body_transformer.experiment import RobotSpec

SECRET = '<mujoco><body name="secret"><joint name="of_another_user"/></body></mujoco>'
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\nf 1 3 4\nf 2 3 4\n"


@pytest.fixture
def folder(tmp_path):
    """The folder of a robot, beside a folder of somebody else."""
    (tmp_path / "private" / "meshes").mkdir(parents=True)
    (tmp_path / "private" / "secret.xml").write_text(SECRET)
    (tmp_path / "private" / "meshes" / "m.obj").write_text(MESH)
    (tmp_path / "robot" / "parts").mkdir(parents=True)
    (tmp_path / "robot" / "parts" / "hand.xml").write_text('<mujoco><body name="hand"><joint/></body></mujoco>')
    return tmp_path / "robot"


def robot(folder, body="", assets="", more="", name="robot.xml"):
    file = folder / name
    file.write_text(
        f'<mujoco>{more}<asset>{assets}</asset><worldbody><body name="base"><geom size="1"/>{body}</body></worldbody>'
        "</mujoco>"
    )
    return file


def refused(file, named, **options):
    with pytest.raises(ValueError, match=r"outside its folder .*--allow-outside.*allow_outside") as error:
        BodyGraph.from_file(file, **options)
    assert repr(named) in str(error.value)
    assert repr(str(file)) in str(error.value)
    assert "\n" not in str(error.value)


# -- includes ----------------------------------------------------------------------------------------------------------


def test_files_in_the_folder_are_included(folder):
    file = robot(folder, '<include file="parts/hand.xml"/>')
    assert BodyGraph.from_file(file).nodes == ("base", "hand")
    absolute = robot(folder, f'<include file="{folder}/parts/hand.xml"/>')
    assert BodyGraph.from_file(absolute).nodes == ("base", "hand")


@pytest.mark.parametrize(
    "path",
    [
        "../private/secret.xml",
        "parts/../../private/secret.xml",
        "./../private/secret.xml",
        "ABSOLUTE",
        "link.xml",
        "door/secret.xml",
    ],
)
def test_a_file_outside_the_folder_is_included_only_with_the_flag(folder, path):
    private = folder.parent / "private"
    (folder / "link.xml").symlink_to(private / "secret.xml")
    (folder / "door").symlink_to(private)
    path = path.replace("ABSOLUTE", str(private / "secret.xml"))
    file = robot(folder, f'<include file="{path}"/>')
    refused(file, path)
    assert BodyGraph.from_file(file, allow_outside=True).nodes == ("base", "secret")


def test_an_included_file_cannot_include_one_outside(folder):
    (folder / "parts" / "hand.xml").write_text('<mujoco><include file="../../private/secret.xml"/></mujoco>')
    refused(robot(folder, '<include file="parts/hand.xml"/>'), "../../private/secret.xml")
    (folder / "parts" / "hand.xml").write_text('<mujoco><include file="../private/secret.xml"/></mujoco>')
    refused(robot(folder, '<include file="parts/hand.xml"/>'), "../private/secret.xml")


def test_an_attached_model_and_its_includes_cannot_lie_outside(folder):
    attach = '<attach model="m" body="secret" prefix="p"/>'
    outside = "../private/secret.xml"
    refused(robot(folder, attach, f'<model name="m" file="{outside}"/>'), outside)
    (folder / "parts" / "model.xml").write_text(f'<mujoco><worldbody><include file="{outside}"/></worldbody></mujoco>')
    refused(robot(folder, attach, '<model name="m" file="parts/model.xml"/>'), outside)


def test_the_mesh_of_a_flexcomp_which_is_read_at_once_cannot_lie_outside(folder):
    flex = '<flexcomp name="f" type="mesh" dim="2" file="{}"/>'
    refused(robot(folder, flex.format("../private/meshes/m.obj")), "../private/meshes/m.obj")
    refused(robot(folder, flex.format("m.obj"), more='<compiler meshdir="../private/meshes"/>'), "m.obj")


DISGUISES = {
    "entity": "<include file='..&#47;private&#x2f;secret.xml'/>",
    "spaces": "<include   file \n=\t'../private/secret.xml'/>",
    "beside a comment": "<!-- a -- b --><include file='../private/secret.xml'/>",
    "in what looks like a comment": "<body name='<!--'/><include file='../private/secret.xml'/><body name='-->'/>",
    "in a quoted quote": '<body name="file=\'"/><include file="../private/secret.xml"/><body name="\'"/>',
    "beside character data": "<![CDATA[<body>]]><include file='../private/secret.xml'/>",
    "named entity": "<include file='x&sol;y/../../private/secret.xml'/>",
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_no_spelling_hides_a_file_outside(folder, disguise):
    file = robot(folder, DISGUISES[disguise])
    with pytest.raises(ValueError, match=r"secret.xml', which is outside its folder"):
        BodyGraph.from_file(file)


def test_a_document_type_does_not_hide_a_file_outside(folder):
    file = robot(folder, "<include file='../private/secret.xml'/>")
    file.write_text(f"<!DOCTYPE mujoco [<!ENTITY a 'b'>]>{file.read_text()}")
    refused(file, "../private/secret.xml")
    file.write_bytes(file.read_text().encode("utf-16"))
    with pytest.raises(ValueError, match=re.escape(str(file))):
        BodyGraph.from_file(file)


def test_a_text_cannot_include_a_file_outside_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = robot(folder, '<include file="{}"/>').read_text()
    assert BodyGraph.from_xml(text.replace("{}", "parts/hand.xml")).nodes == ("base", "hand")
    outside = text.replace("{}", "../private/secret.xml")
    with pytest.raises(ValueError, match=r"the given text names the file '../private/secret.xml'"):
        BodyGraph.from_xml(outside)
    assert BodyGraph.from_xml(outside, allow_outside=True).nodes == ("base", "secret")


def test_a_description_of_very_many_files_is_refused(folder):
    many = "".join(f'<include file="{k}.xml"/>' for k in range(300))
    with pytest.raises(ValueError, match=r"consists of over 200 files or folders; that is the limit"):
        BodyGraph.from_file(robot(folder, many))


# -- meshes and the like -----------------------------------------------------------------------------------------------

ASSETS = [
    '<mesh name="m" file="{}"/>',
    '<texture name="t" type="2d" file="{}"/>',
    '<texture name="t" type="cube" fileup="{}"/>',
    '<hfield name="h" size="1 1 1 1" file="{}"/>',
    '<skin file="{}"/>',
]


@pytest.mark.parametrize("asset", ASSETS)
@pytest.mark.parametrize("path", ["../private/meshes/m.obj", "/etc/m.obj", "parts/../../private/meshes/m.obj"])
def test_assets_outside_are_compiled_only_with_the_flag_but_the_graph_needs_none(folder, asset, path):
    file = robot(folder, assets=asset.format(path))
    assert BodyGraph.from_file(file).nodes == ("base",)
    with pytest.raises(ValueError, match=r"outside its folder.*--allow-outside") as error:
        RobotSpec(str(file)).model_file()
    assert repr(path) in str(error.value)
    assert RobotSpec(str(file), allow_outside=True).model_file() == file


@pytest.mark.parametrize("key", ["meshdir", "assetdir"])
def test_a_folder_of_assets_outside_needs_the_flag(folder, key):
    file = robot(folder, assets='<mesh file="m.obj"/>', more=f'<compiler {key}="../private/meshes"/>')
    with pytest.raises(ValueError, match=r"'m.obj', which is outside its folder"):
        RobotSpec(str(file)).model_file()
    inside = robot(folder, assets='<mesh file="meshes/m.obj"/>', more=f'<compiler {key}="parts"/>')
    assert RobotSpec(str(inside)).model_file() == inside


def test_the_meshes_of_a_urdf_must_lie_in_its_folder_to_be_compiled(folder):
    link = '<link name="l"><collision><geometry><mesh filename="{}"/></geometry></collision></link>'
    for path in ("../private/meshes/m.obj", "package://a/../../../private/meshes/m.obj"):
        file = folder / "robot.urdf"
        file.write_text(f'<robot name="r">{link.format(path)}</robot>')
        assert BodyGraph.from_file(file).nodes == ("l",)
        with pytest.raises(ValueError, match=re.escape(path) + "', which is outside its folder"):
            RobotSpec(str(file)).model_file()
    stripped = '<mujoco><compiler strippath="true"/></mujoco>'
    file.write_text(f'<robot name="r">{stripped}{link.format("../private/meshes/m.obj")}</robot>')
    assert RobotSpec(str(file)).model_file() == file  # MuJoCo looks for m.obj in the robot's folder
    file.write_text(f'<robot name="r">{link.format("package://a/meshes/m.obj")}</robot>')
    assert RobotSpec(str(file)).model_file() == file


@pytest.mark.parametrize(
    ("asset", "more", "named"),
    [
        ('<hfield name="h" nrow="9000" ncol="9000" size="1 1 1 1"/>', "", "height field 'h' has 81,000,000"),
        ('<texture name="t" type="2d" builtin="flat" width="9999" height="9999"/>', "", "texture 't' has 299,940,003"),
        ("", '<size nuser_body="2000000000"/>', "nuser_body has 2,000,000,000"),
        ("", '<size memory="100G"/>', "it asks for 107,374,182,400 bytes"),
    ],
)
def test_a_few_words_cannot_fill_the_memory_when_the_model_is_compiled(folder, asset, more, named):
    file = robot(folder, assets=asset, more=more)
    with pytest.raises(ValueError, match=f"{named}.*; the limit is"):
        BodyGraph.from_file(file)
    with pytest.raises(ValueError, match=f"{named}.*; the limit is"):
        robot_limits(file, [])


# -- models that must keep working -------------------------------------------------------------------------------------


def test_the_shipped_robots_need_no_flag():
    for name in robots.names():
        assert RobotSpec(name).model_file() == robots.path(name)
        assert RobotSpec(name, root="world").graph().num_nodes > 1


def test_files_of_an_installed_package_may_share_files(tmp_path):
    package = tmp_path / "site-packages" / "some_robots"
    (package / "one").mkdir(parents=True)
    (package / "shared").mkdir()
    (package / "shared" / "hand.xml").write_text('<mujoco><body name="hand"/></mujoco>')
    (tmp_path / "site-packages" / "other").mkdir()
    (tmp_path / "site-packages" / "other" / "hand.xml").write_text('<mujoco><body name="hand"/></mujoco>')
    assert BodyGraph.from_file(robot(package / "one", '<include file="../shared/hand.xml"/>')).num_nodes == 2
    refused(robot(package / "one", '<include file="../../other/hand.xml"/>'), "../../other/hand.xml")


def test_mjlabs_models_need_no_flag():
    path = pytest.importorskip("mjlab").__path__[0]
    files = [os.path.join(top, one) for top, _, found in os.walk(path) for one in found if one.endswith(".xml")]
    assert files
    for file in files:
        check_inside(Path(file), file, assets=True)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_names_the_file_and_the_flag_and_the_flag_allows_it(folder, capsys):
    file = robot(folder, '<include file="../private/secret.xml"/>')
    assert main(["inspect", str(file)]) == 1
    assert "names the file '../private/secret.xml'" in (error := capsys.readouterr().err)
    assert "--allow-outside" in error
    assert error.count("\n") == 1
    assert main(["inspect", str(file), "--allow-outside", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == ["base", "secret"]
    out = folder / "mine.yaml"
    assert main(["new", str(file), "--out", str(out)]) == 1
    assert main(["new", str(file), "--out", str(out), "--allow-outside"]) == 0
    assert "allow_outside: true" in out.read_text()
    assert main(["inspect", str(out)]) == 0
    out.write_text(out.read_text().replace("allow_outside: true", "allow_outside: false"))
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 1
    assert "--allow-outside" in capsys.readouterr().err


def test_a_link_in_an_archive_does_not_lead_outside(folder, tmp_path):
    """A symbolic link is a file outside, too: an archive of a robot may contain one."""
    (folder / "link.xml").symlink_to("../private/secret.xml")
    robot(folder, '<include file="link.xml"/>')
    with tarfile.open(tmp_path / "robot.tar", "w") as archive:
        archive.add(folder, "robot")
    (tmp_path / "there").mkdir()
    with tarfile.open(tmp_path / "robot.tar") as archive:
        archive.extractall(tmp_path / "there", filter="fully_trusted")
    refused(tmp_path / "there" / "robot" / "robot.xml", "link.xml")


def test_mujoco_reads_includes_from_the_main_folder_and_the_files_own(folder):
    """The two places that are checked are those where MuJoCo looks."""
    (folder / "parts" / "hand.xml").write_text('<mujoco><include file="own.xml"/><include file="main.xml"/></mujoco>')
    (folder / "parts" / "own.xml").write_text('<mujoco><body name="own"/></mujoco>')
    (folder / "main.xml").write_text('<mujoco><body name="main"/></mujoco>')
    spec = mujoco.MjSpec.from_file(str(robot(folder, '<include file="parts/hand.xml"/>')))
    assert {"own", "main"} <= {body.name for body in spec.bodies}
