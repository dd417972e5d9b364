"""Film a run of `bot deploy --robot sim` from its log.

    bot deploy go1 --robot sim --seconds 10 --command 0.8 0 0 --out deployments/go1
    python benchmarks/film_deployment.py go1 deployments/go1 go1.webp

The robot is drawn with its collision shapes, which travel with the export. A log has no position, so it is integrated
from the linear velocity, which the simulated robot measures without noise.
"""

import argparse
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from body_transformer.deploy.robots.sim_model import SimModel, sim_model
from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.saved_log import SavedLog
from body_transformer.video import View, render, write_video

FRAMES_HZ = 25.0


def drawn(robot: SimModel) -> mujoco.MjModel:
    """Return the robot's model with visible shapes, a chequered floor and a light."""
    spec = robot.spec.copy()
    spec.add_texture(
        name="squares",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        width=256,
        height=256,
        rgb1=[0.55, 0.6, 0.65],
        rgb2=[0.65, 0.7, 0.75],
    )
    spec.add_material(name="squares", textures=["", "squares"], texrepeat=[2, 2], texuniform=True)
    for geom in spec.geoms:
        geom.group = 0
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            geom.material, geom.size = "squares", [0, 0, 0.1]
        else:
            geom.rgba = [0.3, 0.34, 0.4, 1]
    spec.worldbody.add_light(pos=[0, 0, 4], dir=[0.2, 0.2, -1], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    return spec.compile()


def poses(log: SavedLog, robot: SimModel, model: mujoco.MjModel) -> NDArray[np.float64]:
    """Return a pose [nq] per frame of the policy's phase."""
    rows = log.rows
    chosen = np.flatnonzero((rows["phase"] == Phase.POLICY) & (rows["state"] == 1))
    times = rows["stamp_s"][chosen] - rows["stamp_s"][chosen[0]]
    trunk = model.body(robot.trunk)
    place = model.jnt_qposadr[trunk.jntadr[0]]
    joints = [model.joint(name).qposadr[0] for name in log.description.joints]
    position, found, turned = np.array([0.0, 0.0, robot.height_m]), [], np.zeros(3)
    for number, row in enumerate(chosen):
        mujoco.mju_rotVecQuat(turned, rows["linear_velocity"][row], rows["quaternion"][row])
        position = position + turned * (times[number] - times[max(number - 1, 0)])
        if times[number] * FRAMES_HZ >= len(found):
            pose = model.qpos0.copy()
            pose[place : place + 7] = *position, *rows["quaternion"][row]
            pose[joints] = rows["joint_pos"][row]
            found.append(pose)
    return np.stack(found)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path, help="the exported policy")
    parser.add_argument("log", type=Path, help="the log of its run")
    parser.add_argument("film", type=Path, help="a file that ends in .webp, .gif or .mp4")
    parser.add_argument("--distance", type=float, default=2.0, metavar="M", help="of the camera (default: 2)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of the film (default: the whole run)")
    options = parser.parse_args(args)
    robot = sim_model(options.policy)
    model = drawn(robot)
    shown = poses(SavedLog.load(options.log), robot, model)
    if options.seconds is not None:
        shown = shown[: max(round(options.seconds * FRAMES_HZ), 1)]
    view = View(robot.trunk, distance_m=options.distance, shadows=False, width=320, height=240)
    write_video(options.film, render(model, shown, view), FRAMES_HZ)
    print(f"wrote {options.film} ({len(shown)} frames)")


if __name__ == "__main__":
    main()
