"""The fused encoder for small bodies in bfloat16 on Hopper: each warp works on its own samples."""
