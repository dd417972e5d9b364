"""A file outside the folder is refused however its name is written, because two parsers read the description."""

import mujoco
import pytest

from body_transformer import BodyGraph
from body_transformer.body.outside import check_inside

SECRET = '<mujoco><worldbody><body name="secret"><geom size="1"/></body></worldbody></mujoco>'
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\nf 1 3 4\nf 2 3 4\n"
SHAPE = '<worldbody><body><geom type="mesh" mesh="m"/></body></worldbody>'
REFUSAL = r"outside its folder .*--allow-outside"


@pytest.fixture
def folder(tmp_path):
    """The folder of a robot, beside a folder of somebody else."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret.xml").write_text(SECRET)
    (tmp_path / "private" / "m.obj").write_text(MESH)
    (tmp_path / "robot").mkdir()
    return tmp_path / "robot"


def written(folder, content):
    file = folder / "robot.xml"
    file.write_text(f"<mujoco>{content}</mujoco>", newline="")
    return file


@pytest.mark.parametrize("name", [r"..\private\secret.xml", r"..\\private\\secret.xml", r"../private\secret.xml"])
def test_a_backslash_leads_out_as_a_slash_does(folder, name):
    file = written(folder, f'<include file="{name}"/>')
    assert [body.name for body in mujoco.MjSpec.from_file(str(file)).bodies][1:] == ["secret"]  # MuJoCo follows it
    with pytest.raises(ValueError, match=REFUSAL):
        BodyGraph.from_file(file)


@pytest.mark.parametrize("directory", ["meshdir", "assetdir"])
def test_a_backslash_in_a_directory_leads_out(folder, directory):
    compiler = f'<compiler {directory}="..\\private"/>'
    file = written(folder, f'{compiler}<asset><mesh name="m" file="m.obj"/></asset>{SHAPE}')
    with pytest.raises(ValueError, match=REFUSAL):
        check_inside(file, "it", assets=True)


@pytest.mark.parametrize("name", ["a\nb.xml", "a\tb.xml", "a\r\nb.xml", "a\rb.xml"])
def test_a_link_whose_name_has_a_line_break_or_tab_is_followed(folder, name):
    link = folder / name.replace("\r\n", "\n").replace("\r", "\n")
    link.symlink_to(folder.parent / "private" / "secret.xml")
    with pytest.raises(ValueError, match=REFUSAL):
        BodyGraph.from_file(written(folder, f'<include file="{name}"/>'))


def test_the_path_of_a_mesh_counts_unless_every_strippath_is_true(folder):
    asset = f'<asset><mesh name="m" file="{folder.parent}/private/m.obj"/></asset>'
    (folder / "settings.xml").write_text('<mujoco><compiler strippath="false"/></mujoco>')
    first = '<compiler strippath="true"/>'
    check_inside(written(folder, first + asset + SHAPE), "it", assets=True)  # MuJoCo looks for m.obj in the folder
    for second in ('<compiler strippath="false"/>', '<include file="settings.xml"/>'):
        file = written(folder, first + second + asset + SHAPE)
        mujoco.MjSpec.from_file(str(file)).compile()  # MuJoCo reads the mesh outside
        with pytest.raises(ValueError, match=REFUSAL):
            check_inside(file, "it", assets=True)


def test_the_strippath_of_a_robot_says_nothing_about_an_attached_model(folder):
    asset = f'<asset><mesh name="m" file="{folder.parent}/private/m.obj"/></asset>'
    (folder / "hand.xml").write_text(f"<mujoco>{asset}{SHAPE}</mujoco>")
    file = written(folder, '<compiler strippath="true"/><asset><model name="hand" file="hand.xml"/></asset>')
    with pytest.raises(ValueError, match=REFUSAL):
        check_inside(file, "it", assets=True)
