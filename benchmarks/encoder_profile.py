import sys

import encoder_tuning as tuning

from body_transformer.ops.encoder_stack.fused import passes as fused

precision = sys.argv[1]
x, grad, parameters, mask, masked = tuning.problem(8192)
for _ in range(2):
    _, *kept = fused.forward(x, parameters, mask, masked, 2, 1e-5, precision, True)
    fused.backward(grad, kept, mask, masked, fused.sizes_of(x, parameters, 2), precision)
tuning.torch.cuda.synchronize()
