"""The fused encoder for small bodies in bfloat16 on Hopper: each warp of a GPU has samples of its own."""
