"""Films of robots: which OpenGL there is, pictures along a motion, and pictures to a file."""

import numpy as np
import numpy.typing as npt

Frame = npt.NDArray[np.uint8]
"""[height, width, 3]"""
